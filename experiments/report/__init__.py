"""Turns the records in run directories into tables, figures and an HTML page.

- `records`: reads what runs have written, decision logs included, into typed records
- `summary`: computes every number of a comparison once
- `arms`: summarises one arm over its seeds
- `kinds`: groups by where they began, at a problem's start, at a generated problem or behind a prefix, and strata
- `tuning`: which settings were tried for each arm, and which was chosen
- `provenance`: records the command, the versions and the machine beside a result
- `verdict`: says in a few sentences what a comparison found
- `problems`: some problems, arm beside arm: decisions and texts
- `page`: writes the HTML report
- `html`: renders HTML pages, for the audit too
- `analysis`: compares arms at equal cost, and computes contrasts, costs to reach a target, and strata
- `statistics`: intervals, the two-way bootstrap, and adjustment for several contrasts
- `tables`: writes the tables
- `figures`: draws the figures
"""
