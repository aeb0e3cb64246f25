"""From YAML files to tables: the command line and everything it needs. Beside the code: recipes for the lab (`lab/`)
and for clusters (`cluster/`), and committed `results/`.

- `audit`: what any trainer's rollout log says about where its rollouts went
- `advice`: which controllers to try, given a log: a simulated learner fitted to it, and a ranking
- `cli`: the commands of `halfway`
- `catalogue`: everything that a YAML file can say, in words
- `controllers_page`: the page about all controllers
- `config`: from YAML to checked settings
- `running`: from settings to a run: build, launch, track
- `comparing`: many runs side by side: tuning, arms, seeds
- `report`: from run directories to tables, figures and a page
- `studies`: single questions, and the page of reproduced results
- `propel`: PROPEL from a YAML file
- `starting_models`: how the lab's policies were made
- `benchmarks`: what things cost
"""
