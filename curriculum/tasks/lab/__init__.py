"""Tasks small enough that real reinforcement learning on them takes minutes on two cores: their rules, and the teachers
whose texts a starting policy learns from.

- `sums`: running sums and their marking: one long turn, many independent chances to fail
- `operators`: operator sheets and their marking: many skills that are learnt separately
- `sheets`: what both share: prompts, counting wrong lines, and bounds
- `ledger`: many turns, with an account in the environment
- `sources`: problems of these tasks, by name
"""
