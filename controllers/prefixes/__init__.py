"""Starting points of rollouts: prefixes of earlier rollouts, and beginnings of reference solutions.

- `control_loops`: rollouts kept for one more use, which of them get a prefix, and the loop of each kind of parent
- `reuse`: where PROS cuts a rollout, what it refuses, and how it stores prefixes
- `trees`: what PROS remembers of problems and of the prefixes that grew from them
- `hint_lengths`: how long a hint should be
- `hint_cuts`: where a reference solution may be cut
"""
