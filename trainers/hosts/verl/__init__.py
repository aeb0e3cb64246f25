"""verl 0.9 as a host, through configuration alone.

- `dataset`: a data set whose rows are chosen when they are fetched, with its state in verl's data.pt
- `buffer`: a replay buffer that records every finished group before verl evicts it
- `prefix_loop`: an agent loop that starts from a prefix and masks replayed tokens
- `steering`: the session of verl's driver process, shared by data set and replay buffer
- `config/halfway/session.yaml`: the settings, for `+halfway=session`
"""
