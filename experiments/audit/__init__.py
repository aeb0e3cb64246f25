"""What a run's rollout log says about where its rollouts went. Nothing here loads torch.

- `auditing`: an audit, whole; its limits; its JSON
- `history`: the groups of a log, whoever wrote it
- `reading`: from paths to logs
- `files`: files of others: found, read in pieces, never run
- `strangers`: what a file is that is no log
- `parquet`: tables in Parquet
- `builder`: from rollouts to groups
- `formats`: readers of rollout logs
- `figures`: the numbers: silence, memory, spending, fates of problems
- `suspects`: problems whose rewards look wrong
- `replay`: counterfactuals: controllers against the log's own history
- `tables`: an audit in words and tables
- `page`: an audit as HTML
"""
