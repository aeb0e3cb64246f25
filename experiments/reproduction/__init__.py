"""Keeps what a contest measured, writes it on a page, and simulates what a planned contest would show.

- `rows`: the published results of each paper as data, with the rules that judge them
- `measures`: the measures that the rules use, functions over finished runs
- `judging`: what finished runs say about a row: interval, power, status
- `page`: the page of what is reproduced, and its pictures
- `command`: `halfway reproduce`, which lists rows and runs them
- `keep`: adds finished runs to those that are committed
- `run_curves`: the learning curves of single runs, from which tables are made again
- `marks`: the text between two marks on a page
- `power`: what a planned contest would show, by simulation
"""
