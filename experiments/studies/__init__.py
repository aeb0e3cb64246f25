"""Studies of one question each, most of them about finished runs: `python -m halfway.experiments.studies.NAME`.

- `reproduction`: published results beside our own
- `audited_contest`: whether audits of a comparison's logs agree with the comparison's table
- `audit_rivals`: what other auditing tools say about the same logs
- `consistency`: how often problems whose groups gave no signal give none again
- `estimation_error`: PROS's beliefs against freshly measured pass rates
- `pros_audit`: whether the counts that steer PROS agree with the decision log
- `counterfactual`: what a replay says GRESO would skip, against what it did skip
- `hosted`: the same recipe in Halfway's trainer and in TRL
- `when_it_pays`: the cheapest arm for each regime and measure of cost, from several comparisons
"""
