"""The decision log: one JSON record per group, in a format that any trainer can write and any tool can read.

Each line is an object with these fields; a field that does not apply is null, and no field is left out.

| field | type | meaning |
|---|---|---|
| step | int | training step, from 0 |
| round | int | round of rollouts within the step, from 0 |
| problem | str | stable problem id |
| parent | str | id of the problem the prefix was cut from; null without a prefix |
| origin | str | "fresh", "prefix", "generated", "hinted" or "stored" |
| prefix_length, prefix_unit | int, str | length of the replayed prefix in "tokens" or "steps"; 0, null without |
| prefix_tokens | int | tokens replayed a rollout |
| parent_passed, parent_size | int | k and N of the group the prefix was cut from |
| parent_success | bool | the prefix is from a success (a head start) or from a failure (a handicap) |
| decisions | [[str, str]] | (member, action) of every chain member that decided on the request, in order |
| k, n | int | successes and scored rollouts; null if the problem was skipped |
| tokens | int | tokens generated for the group in this step: replayed and stored tokens are not counted |
| policy_version | int | learner updates behind the weights that generated it, the oldest of several; null if none did |
| outcome | str | "trained", "degenerate", "surplus", "carried", "empty", "declined" or "skipped" |
| reason | str | why it was skipped: the member and what it said; else null |
| dropped | {str: int} | rollouts lost, by reason (for example a replay that diverged) |

These fields are there only where they apply:

| field | type | meaning |
|---|---|---|
| hint_share, hint_place | float, str | part of the reference solution given, and where: "prompt" or "response" |
| policy_versions | [int] | of a group that several weights generated: all of them, oldest first |
| weights | [float] | factor on the loss of each rollout, if a controller gave any |

Skipped problems are those refused before any rollout. A group "carried" out of a step appears once more in the
step that trains it. Nothing in the log depends on the clock, so equal runs write equal bytes.
"""

from collections.abc import Mapping
from typing import Any

from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Skip


def group_record(group: Group, step: int, round_index: int, outcome: str) -> Mapping[str, Any]:
    """The record of a group that was rolled out."""
    request, prefix = group.request, group.request.prefix
    return {
        "step": step,
        "round": round_index,
        "problem": request.problem.id,
        "parent": request.problem.id if prefix else None,
        "origin": str(request.origin),
        "prefix_length": prefix.length if prefix else 0,
        "prefix_unit": prefix.unit if prefix else None,
        "prefix_tokens": prefix.num_tokens if prefix else 0,
        "parent_passed": prefix.parent_passed if prefix else None,
        "parent_size": prefix.parent_size if prefix else None,
        "parent_success": prefix.parent_success if prefix else None,
        "decisions": [list(decision) for decision in request.decisions],
        "k": group.num_passed,
        "n": group.size,
        "tokens": 0 if request.stored else group.num_generated,
        "policy_version": group.policy_version if group.policy_versions else None,
        "outcome": outcome,
        "reason": None,
        "dropped": dict(group.dropped),
        **_where_it_applies(group),
    }


def _where_it_applies(group: Group) -> Mapping[str, Any]:
    """The fields that only some groups have."""
    hint, weights, versions = group.request.hint, group.weights, group.policy_versions
    found: dict[str, Any] = {"hint_share": hint.share, "hint_place": hint.place} if hint else {}
    found |= {"policy_versions": list(versions)} if len(versions) > 1 else {}
    return found | ({"weights": weights.weights_N.tolist()} if weights else {})


def skip_record(skip: Skip, step: int, round_index: int) -> Mapping[str, Any]:
    """The record of a problem that a member refused before its rollouts."""
    return {
        "step": step,
        "round": round_index,
        "problem": skip.problem_id,
        "parent": None,
        "origin": "fresh",
        "prefix_length": 0,
        "prefix_unit": None,
        "prefix_tokens": 0,
        "parent_passed": None,
        "parent_size": None,
        "parent_success": None,
        "decisions": [],
        "k": None,
        "n": None,
        "tokens": 0,
        "policy_version": None,
        "outcome": "skipped",
        "reason": f"{skip.member}: {skip.reason}",
        "dropped": {},
    }
