"""The loop with a scripted learner: training, stopping, evaluating, saving and resuming."""

import ast
import inspect
import json
import re
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from loop_harness import GROUPS, PROBLEMS, SIZE, ScriptedLearner, records, training
from messages import says
from msgspec import structs

from halfway.controllers import CONTROLLERS
from halfway.controllers.greso import Greso
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import (
    Group,
    PassRateController,
    Problem,
    ProblemSet,
    Request,
    Rollout,
    Stream,
    UserError,
    chain,
)
from halfway.curriculum.groups import ReplayCost
from halfway.curriculum.support import atomic
from halfway.curriculum.tasks.verifiers.helpers import Unjudged, count, take_counts
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop import progress
from halfway.trainers.loop import training as loop
from halfway.trainers.loop.held_out import Evaluation
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.in_flight import InlinePool

HOPELESS = ProblemSet([Problem(f"p{i}", "", "", features={"difficulty": 1000.0}) for i in range(24)])


@dataclass(frozen=True)
class Witness(PassRateController[None]):
    """Records its arguments."""

    seen: list[tuple[int, list[str]]]

    def observe(self, state: None, groups: Sequence[Group], step: int) -> None:
        self.seen.append((step, [group.request.problem.id for group in groups]))


@dataclass(frozen=True)
class Idle(PassRateController[None]):
    """Proposes nothing."""


def status(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return content


def evaluation() -> Evaluation:
    return Evaluation(0.5, 0.1, (1, 1), 2, 1, (0, 1), {"": (1, 0), "late": (1, 1)})


ONCE = FillOptions(groups=GROUPS)
REFILL = FillOptions(policy="refill", groups=GROUPS, max_rounds=10)


def test_once_spends_the_same_on_every_step_and_trains_what_is_left(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(rollouts=10 * GROUPS * SIZE))
    done = run.train()
    assert (done.step, done.rollouts, done.starved) == (10, 10 * GROUPS * SIZE, 0)
    assert run.learner.spent == [step / 10 for step in range(10)]
    steps = records(tmp_path, "steps")
    assert [step["groups"]["rolled_out"] for step in steps] == [GROUPS] * 10
    assert [step["rounds"] for step in steps] == [1] * 10
    decisions = records(tmp_path)
    assert {d["outcome"] for d in decisions} == {"trained", "zero_variance"}
    assert all((d["outcome"] == "zero_variance") == (d["k"] in (0, SIZE)) for d in decisions)
    trained = [d["problem"] for d in decisions if d["outcome"] == "trained"]
    assert trained == [group.request.problem.id for batch in run.learner.batches for group in batch]
    assert [step["trained_tokens"] for step in steps] == [10 * n for n in accumulate(map(len, run.learner.batches))]
    assert status(tmp_path)["state"] == "finished"


def test_refill_trains_full_batches_and_every_group_is_observed_once(tmp_path: Path) -> None:
    witness = Witness([])
    controller = chain(("uniform", Uniform()), ("witness", witness))
    run = training(tmp_path, REFILL, Budget(steps=10), controller=controller)
    done = run.train()
    assert [len(batch) for batch in run.learner.batches] == [GROUPS] * 10
    assert not any(group.zero_variance for batch in run.learner.batches for group in batch)
    assert max(step["rounds"] for step in records(tmp_path, "steps")) > 1 and done.starved == 0
    logged = [[d["problem"] for d in records(tmp_path) if d["step"] == step] for step in range(10)]
    assert witness.seen == list(enumerate(logged))
    assert sum(map(len, logged)) * SIZE == done.rollouts
    assert "surplus" in {d["outcome"] for d in records(tmp_path)}


def test_starving_is_bounded_and_counted(tmp_path: Path) -> None:
    fill = FillOptions(policy="refill", groups=GROUPS, max_rounds=3)
    run = training(tmp_path, fill, Budget(steps=4), problems=HOPELESS)
    done = run.train()
    assert (done.step, done.starved, done.rollouts) == (4, 4, 4 * 3 * GROUPS * SIZE)
    assert [(step["rounds"], step["starved"]) for step in records(tmp_path, "steps")] == [(3, True)] * 4
    assert run.learner.batches == [()] * 4 and run.learner.version == 0
    assert status(tmp_path) | {"state": "finished", "starved": 4} == status(tmp_path)


def test_a_chain_that_proposes_nothing_spends_a_budget_of_steps(tmp_path: Path) -> None:
    done = training(tmp_path, REFILL, Budget(steps=30), controller=chain(("idle", Idle()))).train()
    assert (done.step, done.starved, done.rollouts) == (30, 30, 0)
    assert [step["rounds"] for step in records(tmp_path, "steps")] == [1] * 30


@pytest.mark.parametrize("unit", ["rollouts", "tokens"])
def test_a_chain_that_proposes_nothing_is_stopped_where_the_budget_would_last_for_ever(
    tmp_path: Path, unit: str
) -> None:
    run = training(tmp_path, REFILL, Budget(**{unit: 100}), controller=chain(("idle", Idle())))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=says("controllers", "10 steps", f"budget.{unit}")):
        run.train()
    assert status(tmp_path)["state"] == "failed"


