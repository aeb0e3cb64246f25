"""Finds, among the numbers that controllers report, those that belong to a bucket of parent pass counts."""

import re
from collections.abc import Iterable

from halfway.experiments.report.records import Run

Bucket = tuple[int, int]


def bucket_metrics(names: Iterable[str], word: str, buckets: Iterable[Bucket]) -> dict[Bucket, str]:
    """The metric of each bucket (k, N) whose quantity is named after `word` and the bucket.

    A quantity such as "ratio_2", "ratio/2_of_8" or "ratio_k2" belongs to every bucket with k = 2: the first number in
    it is the parent's pass count.
    """
    found: dict[int, str] = {}
    for name in names:
        quantity = name.split("/", 1)[-1]
        number = re.search(r"\d+", quantity)
        if word in quantity and number:
            found.setdefault(int(number.group()), name)
    return {bucket: found[bucket[0]] for bucket in buckets if bucket[0] in found}


def final_ratio(run: Run, bucket: Bucket) -> float | None:
    """The prefix ratio that the controller reports for a bucket after the last step, or None."""
    reported = run.steps[-1].controllers if run.steps else {}
    name = bucket_metrics(reported, "ratio", [bucket]).get(bucket)
    return reported[name] if name else None
