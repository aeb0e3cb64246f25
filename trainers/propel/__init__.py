"""PROPEL: training a task generator on a probe's guess of the solver's pass rate.

- `domains`: tasks that a generator writes
- `probes`: heads that read a frozen model's hidden states and guess pass rates
- `writing`: a generator at work: prompts in, judged texts out
- `solver`: how often a fixed policy solves what was written; a language model as an oracle
- `corpus`: texts of the base generator with labels, as Parquet files
- `rewards`: what a generated task is worth
- `rollouts`: generator training as an ordinary run
- `evaluation`: real solver rollouts on fresh tasks; which checkpoint is judged
- `guessed_problems`: problems with a guessed pass rate, for solver training
- `propel_options`: settings of all these
"""
