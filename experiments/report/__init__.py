"""From run directories to tables, figures and a page.

- `records`: what runs have written, as typed records
- `summary`: everything that a comparison says, computed once
- `arms`: one arm over its seeds
- `starts`: groups by where they began
- `shares`: shares and means over seeds or groups
- `prefix_metrics`: what controllers report about parents of one pass count
- `provenance`: command, versions and machine beside a result
- `page`: the HTML report
- `analysis`: equal conditions, contrasts, costs, targets, strata
- `statistics`: intervals, bootstrap, many contrasts at once
- `tables`: the tables
- `figures`: the pictures
"""
