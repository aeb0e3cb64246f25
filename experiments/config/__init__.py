"""Reads YAML files into checked settings, with one-line errors. Needs no torch.

- `loading`: reads and writes files of every kind, and compares two
- `run`: the fields of a run
- `comparison`: the fields of a comparison
- `design`: what a comparison plans in advance: tuning, contrasts, targets, costs
- `rollouts`: the engine named in `rollouts`, with its options
- `model_files`: what a model's own files say about it
- `components`: makes the dataclasses of registered components from `{name: options}`
- `chains`: the controllers of a recipe as a chain, for other trainers
- `names`: checks of seeds and of the names of runs and arms
- `yaml_files`: lays YAML files over their bases, and overrides on top
- `paths`: paths in a configuration that can be found from any folder
- `validation`: makes dataclasses from plain mappings; errors name the wrong field
"""
