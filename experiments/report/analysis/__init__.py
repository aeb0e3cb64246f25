"""Answers the questions that a comparison is run for.

- `summary`: every number of a comparison
- `arm_summary`: one arm over its seeds
- `decisions`: arms that decided alike, and members that never acted
- `starts`: groups by where they began (a problem's start, a generated problem, a prefix), and scores by stratum
- `sweeps`: the settings that were tried for each arm, and the chosen one
- `plan`: reads what was planned before the comparison ran: contrasts, targets, costs
- `axes`: the measures of cost that scores are compared at: steps, rollouts, tokens, seconds, weighted costs
- `curves`: reads scores off between evaluations, and finds where they reach a target
- `equal_cost`: compares arms where all have spent equally: scores, contrasts, their errors, and which are clear
- `pooled`: mean curves with their resamples, areas under them, and where they reach a target
- `savings`: every arm beside the baseline: areas, costs to a target, chances of being the best
"""
