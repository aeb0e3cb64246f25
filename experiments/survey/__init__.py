"""`halfway survey`: pass rates of a model on its data before any training.

- `sampling`: tries each problem and records the results, in bundles that can be resumed
- `findings`: findings from the records: zero-variance groups of each size and kind, lengths, lost attempts, by column;
  problems kept by an expression such as `0 < rate < 1`, and their file for a run
- `survey`: the configuration, the folder, the tables
"""
