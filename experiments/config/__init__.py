"""From YAML files to checked settings, with errors of one line. Needs no torch.

- `loading`: reads a file, whatever it describes; writes one; compares two
- `run`: what a file may say of a run
- `comparison`: what a file may say of a comparison
- `design`: what a comparison plans in advance: tuning, contrasts, targets, costs
- `rollouts`: the engine that `rollouts` names, with its options
- `model_files`: what a model's own files say of it
- `components`: registered components: `{name: options}` to dataclasses
- `chains`: the controllers of a recipe as a chain, for other trainers
- `names`: names of runs and arms, and seeds
- `yaml_files`: files over their bases, and overrides
- `paths`: paths that lead there from anywhere
- `validation`: plain mappings to dataclasses, naming the field that is wrong
"""
