"""The texts that a run keeps: which groups, which rollouts, how much of them, and the same after a kill."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import loop_harness
import pytest
from controller_harness import problem_set
from learner_harness import make_group, make_turn
from loop_harness import ScriptedLearner, kill, records, training
from msgspec import structs

from halfway.controllers.contrib.ngu import Ngu
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Hint, Rollout, chain
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.samples import LETTERS, PROBLEMS, Samples, kept, shorten


def decode(tokens: Any) -> str:
    return " ".join(map(str, tokens))


def test_visits_thin_out_and_the_last_kept_is_never_far_from_the_last() -> None:
    chosen = [visit for visit in range(1, 1000) if kept(visit)]
    assert chosen[:11] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    assert len(chosen) == 19
    assert max(later / earlier for earlier, later in pairwise(chosen[2:])) <= 1.5


def test_problems_are_the_same_in_whatever_order_they_come() -> None:
    names = [f"p{i}" for i in range(100)]
    there = Path("decisions.jsonl")
    assert Samples(names, decode, there).chosen == Samples(names[::-1], decode, there).chosen
    assert len(Samples(names, decode, there).chosen) == PROBLEMS


def test_a_group_keeps_two_of_each_kind_with_prefix_hint_and_observations_apart(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").touch()
    turns = (make_turn([1, 2, 3], replayed=2), replace(make_turn([4]), observation="tool: 5"))
    group = make_group([7, 8], [Rollout(turns, i == 4, truncated=i == 0) for i in range(5)])
    group = replace(group, request=structs.replace(group.request, hint=Hint("Add them", 0.5, "prompt")))
    [record] = Samples(["p"], decode, tmp_path / "decisions.jsonl").records([group], 3)
    assert (record["step"], record["visit"], record["k"], record["n"]) == (3, 1, 1, 5)
    assert (record["prompt"], record["hint"]) == ("7 8", "Add them")
    assert [one["passed"] for one in record["rollouts"]] == [True, False, False]
    assert record["rollouts"][1]["truncated"] and record["rollouts"][0]["turns"] == [
        {"replayed": "1 2", "text": "3", "observation": ""},
        {"replayed": "", "text": "4", "observation": "tool: 5"},
    ]


def test_a_text_is_bounded() -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(3 * LETTERS))
    short = shorten(text)
    assert short.startswith(text[: LETTERS // 2]) and short.endswith(text[-LETTERS // 2 :])
    assert f"[... {2 * LETTERS} letters ...]" in short and len(short) < LETTERS + 50
    assert shorten(text[:LETTERS]) == text[:LETTERS]


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("surplus", ["drop", "carry"])
def test_a_killed_run_keeps_the_same_texts(surplus: Any, tmp_path: Path) -> None:
    fill = FillOptions("refill", groups=3, request_factor=2, surplus=surplus)

    def run(name: str, killed_at: int = -1) -> None:
        class Learner(ScriptedLearner):
            def update(self, *args: Any) -> dict[str, float]:
                if self.version == killed_at:
                    raise KilledError
                return super().update(*args)

        values: dict[str, Any] = {"learner": Learner(), "rollouts": SimulatedRollouts(), "decode": decode}
        values["problems"] = problem_set(6)
        training(tmp_path / name, fill, Budget(steps=9), **values).train()

    run("whole")
    with pytest.raises(KilledError):
        run("killed", killed_at=5)
    run("killed")
    assert records(tmp_path / "whole", "samples") == records(tmp_path / "killed", "samples")
    for name, visits in visits_of(tmp_path / "whole").items():
        logged = sum(r["problem"] == name and r["n"] and r["outcome"] != "carried" for r in records(tmp_path / "whole"))
        carried = sum(r["problem"] == name and r["outcome"] == "carried" for r in records(tmp_path / "whole")[-8:])
        assert visits == [visit for visit in range(1, max(visits) + 1) if kept(visit)]
        assert max(visits) <= logged + carried < 2 * max(visits)


def test_a_killed_run_whose_groups_wait_keeps_the_same_texts(tmp_path: Path) -> None:
    def run(name: str, killed: bool = False) -> None:
        values: dict[str, Any] = {"rollouts": SimulatedRollouts(skill=-2.0), "decode": decode}
        values |= {"problems": problem_set(6), "controller": chain(("uniform", Uniform()), ("ngu", Ngu()))}
        going = training(tmp_path / name, FillOptions(groups=3), Budget(steps=16), **values)
        if killed:
            kill(going.learner, "update", 8)
        going.train()

    run("whole")
    with pytest.raises(loop_harness.KilledError):
        run("killed", killed=True)
    run("killed")
    assert any(record["outcome"] == "waiting" for record in records(tmp_path / "whole"))
    assert records(tmp_path / "whole", "samples") == records(tmp_path / "killed", "samples")


def visits_of(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in records(folder, "samples"):
        found.setdefault(record["problem"], []).append(record["visit"])
    return found
