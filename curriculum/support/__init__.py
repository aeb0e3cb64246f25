"""Small helpers that all packages use.

- `errors`: `UserError`: a user's mistake in one line; `require`
- `acceptance`: the user's consent to risky settings of a recipe
- `registry`: names that a YAML file may use, from here or from installed packages
- `extras`: optional packages, and values in one-line messages
- `blocks`: marked parts of a response
- `user_cache`: a folder in the user's cache
- `validation`: makes dataclasses from plain mappings; errors name the wrong field
- `components`: reads and writes registered components as `name` or `{name: options}`
- `yaml_bases`: reads YAML files and merges each with its `base`
- `end_with_parent`: ends a process with its parent
- `atomic`: files and folders that are complete or absent
- `parquet_hash`: Parquet files with a hash of their bytes
- `database`: DuckDB, limited to given files
"""
