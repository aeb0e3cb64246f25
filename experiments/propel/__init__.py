"""Runs PROPEL from a YAML file; the recipes are next to the code.

- `config`: the fields of a study
- `checks`: what `halfway validate` checks beyond the fields
- `commands`: carries out `halfway propel`
- `study`: the parts of a study with one seed, and the locations of its files
- `stages`: the stages corpus, sweep, training and evaluation; each continues where it was stopped
- `export`: writes pools of problems for solver training
- `summary`: the tables of a study
- `probe_tables`: the quality of a study's probes, and their cost
- `training_curves`: figures from the first and last steps of training
- `figures`: draws the figures
- `pool_over_time`: how a pool of generated problems wears over a training run
- `recording`: writes a finished seed into one small file, for the notebook
"""
