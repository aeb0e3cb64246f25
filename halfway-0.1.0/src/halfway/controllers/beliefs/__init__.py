"""Estimators of pass rates, from counts to hierarchical Bayes.

- `counts`: outcomes counted per problem, and moving averages
- `features`: columns of a problem set as numbers, categories and levels
- `calibration`: a probe's prediction, corrected by the solver's outcomes
- `shared_skills`: pass rates from the problems' features, by a regression with drifting weights
- `item_response`: the pass rate as a function of the hint's length
- `forest`: problems and the prefixes cut from their rollouts, with discounted evidence on every node
- `forest_beliefs`: the beliefs about a forest behind one interface
- `logit_normal`: rates whose log-odds are normal, and the posterior of trees given Polya-Gamma variables
- `hierarchical_bayes`: the belief of PROS: logit-normal rates, collapsed Gibbs sampling
- `bayes_model`: the same model in Pyro: a reference, and a fit of its hyperparameters
"""
