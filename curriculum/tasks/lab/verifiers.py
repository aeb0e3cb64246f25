"""The lab's markers as verifiers. The ledger needs none, since its environment judges."""

from halfway.curriculum.problems import Problem
from halfway.curriculum.tasks.lab import operators, sums


def operator_sheets(problem: Problem, response: str) -> bool:
    """The sheet passes the marking of the lab's operator sheets.

    Raises:
        ValueError: if the prompt is not one of that task.
    """
    return operators.mark(problem.prompt, response, operators.table_of(problem.features))


def running_sums(problem: Problem, response: str) -> bool:
    """The sheet passes the marking of the lab's running sums.

    Raises:
        ValueError: if the prompt is not one of that task.
    """
    return sums.mark(problem.prompt, response)
