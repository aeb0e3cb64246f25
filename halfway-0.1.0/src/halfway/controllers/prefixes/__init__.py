"""Starting points of rollouts: prefixes of earlier rollouts, and beginnings of reference solutions.

- `control_loops`: saved rollouts for prefixes, buckets of parent groups, and the feedback loop of each bucket
- `reuse`: PROS's cut points, refusals and stored prefixes
- `trees`: the state of PROS: problems and the prefixes cut from their rollouts
- `hint_lengths`: lengths of hints
- `hint_cuts`: cut points of reference solutions
"""
