"""Histories and logs of an audit, written down group by group."""

import numpy as np

from halfway.experiments.audit.history import UNKNOWN, History, Log, Reading


def history(groups: list[tuple[int, str, int, int]], categories: dict[str, str] | None = None) -> History:
    """Of (step, problem, k, N), in the order of steps; three tokens per rollout."""
    names = tuple(dict.fromkeys(name for _, name, _, _ in groups))
    step, problem, k, n = (list(column) for column in zip(*groups, strict=True))
    passed_V, size_V = np.asarray(k, np.int32), np.asarray(n, np.int32)
    return History(
        problems=names,
        category_P=tuple((categories or {}).get(name, "") for name in names),
        problem_V=np.asarray([names.index(name) for name in problem], np.int32),
        step_V=np.asarray(step, np.int64),
        passed_V=passed_V,
        size_V=size_V,
        zero_variance_V=(passed_V == 0) | (passed_V == size_V),
        one_text_V=np.zeros(len(groups), np.bool_),
        tokens_V=3 * size_V.astype(np.int64),
        fresh_V=np.ones(len(groups), np.bool_),
        outcome_V=np.full(len(groups), UNKNOWN, np.int8),
        lost_V=np.zeros(len(groups), np.int32),
    )


def log(groups: list[tuple[int, str, int, int]], name: str = "log", **more: dict[str, str]) -> Log:
    return Log(name, history(groups, **more), Reading("table", "ours", measure="tokens"))
