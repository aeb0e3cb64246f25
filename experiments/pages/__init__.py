"""The pages whose tables are written from committed numbers: `halfway pages`.

- `run_curves`: the learning curves of single runs, from which tables are made again
- `verdict`: what each arm is worth by kind of data, price and budget
- `marks`: which tables belong on which page, and how they are written there
- `power`: what a planned contest would show, by simulation
- `random_effects`: one effect from several regimes
"""
