"""The training loop. It knows types, and names no method."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from halfway.curriculum.controller import PassRateController, propose_until_full
from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Plan, Skip
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.states import from_plain, restore_state, save_state, to_plain
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.sources import fingerprint
from halfway.trainers.contracts import Learner, Recorder, Rollouts
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.evaluation import Evaluation
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.options import Budget, FillOptions
from halfway.trainers.loop.progress import Progress, Stopwatch, decision_records, evaluation_record, step_record
from halfway.trainers.loop.records import RunLog


@dataclass
class Training:
    """One run: everything the loop needs, as values, and the state it carries from step to step.

    Attributes:
        folder: the run directory; records and checkpoints go there.
        sync: hands the learner's weights to the rollout engine, with their version.
        evaluate: held-out evaluation, or None.
        evaluation_points: evaluations spread evenly over the budget, after the one at the start.
        finish: called once the budget is spent.
        carried: surplus groups of the last step that the next one trains (fill option "carry").
    """

    folder: Path
    problems: ProblemSet
    controller: PassRateController[Any]
    rollouts: Rollouts
    learner: Learner
    sync: Callable[[], None]
    fill: FillOptions
    num_rollouts: int
    budget: Budget
    seed: int
    checkpoints: Checkpoints
    evaluate: Callable[[], Evaluation] | None = None
    evaluation_points: int = 0
    finish: Callable[[], None] | None = None
    recorders: Sequence[Recorder] = ()
    progress: Progress = field(default_factory=Progress)
    state: Any = None
    carried: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        self.log = RunLog(self.folder)
        self.stream = Stream(self.seed)
        self.fingerprint = fingerprint([*self.problems, *self.problems.generated])
        self.state = self.controller.init(self.problems)

    def train(self) -> Progress:
        """Train until the budget is spent, from the newest checkpoint if there is one."""
        state = "failed"
        try:
            self.resume()
            write_json(self.folder / "status.json", {"state": "running"})
            clock = Stopwatch()
            self.evaluate_if_due(clock)
            while self.progress.unspent(self.budget):
                self.step(clock)
                clock = Stopwatch()
                self.evaluate_if_due(clock)
                self.save_if_due(clock)
            if self.finish is not None:
                self.finish()
            state = "finished"
        finally:
            self.close(state)
        return self.progress

    def step(self, clock: Stopwatch) -> None:
        """One step: propose and roll out until the batch is full, observe, update, sync, log."""
        step = self.progress.step
        filling = Filling.begin(self.fill, self.carried)
        skips: list[tuple[int, Skip]] = []
        while wanted := filling.wanted():
            stream = self.stream.at(step, filling.rounds)
            with clock.time("propose"):
                plan = Plan(step, wanted, self.num_rollouts)
                plan, self.state = propose_until_full(self.controller, plan, self.state, stream.at("propose"))
                skips += [(filling.rounds, skip) for skip in plan.skipped]
            with clock.time("rollout"):
                groups = self.rollouts.run(plan.requests, stream.at("rollout"))
            filling = filling.add(groups)
        with clock.time("observe"):
            self.state = self.controller.observe(self.state, filling.groups, step)
        with clock.time("update"):
            learned = self.learner.update(filling.trained, self.stream.at(step, "update"))
        with clock.time("sync"):
            self.sync()
        self.carried = filling.surplus if self.fill.surplus == "carry" else ()
        self.progress = self.progress.after(filling, learned, clock)
        self.log.decisions.append(*decision_records(filling, skips, step))
        metrics = self.controller.metrics(self.state)
        record = step_record(self.progress, self.learner.policy_version, filling, len(skips), learned, metrics, clock)
        self.log.steps.append(record)
        for recorder in self.recorders:
            recorder.step(record)

    def evaluate_if_due(self, clock: Stopwatch) -> None:
        """Evaluate at the start, and whenever the next of the evenly spaced points of the budget is passed."""
        passed = math.floor(self.progress.share(self.budget) * self.evaluation_points + 1e-9)
        if self.evaluate is None or self.evaluation_points == 0 or passed < self.progress.evaluations:
            return
        with clock.time("evaluate"):
            record = evaluation_record(self.progress, self.evaluate())
        self.progress = replace(self.progress, evaluations=passed + 1)
        self.log.evaluations.append(record)
        for recorder in self.recorders:
            recorder.evaluation(record)

    def save_if_due(self, clock: Stopwatch) -> None:
        """Write a checkpoint if one is due, or if the budget is spent."""
        if not self.checkpoints.due(self.progress.step) and self.progress.share(self.budget) < 1:
            return
        with clock.time("checkpoint"):
            state = {
                "progress": to_plain(self.progress),
                "problems": self.fingerprint,
                "controller": save_state(self.state),
                "carried": to_plain(self.carried),
                "log_sizes": self.log.sizes(),
            }
            self.checkpoints.write(self.progress.step, state, self.learner.save)

    def resume(self) -> None:
        """Continue from the newest checkpoint: records written after it are cut off, since they will come again.

        Raises:
            UserError: if the checkpoint is of another problem set, other controllers or another model.
        """
        found = self.checkpoints.read_latest()
        if found is None:
            self.log.truncate()
            return
        folder, state = found
        if state["problems"] != self.fingerprint:
            raise UserError(
                f"problems: {len(self.problems)} training problems that are not those of {folder}; "
                "resume with the data and problem options that wrote it, or train under another name=..."
            )
        self.state = restore_state(self.state, state["controller"])
        self.progress = from_plain(Progress, state["progress"])
        self.carried = from_plain(tuple[Group, ...], state["carried"])
        self.learner.load(folder)
        self.sync()
        self.log.truncate(state["log_sizes"])  # last, since a refusal above leaves everything as it is

    def close(self, state: str) -> None:
        """Say how the run ended."""
        status = {"state": state, **vars(self.progress)}
        endings = [partial(write_json, self.folder / "status.json", status)]
        endings += [partial(recorder.close, state) for recorder in self.recorders]
        for ending in endings:
            # What stopped the run is the news; that a full disk, say, has no room for its status either is not.
            with nullcontext() if state == "finished" else suppress(UserError):
                ending()
