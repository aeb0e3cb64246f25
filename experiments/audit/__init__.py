"""Audits a run's rollout log: where the rollouts went, and what controllers would have done. Nothing here loads torch.

- `auditing`: a whole audit, its limits, and the audit as JSON
- `log_reading`: finds the logs at a path, recognises their formats and reads them
- `files`: finds files and reads their beginnings and lines; no file is trusted, and none is executed
- `database`: runs DuckDB on arrays and on Parquet files only
- `formats`: readers of rollout logs
- `builder`: collects rollouts into groups
- `history`: a log's groups in one form, whichever trainer wrote it
- `log_measures`: the numbers: zero-variance groups, repeated outcomes, spending, fates of problems
- `suspects`: finds problems whose rewards look wrong
- `counterfactual`: replays controllers against the log's own history
- `tables`: an audit as sentences and tables, and as HTML by the template in templates/
"""