@dataclass
class SlowTools(SimulatedRollouts):
    """Every rollout's tools take half a second."""

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return [
            replace(group, rollouts=tuple(_after_half_a_second(rollout) for rollout in group.rollouts))
            for group in super().run(requests, stream)
        ]


def _after_half_a_second(rollout: Rollout) -> Rollout:
    return replace(rollout, turns=(replace(rollout.turns[0], tool_seconds=0.5), *rollout.turns[1:]))


def test_a_budget_of_tool_seconds_adds_up_what_tools_took(tmp_path: Path) -> None:
    done = training(tmp_path, ONCE, Budget(tool_seconds=2.5 * GROUPS * SIZE), rollouts=SlowTools()).train()
    assert (done.step, done.tool_seconds) == (5, 0.5 * done.rollouts)
    assert [step["tool_seconds"] for step in records(tmp_path, "steps")] == [
        0.5 * GROUPS * SIZE * i for i in range(1, 6)
    ]


@dataclass
class Judged(SimulatedRollouts):
    """A verifier that takes a second for every group."""

    judge_seconds: float = 0.0

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        self.judge_seconds += len(requests)
        return super().run(requests, stream)


class JudgingPool(InlinePool):
    @property
    def judge_seconds(self) -> float:
        return self.rollouts.judge_seconds


def test_judged_seconds_are_those_of_training(tmp_path: Path) -> None:
    rollouts = Judged()

    def evaluate() -> Evaluation:
        rollouts.judge_seconds += 1000
        return evaluation()

    run = training(tmp_path, ONCE, Budget(steps=4), rollouts=rollouts, evaluate=evaluate, evaluation_points=2)
    assert run.train().judge_seconds == 4 * GROUPS
    assert [step["judge_seconds"] for step in records(tmp_path, "steps")] == [GROUPS * i for i in range(1, 5)]
    assert [one["judge_seconds"] for one in records(tmp_path, "evaluations")] == [0, 2 * GROUPS, 4 * GROUPS]


def test_a_step_counts_what_no_verifier_could_judge(tmp_path: Path) -> None:
    class Hard(SimulatedRollouts):
        def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
            if self.policy_version == 1:
                for reason in ("time", "died", "time"):
                    count(Unjudged(reason))  # type: ignore[arg-type]
            return super().run(requests, stream)

    take_counts()
    training(tmp_path, ONCE, Budget(steps=3), rollouts=Hard()).train()
    assert [step.get("unjudged") for step in records(tmp_path, "steps")] == [None, {"died": 1, "time": 2}, None]


def test_unjudged_answers_of_evaluations_and_measurements_do_not_count_for_the_step(tmp_path: Path) -> None:
    def judged(reason: Any) -> Evaluation:
        count(Unjudged(reason))
        return evaluation()

    changes: dict[str, Any] = {"evaluate": lambda: judged("time"), "evaluation_points": 1}
    changes["oracle"] = lambda _: replace(judged("died"), passed_G=(0,) * len(PROBLEMS))
    count(Unjudged("raised"))  # before the run
    training(tmp_path, ONCE, Budget(steps=2), **changes).train()
    assert [step.get("unjudged") for step in records(tmp_path, "steps")] == [None, None]
    assert [one.get("unjudged") for one in records(tmp_path, "evaluations")] == [{"time": 1}] * 2


