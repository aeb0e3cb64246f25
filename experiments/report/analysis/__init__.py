"""What a comparison is asked.

- `design`: what was planned before it ran: contrasts, targets, costs
- `axes`: what a score is held against: steps, rollouts, tokens, seconds, costs
- `curves`: scores along an axis, between evaluations and up to a target
- `matched`: arms where all have spent equally
- `contrasts`: differences of arms, their errors, which are clear
- `reach`: what it cost to reach a target
- `strata`: which kinds of problems an arm learnt
- `timing`: where the seconds went
- `replays`: what replaying prefixes through an environment took
- `roofline`: what a trained token costs in generated tokens, from a device's peak rates
- `tuning`: what each arm was tuned to
"""
