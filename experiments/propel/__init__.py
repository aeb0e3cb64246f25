"""PROPEL from a YAML file; the recipes stand beside the code.

- `config`: what a file may say of a study
- `checks`: what `halfway validate` checks beside the fields
- `commands`: `halfway propel`
- `study`: the parts of a study with one seed, and where its files are
- `stages`: corpus, sweep, training, evaluation; each goes on where it stopped
- `export`: pools of problems for solver training
- `summary`: the tables of a study
- `probe_tables`: how good its probes are, and what they cost
- `training_curves`: what training began and ended with
- `figures`: the figures
- `recording`: a finished seed in one small file, for the notebook
"""
