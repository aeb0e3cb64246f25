"""A chain that asks for measured pass rates gets them, outside of the budget."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_harness import GROUPS, PROBLEMS, SIZE, ScriptedLearner, records, training
from messages import says

from halfway.controllers import CONTROLLERS
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.contrib.bots import Bots, BotsBelief
from halfway.controllers.contrib.mopps import Mopps
from halfway.controllers.pros import Pros
from halfway.controllers.retire import LatestRate, Retire
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Session, Stream, UserError, chain
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.held_out import Evaluation, evaluate, summarize
from halfway.trainers.loop.loop_options import Budget, FillOptions

MEASURED = PassRateBelief(kind="measured")
SELECTION = chain(("pros", Pros(reuse=False, exploration=0.0, belief=MEASURED)))


@dataclass
class Script:
    """An oracle that knows which four problems pass half of the time, other ones at every measurement."""

    asked: int = 0

    def __call__(self, stream: Stream) -> Evaluation:
        passed_P = np.zeros(len(PROBLEMS), np.int64)
        passed_P[GROUPS * self.asked : GROUPS * (self.asked + 1)] = 2
        self.asked += 1
        return summarize(passed_P, 4)


def run(folder: Path, steps: int, **changes: Any) -> list[dict[str, Any]]:
    values: dict[str, Any] = {
        "controller": SELECTION,
        "provides": ALWAYS_PROVIDED | {"measured"},
        "oracle_every": 2,
    } | changes
    training(folder, FillOptions(groups=GROUPS), Budget(steps=steps), **values).train()
    return records(folder)


def test_a_law_chooses_by_what_was_measured_last(tmp_path: Path) -> None:
    decisions = run(tmp_path, 4, oracle=Script())
    chosen = [{record["problem"] for record in decisions if record["step"] == step} for step in range(4)]
    first, second = ({problem.id for problem in list(PROBLEMS)[at : at + GROUPS]} for at in (0, GROUPS))
    assert chosen == [first, first, second, second]


def test_measuring_is_counted_beside_the_budget(tmp_path: Path) -> None:
    run(tmp_path, 4, oracle=Script())
    steps = records(tmp_path, "steps")
    assert [step["rollouts"] for step in steps] == [GROUPS * SIZE * (i + 1) for i in range(4)]
    assert [step["measured"] for step in steps] == [96, 96, 192, 192]


def test_a_resumed_run_measures_the_same(tmp_path: Path) -> None:
    def of(rollouts: SimulatedRollouts) -> dict[str, Any]:
        return {"rollouts": rollouts, "oracle": partial(evaluate, rollouts, list(PROBLEMS), 4), "oracle_every": 3}

    whole = run(tmp_path / "whole", 6, **of(SimulatedRollouts()))
    run(tmp_path / "parts", 4, **of(SimulatedRollouts()))
    assert run(tmp_path / "parts", 6, **of(SimulatedRollouts()), learner=ScriptedLearner()) == whole


@pytest.mark.parametrize(
    "member",
    [
        SELECTION.members["pros"],
        Mopps(belief=MEASURED),
        Retire(belief=LatestRate(kind="measured")),
    ],
    ids=lambda member: type(member).__name__,
)
def test_every_controller_with_a_belief_takes_measured_rates_and_keeps_them(member: Any) -> None:
    rates_P = np.linspace(0, 1, len(PROBLEMS))
    controller = chain(("uniform", Uniform()), ("it", member)) if not member.claims else chain(("it", member))
    session = Session(PROBLEMS, controller, SIZE, provides=ALWAYS_PROVIDED | {"measured"})
    session.inform(rates_P)
    for ticket in session.next_batch(GROUPS):
        session.record_counts(ticket.id, passed=0, size=SIZE)
    session.commit()
    session.next_batch(GROUPS)
    assert np.array_equal(session.state["it"].forest.rate_M, rates_P)


def test_measured_rates_count_for_the_threshold_of_retirement() -> None:
    session = Session(
        PROBLEMS,
        chain(("uniform", Uniform()), ("retire", Retire(belief=LatestRate(kind="measured")))),
        SIZE,
        provides=ALWAYS_PROVIDED | {"measured"},
    )
    easy = np.arange(len(PROBLEMS)) % 2 == 0
    session.inform(np.where(easy, 1.0, 0.4))
    drawn = {ticket.request.problem.id for ticket in session.next_batch(len(PROBLEMS) // 2)}
    assert drawn == {problem.id for problem, solved in zip(PROBLEMS, easy, strict=True) if not solved}


def test_bots_takes_what_was_measured_nearest_to_its_target() -> None:
    bots = Bots(rho=0.0, belief=BotsBelief(kind="measured"))
    session = Session(PROBLEMS, chain(("bots", bots)), SIZE, provides=ALWAYS_PROVIDED | {"measured"})
    session.inform(np.where(np.arange(len(PROBLEMS)) < 2, 0.5, 0.9))
    assert {ticket.request.problem.id for ticket in session.next_batch(2)} == {PROBLEMS[0].id, PROBLEMS[1].id}
    with pytest.raises(UserError, match=says("implicit evidence")):
        Bots(belief=BotsBelief(kind="measured"))


def test_a_trainer_that_does_not_measure_refuses_the_chain() -> None:
    with pytest.raises(UserError, match=says("pros", "measured pass rate")):
        Session(PROBLEMS, SELECTION, SIZE, host="TRL")


def test_controllers_without_an_oracle_ignore_what_is_measured() -> None:
    for name in ("uniform", "greso", "retire", "mopps"):
        controller = CONTROLLERS.get(name)()
        state = controller.init(PROBLEMS)
        after = controller.inform(state, np.ones(len(PROBLEMS)))
        assert not hasattr(state, "forest") or after.forest is state.forest
