"""Keeps and judges the runs of reproductions.

- `paper_rows`: the published results of each paper as data, with the rules that judge them
- `run_measures`: the measures of the rules, functions over finished runs
- `judging`: judges a row by finished runs: interval, power, status
- `paper_pages`: the table of a paper's rows, and the picture of its measured multiples
- `reproduce`: `halfway reproduce`, which lists rows and runs them
- `keep`: adds finished runs to the committed runs
- `run_curves`: the learning curves of single runs, the data of tables
"""
