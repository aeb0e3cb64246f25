"""verl 0.9's V1 trainers as a host, by configuration alone.

- `dataset`: a data set whose rows are chosen when they are fetched; state in verl's data.pt
- `buffer`: a replay buffer that sees every finished group before any is evicted
- `prefix_loop`: an agent loop that starts from a prefix, replayed tokens masked
- `steering`: the session of verl's driver process, which both share
- `config/halfway/session.yaml`: the settings, for `+halfway=session`
"""
