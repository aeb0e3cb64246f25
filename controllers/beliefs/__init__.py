"""Estimators of pass rates, from the simplest estimate to hierarchical Bayes.

- `counts`: outcomes counted per problem, and moving averages
- `features`: columns of a problem set as numbers, categories and levels
- `calibration`: a probe's guess, corrected by the solver's outcomes
- `shared_skills`: a belief that problems share: pass rates from their features, by a regression whose weights drift
- `item_response`: the pass rate as a function of the hint's length
- `forest`: problems and the prefixes that grew from them, with evidence on every node, and how it is forgotten
- `forest_beliefs`: the beliefs about a forest behind one interface
- `logit_normal`: rates whose log-odds are normal, and the posterior of trees given Polya-Gamma variables
- `hierarchical_bayes`: the belief of PROS: logit-normal rates, collapsed Gibbs sampling
- `bayes_model`: the same model in Pyro: a reference, and a fit of its scales
"""
