"""From YAML files to checked settings, with one-line errors. Needs no torch.

- `loading`: reads and writes files of every kind, and compares two
- `run`: the fields of a run
- `comparison`: the fields of a comparison
- `design`: what a comparison plans in advance: tuning, contrasts, targets, costs
- `rollouts`: the engine named in `rollouts`, with its options
- `model_files`: what a model's own files say about it
- `components`: from `{name: options}` to dataclasses of registered components
- `chains`: the controllers of a recipe as a chain, for other trainers
- `names`: checks of seeds and of the names of runs and arms
- `yaml_files`: files with their bases underneath and overrides on top
- `paths`: paths in a configuration that can be found from any folder
- `validation`: from plain mappings to dataclasses; errors name the wrong field
"""
