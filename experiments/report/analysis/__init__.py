"""Answers the questions that a comparison is run for.

- `design`: reads what was planned before the comparison ran: contrasts, targets, costs
- `axes`: the measures of cost that scores are compared at: steps, rollouts, tokens, seconds, weighted costs
- `curves`: reads scores off between evaluations, and finds where they reach a target
- `matched`: compares arms where all have spent equally
- `contrasts`: differences between arms, their errors, and which are clear
- `pooled`: mean curves with their resamples, areas under them, and where they reach a target
- `savings`: every arm beside the baseline: areas, costs to a target, chances of being the best
- `strata`: which kinds of problems each arm learnt
- `timing`: where the seconds went
- `replays`: how long replaying prefixes through an environment took
- `roofline`: what a trained token costs in generated tokens, from a device's peak rates
- `tuning`: which settings were tried for each arm, and which was chosen
"""
