"""Overrides that make any run's recipe small enough for a test."""

TINY = [
    "problems.train=12",  # two of each of the six strata of operator sheets
    "rollouts.num_rollouts=4",
    "rollouts.max_response_tokens=48",
    "fill.groups=3",
    "fill.request_factor=1",
    "fill.request_groups=0",
    "fill.min_request=1",
    "fill.max_rounds=2",
    "evaluation.points=1",
    "evaluation.problems=2",
    "evaluation.samples=1",
    "budget.steps=2",
    "tracking.mlflow=false",
    "threads=1",
]
