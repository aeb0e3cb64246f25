"""Small tasks on which real reinforcement learning takes minutes on two cores: their rules, and the teachers that a
starting policy imitates.

- `sums`: running sums and their marking: one long turn, many independent chances to fail
- `operators`: operator sheets and their marking: many skills that are learnt separately
- `sheets`: shared by both: prompts, counting of wrong lines, and bounds
- `ledger`: several turns, with an account in the environment
- `lab_sources`: problems of these tasks, by name
"""
