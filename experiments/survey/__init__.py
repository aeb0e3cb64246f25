"""`halfway survey`: where a model stands on its data before any training.

- `sampling`: tries each problem and records what came back, in bundles that resume
- `findings`: what the records say: zero-variance groups of each size and kind, lengths, lost attempts, by column;
  which problems an expression such as `0 < rate < 1` keeps, and the file that a run reads
- `command`: the configuration, the folder, the tables
"""
