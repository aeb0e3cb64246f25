"""Runs PROPEL from a YAML file; the recipes are in `experiments/recipes/propel`.

- `config`: the fields of a study
- `commands`: carries out `halfway propel`; further checks of `halfway validate`
- `study`: the parts of a study with one seed, and the paths of its files
- `stages`: the stages corpus, sweep, training and evaluation; each can be resumed
- `export`: writes pools of problems for solver training
- `study_summary`: all evaluations of a study, and its tables
- `figures`: draws the figures
"""
