"""Small helpers that all packages use.

- `errors`: `UserError`: a user's mistake in one line; `require`
- `acceptance`: what a recipe must not do without the user's consent
- `registry`: names that a YAML file may use, from here or from installed packages
- `extras`: optional packages, and values on one line of a message
- `blocks`: marked parts of a response
- `validation`: makes dataclasses from plain mappings; errors name the wrong field
- `components`: registered components as a file names them, `name` or `{name: options}`
- `yaml_bases`: reads YAML files and merges them with the files that they name as `base`
- `end_with_parent`: ends a process with the one that started it
- `atomic`: files and folders that are complete or absent
- `seal`: Parquet files that carry a hash of their bytes
- `database`: DuckDB, which can read given files and nothing else
"""
