"""The command line and everything it needs, from YAML files to tables.

Beside the code are `recipes/` and the research record, `results/`, which nothing imports.

- `audit`: shows where the rollouts went, from any trainer's rollout log
- `api`: what `halfway` offers in Python
- `outcomes`: runs and audits as tables, figures and pages
- `cli`: the commands of `halfway`
- `output_flags`: how much a command shows, and as JSON if asked
- `scripts`: common parts of the scripts: help from the docstring, mistakes in one line
- `catalogue`: lists and explains everything that a YAML file can name, and makes the page about all controllers
- `papers`: the implemented papers, and their YAML
- `schema`: the JSON schema of the YAML files
- `config`: reads YAML files into checked settings
- `running`: builds and launches runs
- `tracking`: copies records to MLflow, Weights & Biases and Trackio
- `proving`: checks the parts of a run on the machines at hand
- `comparing`: trains many runs side by side: tuning, arms, seeds
- `report`: turns run directories into tables, figures and a page
- `reproduction`: the published results of four papers: their rows, runs, judgements and pages
- `survey`: measures a model on its problems before any training
- `propel`: runs PROPEL from a YAML file
- `starting_models`: makes the lab's starting policies
"""
