"""Files and answers as strangers may send them: a sound specimen of each kind, changed at random, read as by a user.

- `mutations`: changes bytes, values, names and tables, by a seed
- `kinds`: what each kind is, how its specimen is made and how it is read
- `files`, `models`, `services`: the kinds
- `forks`: tries each change in a fork of one process that has imported everything
"""
