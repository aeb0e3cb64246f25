"""Where problems come from, and who judges the answers.

- `sources`: sources by name; the split into training and held-out problems
- `files`: problems from JSONL, JSON or Parquet files
- `variations`: variations by verifier: new problems like a given one
- `lab`: the small tasks on which whole runs take minutes
- `verifiers`: verifiers by name, which compare a response with the problem's answer
"""
