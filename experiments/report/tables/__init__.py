"""The tables of a comparison, in the terminal, as Markdown, HTML cells and JSON.

- `every`: all of them, and their files
- `arms`: one row per arm
- `contrasts`: arms against each other where they have spent equally
- `costs`: what it cost to reach a score
- `kinds`: by kind of problem
- `replays`: what replaying prefixes through an environment took
- `tuning`: what each arm was tuned to
- `text`: a table as text, and how numbers are written
"""
