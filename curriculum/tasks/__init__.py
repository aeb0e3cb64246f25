"""Sources of problems, and verifiers of responses.

- `sources`: the contract of a source; the split into training and held-out problems
- `files`: problems from data files
- `hub`: problems of a data set on the Hugging Face hub, or in its local cache
- `data_files`: rows of JSON Lines, JSON, CSV or Parquet, packed or not, one file or many
- `layouts`: columns of widespread data sets
- `reference_checks`: checks a file's answers with their verifiers, and caches the results
- `reasoning_gym`: the families of reasoning-gym, source and verifier
- `tasksets`: tasks of a task set of the package verifiers
- `verifiers`: judge responses
- `lab`: the small tasks on which whole runs take minutes
"""
