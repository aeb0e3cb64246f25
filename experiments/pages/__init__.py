"""The pages whose tables are written from committed numbers: `halfway pages`.

- `contests`: measured contests, one JSON file each, and their tables
- `run_curves`: the learning curves of single runs, from which tables are made again
- `verdict`: what each arm is worth by kind of data, price and budget
- `pooled`: savings read off mean curves, and their table
- `reproduction`: published results beside our own
- `marks`: which tables belong on which page, and how they are written there
"""
