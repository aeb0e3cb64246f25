"""Makes the tables of a comparison, for the terminal, for Markdown and for the HTML page.

- `all_tables`: collects all tables, and writes them to files; the settings tried by the sweeps
- `arm_tables`: one row per arm, or per arm and kind of start
- `contrasts`: pairs of arms at equal cost
- `costs`: areas, and costs to reach a score
"""
