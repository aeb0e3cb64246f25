"""verl as a host, by configuration alone: 0.9's V1 trainers, and those before.

- `late_rows`: a data set whose rows are chosen when they are fetched; state in verl's data.pt
- `dataset`: the same with the columns that V1 trainers need
- `batch_end`: the same for older trainers, which hand every batch back to the data set
- `buffer`: a replay buffer that sees every finished group before any is evicted
- `prefix_loop`: an agent loop that starts from a prefix, replayed tokens masked
- `steering`: the session of verl's driver process, which both share
- `config/halfway/session.yaml`, `batch_end.yaml`: the settings, for `+halfway=session` and `+halfway=batch_end`
"""
