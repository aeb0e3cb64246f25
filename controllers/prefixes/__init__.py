"""Starting points of rollouts: prefixes of earlier rollouts, beginnings of reference solutions.

- `buckets`: which parents get a prefix, and the loop that each kind of parent has
- `pool`: rollouts kept for one more use
- `reuse`: where to cut, what to refuse, how pieces are kept
- `hint_lengths`: how long a hint is
- `hints`: where a reference solution may be cut
"""
