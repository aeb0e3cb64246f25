"""PROPEL: training a task generator on a probe's prediction of the solver's pass rate.

- `domains`: tasks that a generator writes
- `probes`: heads that predict pass rates from a frozen model's hidden states
- `writing`: a generator: prompts in, judged texts out
- `solver`: pass rates of a fixed policy on generated problems; a language model as an oracle
- `corpus`: texts of the base generator with labels, as Parquet files
- `rewards`: rewards of generated tasks
- `rollouts`: generator training as an ordinary run
- `generator_scores`: real solver rollouts on fresh tasks; choice of a checkpoint
- `guessed_problems`: problems with predicted pass rates, for solver training
- `propel_options`: options of all these
"""
