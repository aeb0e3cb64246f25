"""PROPEL from a YAML file; the recipes are next to the code.

- `config`: the fields of a study
- `checks`: what `halfway validate` checks beyond the fields
- `commands`: `halfway propel`
- `study`: the parts of a study with one seed, and the places of its files
- `stages`: corpus, sweep, training, evaluation; each continues where it stopped
- `export`: pools of problems for solver training
- `summary`: the tables of a study
- `probe_tables`: the quality of a study's probes, and their cost
- `training_curves`: the first and last figures of training
- `figures`: the figures
- `recording`: a finished seed in one small file, for the notebook
"""