def test_the_judged_seconds_of_a_pool_are_its_own(tmp_path: Path) -> None:
    """With several processes, `rollouts` hears nothing of what the pool judges."""
    judge = Judged()
    run = training(tmp_path, ONCE, Budget(steps=2), pool=JudgingPool(judge), staleness=1)
    assert run.train().judge_seconds == judge.judge_seconds > 0


def test_rollouts_that_cannot_say_count_no_judged_seconds(tmp_path: Path) -> None:
    assert training(tmp_path, ONCE, Budget(steps=1)).train().judge_seconds == 0


@dataclass
class Replayed(SimulatedRollouts):
    """Every group was replayed in half a second, a quarter of it on the clock."""

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return [replace(group, replay_cost=ReplayCost(3, 0.5, 0.25)) for group in super().run(requests, stream)]


def test_steps_say_what_replays_took_beside_what_was_generated(tmp_path: Path) -> None:
    training(tmp_path / "plain", ONCE, Budget(steps=1)).train()
    assert "tools" not in records(tmp_path / "plain", "steps")[0]
    runs: dict[str, tuple[SimulatedRollouts, float]] = {"slow": (SlowTools(), 0.5), "replayed": (Replayed(), 0.0)}
    for name, (rollouts, tools) in runs.items():
        training(tmp_path / name, ONCE, Budget(steps=1), rollouts=rollouts).train()
        [step] = records(tmp_path / name, "steps")
        replays = GROUPS if name == "replayed" else 0
        assert step["tools"] == {
            "responses": GROUPS * SIZE,
            "seconds": tools * GROUPS * SIZE,
            "replays": replays,
            "replayed_responses": 3 * replays,
            "replayed_seconds": 0.5 * replays,
            "replayed_wall_seconds": 0.25 * replays,
        }
        assert not {"tools", "replay"} & step["timing"].keys()  # they are parts of what "rollout" took


def test_a_budget_of_tool_seconds_without_tools_ends_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("budget.tool_seconds", 5, "tool", "10 steps")):
        training(tmp_path, ONCE, Budget(tool_seconds=5)).train()


def test_carried_surplus_trains_in_the_next_step_and_is_counted_once(tmp_path: Path) -> None:
    fill = FillOptions(policy="refill", groups=GROUPS, request_groups=9, surplus="carry")
    witness = Witness([])
    controller = chain(("uniform", Uniform()), ("witness", witness))
    run = training(tmp_path, fill, Budget(steps=8), controller=controller)
    done = run.train()
    decisions = records(tmp_path)
    carried = [(d["step"], d["problem"]) for d in decisions if d["outcome"] == "carried"]
    assert len(carried) > 4
    again = {(d["step"], d["problem"]): d["outcome"] for d in decisions if d["policy_version"] < d["step"]}
    assert all(again[step + 1, problem] in ("trained", "carried") for step, problem in carried if step < 7)
    assert all(d.get("lag", 0) == d["step"] - d["policy_version"] for d in decisions)
    # What was carried in is trained before anything new.
    assert run.learner.batches[1][0].request.problem.id == carried[0][1]
    assert [len(batch) for batch in run.learner.batches] == [GROUPS] * 8
    observed = sum(len(problems) for _, problems in witness.seen)
    assert done.rollouts == observed * SIZE == (len(decisions) - len(again)) * SIZE


def test_seconds_count_neither_evaluation_nor_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])

    def taking(seconds: float, result: Any) -> Any:
        now[0] += seconds
        return result

    class Slow(SimulatedRollouts):
        def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
            return taking(2.0, super().run(requests, stream))  # type: ignore[no-any-return]

    class SlowLearner(ScriptedLearner):
        def update(self, groups: Sequence[Group], stream: Stream, spent: float = 0.0) -> dict[str, float]:
            return taking(1.0, super().update(groups, stream, spent))  # type: ignore[no-any-return]

        def save(self, folder: Path) -> None:
            taking(100.0, super().save(folder))

    run = training(
        tmp_path,
        ONCE,
        Budget(seconds=14.0),
        rollouts=Slow(),
        learner=SlowLearner(),
        evaluate=lambda: taking(100.0, evaluation()),
        evaluation_points=2,
    )
    done = run.train()
    assert (done.step, done.seconds) == (5, 15.0)  # the step that passes the limit is finished
    assert [record["step"] for record in records(tmp_path, "evaluations")] == [0, 3, 5]
    assert [step["seconds"] for step in records(tmp_path, "steps")] == [3.0, 6.0, 9.0, 12.0, 15.0]


