"""Reads YAML files into checked settings, with one-line errors. Needs no torch.

- `loading`: reads and writes files of every kind, and compares two
- `run`: the fields of a run; checks of names and seeds, which all kinds of files have
- `comparison`: the fields of a comparison
- `design`: what a comparison plans in advance: arms, tuning, contrasts, targets, costs
- `yaml_files`: YAML files, overrides and interpolations as plain mappings; bases are merged in
  `halfway.curriculum.support.yaml_bases`
- `starter`: a short recipe to begin with
- `line_numbers`: the lines in which fields are written
- `paths`: paths in a configuration that can be found from any folder, and what a model's own files say about it
"""
