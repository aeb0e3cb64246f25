"""Tasks small enough that real reinforcement learning on them takes minutes on two cores: their rules, and the teachers
whose texts a starting policy learns from.

- `sums`: running sums: one long turn, many independent chances to fail
- `sums_writer`: the flawed author whose sheets the lab's task generator learns from
- `operators`: operator sheets: many skills that are learnt separately
- `operators_writer`: the flawed author whose sheets another task generator learns from
- `sheets`: bounds, reading and marking for both kinds of sheets
- `ledger`: many turns, with an account in the environment
- `micro`: micro-repositories, whose bugs a policy fixes and a generator writes
- `functions`: functions of one small integer, for function induction
- `sources`: problems of these tasks, by name
- `verifiers`: their markers, by name
- `variations`: other problems that need the same skills, by name
- `sums_domain`: running sums that a generator writes
- `operators_domain`: operator sheets that a generator writes
"""
