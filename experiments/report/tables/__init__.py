"""Makes the tables of a comparison, for the terminal, for Markdown and for the HTML page.

- `all_tables`: collects all tables, and writes them to files
- `arm_tables`: one row per arm, or per arm and kind of start
- `contrasts`: pairs of arms where they have spent equally
- `costs`: areas, and what it costs to reach a score
- `sweep_table`: the settings that the sweeps tried
"""
