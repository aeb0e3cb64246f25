"""Published methods, implemented as their papers describe them, that were not shown to help in our comparisons.

Differences are in held-out pass@1 from plain GRPO at equal rollouts, in the easy, middle and hard regime of the lab,
eight seeds each (experiments/results/when_does_it_pay/first_contests.md).

- `bandit`: chooses categories by what their groups have taught. SEC -0.014, +0.021, +0.019 and its like; none clear.
- `bots`: every outcome informs the belief about all problems, through two reference models. +0.054, +0.030, +0.009,
  none clear, and the reference models' pass rates have to be measured beforehand.
- `cdas`: chooses problems whose difficulty straddles the policy's competence. +0.004, -0.056, -0.050; none clear.
- `knapsack`: divides the rollouts of a step among its problems before any is made. Within 0.005 in all three.
- `mopps`: chooses by Thompson draws from a posterior of the pass rate. -0.023, -0.033, -0.018; none clear.
- `ngu`: tries all-failed groups again in later steps. Not compared yet.
- `pilot`: begins with a few rollouts per problem and continues where they pay. Within 0.010 in all three.
- `signal`: gives advantages to groups whose rewards do not differ. RL-ZVP -0.011, +0.055, +0.019, none clear, for 2.0
  to 3.6 times the trained tokens.
- `varied`: trains the groups of a round (`lilo`, `vcrl`), or the rollouts of a group (`downsample`), whose outcomes
  vary most. -0.124 to +0.004, clearly behind in two regimes, since the same rollouts give fewer updates.
"""
