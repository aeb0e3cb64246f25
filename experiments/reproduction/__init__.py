"""Keeps and judges the runs of reproductions, and writes their pages.

- `paper_rows`: the published results of each paper as data, with the rules that judge them
- `run_measures`: the measures of the rules, functions over finished runs
- `judging`: judges a row by finished runs: interval, power, status
- `paper_pages`: the pages of reproduced results, and their pictures
- `reproduce`: `halfway reproduce`, which lists rows and runs them
- `keep`: adds finished runs to the committed runs
- `run_curves`: the learning curves of single runs, the data of tables
"""
