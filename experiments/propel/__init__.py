"""Runs PROPEL from a YAML file; the recipes are in `experiments/recipes/propel`.

- `config`: the fields of a study
- `commands`: carries out `halfway propel`; what `halfway validate` checks beyond the fields
- `study`: the parts of a study with one seed, and the locations of its files
- `stages`: the stages corpus, sweep, training and evaluation; each continues where it was stopped
- `export`: writes pools of problems for solver training
- `summary`: everything that a study has evaluated, and its tables
- `figures`: draws the figures
"""
