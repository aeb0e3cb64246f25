"""Computes the results of a comparison.

- `comparison_summary`: every number of a comparison
- `arm_summary`: one arm over its seeds
- `equal_decisions`: arms with equal decisions, and members that never acted
- `starts`: groups by start (a problem, a generated problem, a prefix), and scores by stratum
- `sweeps`: the settings tried for each arm, and the chosen one
- `plan`: reads the plan of a comparison: contrasts, targets, costs
- `axes`: measures of cost for comparing scores: steps, rollouts, tokens, seconds, weighted costs
- `curves`: interpolates scores between evaluations, and finds where they reach a target
- `equal_cost`: compares arms at equal cost: scores, contrasts, their errors and significance
- `pooled`: mean curves with their resamples, areas under them, and where they reach a target
- `savings`: every arm against the baseline: areas, costs to a target, chances of being the best
"""