@pytest.mark.parametrize(
    ("points", "steps", "expected"),
    [(4, 10, [0, 3, 5, 8, 10]), (1, 3, [0, 3]), (3, 2, [0, 1, 2]), (10, 10, list(range(11))), (0, 4, [])],
)
def test_evaluations_are_spread_evenly_over_the_budget(
    tmp_path: Path, points: int, steps: int, expected: list[int]
) -> None:
    budget = Budget(rollouts=steps * GROUPS * SIZE)
    training(tmp_path, ONCE, budget, evaluate=evaluation, evaluation_points=points).train()
    found = records(tmp_path, "evaluations")
    assert [record["step"] for record in found] == expected
    strata = {"": {"problems": 1, "passed": 0}, "late": {"problems": 1, "passed": 1}}
    assert all(record["passed"] == [0, 1] and record["strata"] == strata for record in found)


def test_without_held_out_problems_nothing_is_evaluated(tmp_path: Path) -> None:
    training(tmp_path, ONCE, Budget(steps=2), evaluate=None, evaluation_points=4).train()
    assert records(tmp_path, "evaluations") == []


def all_three() -> Any:
    return chain(("ps", PrefixSampling()), ("uniform", Uniform()), ("greso", Greso(frozen_epochs=0)))


def test_a_finished_run_continues_with_a_larger_budget_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    training(tmp_path / "at once", REFILL, Budget(steps=9), controller=all_three()).train()
    training(tmp_path / "in parts", REFILL, Budget(steps=5), controller=all_three()).train()
    training(tmp_path / "in parts", REFILL, Budget(steps=9), controller=all_three()).train()
    whole, parts = (records(tmp_path / name) for name in ("at once", "in parts"))
    assert whole == parts
    assert {"skipped", "trained"} <= {d["outcome"] for d in whole} and "prefix" in {d["origin"] for d in whole}


def test_a_changed_problem_set_is_refused(tmp_path: Path) -> None:
    training(tmp_path, ONCE, Budget(steps=2)).train()
    changed = [*PROBLEMS[:-1], Problem(PROBLEMS[23].id, PROBLEMS[23].prompt, "another answer")]
    for problems in (changed, PROBLEMS[:-1], list(reversed(PROBLEMS))):
        run = training(tmp_path, ONCE, Budget(steps=4), problems=ProblemSet(problems))
        with pytest.raises(
            UserError, match=says("problems", "training problems", "saved session", "a new run")
        ) as caught:
            run.train()
        assert "\n" not in str(caught.value)
    assert training(tmp_path, ONCE, Budget(steps=4)).train().step == 4


