"""verl as a host, through configuration alone: the V1 trainers of 0.9, and older trainers.

- `late_rows`: a data set whose rows are chosen when they are fetched, with its state in verl's data.pt
- `dataset`: that data set with the columns that V1 trainers need
- `batch_end`: that data set for older trainers, which hand every batch back to it
- `buffer`: a replay buffer that sees every finished group before any is evicted
- `prefix_loop`: an agent loop that starts from a prefix and masks replayed tokens
- `steering`: the session of verl's driver process, shared by data set and replay buffer
- `config/halfway/session.yaml`, `batch_end.yaml`: the settings, for `+halfway=session` and `+halfway=batch_end`
"""
