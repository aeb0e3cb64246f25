"""What a group says about the weights behind it."""

from dataclasses import replace

import pytest
from controller_harness import POLICY_VERSION, child, group, problem_set

from halfway.curriculum.decision_log import group_record

(PROBLEM,) = problem_set(1)


def test_a_group_is_as_old_as_its_oldest_rollout() -> None:
    whole = group(PROBLEM, 4, size=3, rollouts=[*group(PROBLEM, 1, size=2).rollouts])
    first, second = whole.rollouts
    later = replace(second, turns=(replace(second.turns[0], policy_version=9),))
    mixed = replace(whole, rollouts=(later, first))
    assert mixed.policy_versions == (POLICY_VERSION, 9) and mixed.policy_version == POLICY_VERSION
    assert group_record(mixed, 0, 0, "trained")["policy_version"] == POLICY_VERSION
    assert replace(whole, rollouts=(later,)).policy_version == 9


def test_replayed_tokens_make_a_group_no_older() -> None:
    parent = child(PROBLEM, (2, 8), 4)
    old = parent.request.prefix
    assert old is not None
    replayed = replace(old.turns[0], policy_version=0)
    own = [replace(r, turns=(replayed, *(replace(t, policy_version=7) for t in r.turns))) for r in parent.rollouts]
    assert replace(parent, rollouts=tuple(own)).policy_versions == (7,)


def test_a_group_without_rollouts_has_no_policy_version() -> None:
    lost = replace(group(PROBLEM, 4), rollouts=(), dropped={"diverged": 8})
    assert lost.policy_versions == ()
    with pytest.raises(ValueError, match="'p0' has no tokens, so no policy version"):
        _ = lost.policy_version
    assert group_record(lost, 0, 0, "empty")["policy_version"] is None
