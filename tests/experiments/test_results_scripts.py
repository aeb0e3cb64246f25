"""Scripts of result pages that count what logs hold."""

import json
from pathlib import Path

from learner_harness import make_group, make_turn

from halfway.curriculum import Rollout
from halfway.curriculum.decision_log import group_record, skip_records
from halfway.curriculum.plan import Skip
from halfway.experiments.results.does_the_audit_count_right.replay_against_run import skipped_V


def test_every_skipped_problem_is_a_visit(tmp_path: Path) -> None:
    skips = [(0, Skip(name, "greso", "easy")) for name in ("a", "b", "c")]
    group = make_group([1], [Rollout((make_turn([2]),), passed) for passed in (True, False)])
    log = [*skip_records(skips, 0), *(group_record(group, 0, 0, outcome) for outcome in ("carried", "trained"))]
    path = tmp_path / "decisions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in log))
    assert skipped_V(path).tolist() == [True, True, True, False]
