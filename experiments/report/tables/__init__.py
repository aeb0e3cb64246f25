"""Makes the tables of a comparison, for the terminal, for Markdown and for the HTML page.

- `all_tables`: collects all tables, and writes them to files
- `arms`: one row per arm
- `contrasts`: pairs of arms where they have spent equally
- `costs`: areas, and what it costs to reach a score
- `text`: a table as text, and the format of its numbers
"""
