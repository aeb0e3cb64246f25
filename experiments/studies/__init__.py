"""Single questions to finished runs, each `python -m halfway.experiments.studies.NAME`.

- `reproduction`: published results beside our own
- `audited_contest`: the runs of a comparison, audited by their own logs, against the comparison's table
- `audit_rivals`: what other auditing tools say about the same logs
- `consistency`: how long groups without signal stay without
- `estimation_error`: what PROS believed against freshly measured pass rates
- `pros_audit`: do the counts that steer PROS agree with the log?
- `counterfactual`: what an audit says GRESO would skip, against what it did skip
- `pass_count_pairs`: public pass counts before and after training, against the simulated learner
- `predicted_ranks`: the order of arms that the simulation predicts from one plain log, against the measured order
- `hosted`: one recipe in Halfway's trainer and in TRL
- `supervised`: supervised steps on the references that hints are cut from
- `when_it_pays`: the cheapest arm for each regime and measure of cost, from several comparisons
- `nulls`: whether equal arms are told apart, and real differences are
"""
