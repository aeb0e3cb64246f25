"""Turns the records in run directories into tables, figures and an HTML page.

- `records`: reads what runs have written, decision logs included, into typed records
- `text_tables`: a table as text, and the format of its numbers
- `provenance`: records the command, the versions and the machine beside a result
- `conclusions`: the findings of a comparison in a few sentences
- `problems`: some problems, arm beside arm: decisions and texts
- `report_page`: writes the HTML report
- `html`: renders HTML pages, for the audit too
- `analysis`: computes every number of a comparison
- `statistics`: intervals, the two-way bootstrap, and adjustment for several contrasts
- `tables`: writes the tables
- `figures`: draws the figures
"""