def test_a_checkpoint_of_other_members_is_refused(tmp_path: Path) -> None:
    training(tmp_path, ONCE, Budget(steps=2)).train()
    run = training(tmp_path, ONCE, Budget(steps=4), controller=all_three())
    with pytest.raises(UserError, match=says("checkpoint", "['uniform']", "['greso', 'ps', 'uniform']")):
        run.train()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes: the operating system refuses, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class LargeLearner(ScriptedLearner):
    """Its fourth checkpoint takes more room than there is."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "weights").write_bytes(bytes(10_000 if self.version < 7 else 900_000))


def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_can_continue(tmp_path: Path) -> None:
    training(tmp_path / "room", ONCE, Budget(steps=12), learner=LargeLearner()).train()
    run = training(tmp_path / "full", ONCE, Budget(steps=12), learner=LargeLearner())
    folder = tmp_path / "full" / "checkpoints"
    told = says("checkpoint", folder / "step-00000008", "File too large", "step 6", "make room", "resume")
    with largest_file(500_000), pytest.raises(UserError, match=told):
        run.train()
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000004", "step-00000006"]
    assert status(tmp_path / "full")["state"] == "failed"
    training(tmp_path / "full", ONCE, Budget(steps=12), learner=LargeLearner()).train()
    assert records(tmp_path / "full") == records(tmp_path / "room")


def test_a_disk_too_full_for_the_records_stops_the_run_with_one_line(tmp_path: Path) -> None:
    training(tmp_path / "room", ONCE, Budget(steps=12)).train()
    run = training(tmp_path / "full", ONCE, Budget(steps=12))
    with largest_file(8_000), pytest.raises(UserError) as caught:
        run.train()
    assert re.fullmatch(r"\S+/full/decisions\.jsonl: cannot be written \(File too large\); .*resume", str(caught.value))
    training(tmp_path / "full", ONCE, Budget(steps=12)).train()
    assert records(tmp_path / "full") == records(tmp_path / "room")


def test_a_full_disk_does_not_hide_what_stopped_the_run(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(steps=4))

    def fail(*_: Any) -> dict[str, float]:
        (tmp_path / ".status.json.tmp").mkdir()  # nothing can be written there any more
        raise UserError("learner: the loss is nan")

    run.learner.update = fail  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"^learner: the loss is nan$"):
        run.train()


def test_the_loop_is_one_screen_and_names_no_controller() -> None:
    lines = 0
    for function in (Training.train, Training.step):
        source = inspect.getsource(function).splitlines()
        lines += len([line for line in source if line.strip() and not line.strip().startswith(("#", '"""'))])
    assert lines <= 50
    names = {node.id for node in ast.walk(ast.parse(inspect.getsource(loop))) if isinstance(node, ast.Name)}
    kinds = {CONTROLLERS.get(name).__name__ for name in CONTROLLERS.names()}
    words = set(re.findall(r"\w+", inspect.getsource(loop).lower()))  # the loop's own word "rounds" among them
    assert not names & kinds and not words & (set(CONTROLLERS.names()) - {"rounds"})
    assert not re.search(r"^(from|import) controllers", inspect.getsource(loop), re.MULTILINE)


def test_a_plan_is_made_by_address_and_does_not_depend_on_what_ran_before(tmp_path: Path) -> None:
    # Two runs whose learners differ propose the same problems, since no member of the chain looks at outcomes.
    training(tmp_path / "a", ONCE, Budget(steps=3)).train()
    training(tmp_path / "b", ONCE, Budget(steps=3), rollouts=SimulatedRollouts(skill=3.0)).train()
    first, second = ([d["problem"] for d in records(tmp_path / name)] for name in "ab")
    assert first == second


def test_a_stored_group_that_had_lost_rollouts_is_not_rolled_out_after_a_resume(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(steps=2))
    run.train()
    [group] = run.learner.batches[0][:1]
    old = replace(group, request=structs.replace(group.request, ticket="2.0.0", stored=group), dropped={"lost": 1})
    run.waiting = {"2.0.0": old}
    run.save_if_due(progress.Stopwatch())
    again = training(tmp_path, ONCE, Budget(steps=4))
    again.resume()
    assert again.waiting["2.0.0"] is not None and again.waiting["2.0.0"].size == group.size


def test_the_state_of_a_checkpoint_may_grow_with_the_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100,000 problems the members write up to 123,266 values; four million hold no replay of three million."""
    training(tmp_path, FillOptions(groups=GROUPS), Budget(steps=2)).train()
    monkeypatch.setattr(atomic, "MOST_STATE_VALUES", 0)
    monkeypatch.setattr(atomic, "BYTES_PER_VALUE", 1 << 40)
    monkeypatch.setattr(atomic, "PER_PROBLEM", 0)
    with pytest.raises(UserError, match=says("loop.json", "holds more than")):
        training(tmp_path, FillOptions(groups=GROUPS), Budget(steps=4)).train()
    monkeypatch.setattr(atomic, "PER_PROBLEM", 1000)
    assert training(tmp_path, FillOptions(groups=GROUPS), Budget(steps=4)).train().step == 4


def test_the_state_of_a_checkpoint_may_grow_with_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "loop.json"
    state.write_text(json.dumps(list(range(500))))
    monkeypatch.setattr(atomic, "MOST_STATE_VALUES", 0)
    monkeypatch.setattr(atomic, "LARGEST_STATE", 0)
    (tmp_path / "arrays").write_bytes(b"x" * 15 * 500)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match=says("loop.json", "holds more than 468 values")):
        atomic.read_state(state)
    (tmp_path / "arrays").write_bytes(b"x" * 16 * 501)
    assert len(atomic.read_state(state)) == 500
