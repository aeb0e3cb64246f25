"""Keeps what a contest measured, writes it on a page, and simulates what a planned contest would show.

- `run_curves`: the learning curves of single runs, from which tables are made again
- `marks`: the text between two marks on a page
- `power`: what a planned contest would show, by simulation
"""
