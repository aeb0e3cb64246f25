"""Tasks small enough that real reinforcement learning on them takes minutes on two cores: their rules, and the teachers
whose texts a starting policy learns from.

- `sums`: running sums: one long turn, many independent chances to fail
- `operators`: operator sheets: many skills that are learnt separately
- `sheets`: bounds, reading and marking for both kinds of sheets
- `ledger`: many turns, with an account in the environment
- `sources`: problems of these tasks, by name
- `verifiers`: their markers, by name
- `variations`: other problems that need the same skills, by name
"""
