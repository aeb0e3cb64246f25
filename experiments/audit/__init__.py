"""What a run's rollout log says about where its rollouts went. Nothing here loads torch.

- `auditing`: a whole audit, its limits, its JSON
- `history`: a log's groups in one form, whichever trainer wrote it
- `reading`: from paths to logs
- `files`: other people's files: found, read in pieces, never run
- `strangers`: why a file is not a log
- `parquet`: tables in Parquet
- `builder`: from rollouts to groups
- `formats`: readers of rollout logs
- `figures`: the numbers: silence, memory, spending, fates of problems
- `suspects`: problems whose rewards look wrong
- `replay`: counterfactuals: controllers against the log's own history
- `tables`: an audit in words and tables
- `page`: an audit as HTML
"""
