"""Published methods, implemented as in their papers, that showed no gain in our comparisons.

Numbers are differences in held-out pass@1 from plain GRPO at equal rollouts, in the easy, middle and hard regime of the
lab, eight seeds each (experiments/results/when_does_it_pay/first_contests.md).

- `bandit`: chooses categories by the past gain of their groups. SEC -0.014, +0.021, +0.019, the other kinds alike; not
  significant.
- `bots`: every outcome is evidence on all problems, through two reference models. +0.054, +0.030, +0.009, not
  significant; needs measured pass rates of the reference models.
- `cdas`: chooses problems whose difficulty straddles the policy's competence. +0.004, -0.056, -0.050; not significant.
- `knapsack`: divides the rollouts of a step among its problems before sampling. Within 0.005 in all three.
- `mopps`: chooses by Thompson draws from a posterior of the pass rate. -0.023, -0.033, -0.018; not significant.
- `ngu`: continues all-failed groups in later steps. In the hard regime alone, beside uniform choice with as many epochs
  (experiments/results/when_does_it_pay/tables.md): -0.274 at the end; after `frontier`, level with it.
- `pilot`: samples a few rollouts per problem and continues the promising groups. Within 0.010 in all three; the kind
  "commit" was not compared.
- `rounds`: samples a group until it has signal. -0.124, -0.113, -0.060, significantly worse in two regimes, since the
  same rollouts give fewer updates; `ar3po` -0.144, -0.041, -0.039. `ngu_rounds` was not compared.
- `signal`: gives advantages to zero-variance groups. RL-ZVP -0.011, +0.055, +0.019, not significant, for 2.0 to 3.6
  times the trained tokens.
- `varied`: trains the groups of a round (`lilo`, `vcrl`), or the rollouts of a group (`downsample`), whose outcomes
  vary most. -0.124 to +0.004, significantly worse in two regimes, since the same rollouts give fewer updates. `ragen`
  was not compared.
"""
