"""Studies of one question each, most of them about finished runs: `python -m halfway.experiments.studies.NAME`.

- `reproduction`: published results beside our own
- `when_it_pays`: the cheapest arm for each regime and measure of cost, from several comparisons
"""
