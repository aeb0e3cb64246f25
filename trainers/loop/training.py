"""The training loop. It works on types and names no concrete controller."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Skip
from halfway.curriculum.session import Session, Ticket
from halfway.curriculum.states import from_plain, to_plain
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.helpers import take_counts
from halfway.trainers.contracts import Learner, Recorder, Rollouts, Scorer, judge_seconds
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.evaluation import Evaluation
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.options import Budget, FillOptions
from halfway.trainers.loop.progress import Progress, Stopwatch, evaluation_record
from halfway.trainers.loop.records import FinishedStep, RunLog

FORWARD_SHARE = 1 / 3
"""What a token costs that is scored and not trained: a pass forward, a third of one forward and back."""


@dataclass
class Training:
    """One run: everything the loop needs, as values, and the state it carries from step to step.

    Attributes:
        folder: the run directory; records and checkpoints go there.
        session: the controllers at work, with the problems.
        sync: hands the learner's weights to the rollout engine, with their version.
        evaluate: held-out evaluation, or None.
        evaluation_points: evaluations spread evenly over the budget, after the first evaluation at the start.
        oracle: measures the pass rate of every training problem with rollouts outside the budget; None = no member
            needs it.
        oracle_every: steps between two measurements.
        scorer: scores earlier rollouts under the present weights; None = no member needs it.
        finish: called once the budget is spent.
        carried: surplus groups of the last step, on which the next step trains (fill option "carry").
    """

    folder: Path
    session: Session
    rollouts: Rollouts
    learner: Learner
    sync: Callable[[], None]
    fill: FillOptions
    budget: Budget
    seed: int
    checkpoints: Checkpoints
    evaluate: Callable[[], Evaluation] | None = None
    evaluation_points: int = 0
    oracle: Callable[[Stream], Evaluation] | None = None
    oracle_every: int = 1
    scorer: Scorer | None = None
    finish: Callable[[], None] | None = None
    recorders: Sequence[Recorder] = ()
    progress: Progress = field(default_factory=Progress)
    carried: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        self.log = RunLog(self.folder)
        self.stream = Stream(self.seed)

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
        """One step: draw and roll out until the batch is full, observe, update, sync, log."""
        step = self.progress.step
        self.measure_if_due(clock)
        self.score_if_needed(clock)
        filling = Filling.begin(self.fill, self.carried)
        while (wanted := filling.wanted()) or (self.session.continues and filling.rounds < self.fill.max_rounds):
            with clock.time("propose"):
                tickets = self.session.next_batch(wanted)
            if not (wanted or tickets):
                break  # the groups in hand are not extended any further
            with clock.time("rollout"):
                before = judge_seconds(self.rollouts)
                groups = self.roll_out(tickets, self.stream.at(step, filling.rounds, "rollout"))
                clock.judged += judge_seconds(self.rollouts) - before
            filling = filling.add(self.session.weigh(groups))
        skips = self.session.skipped
        with clock.time("observe"):
            self.session.commit()
        with clock.time("update"):
            spent = self.progress.share(self.budget)
            learned = self.learner.update(filling.trained, self.stream.at(step, "update"), spent)
        with clock.time("sync"):
            self.sync()
        self.carried = filling.surplus if self.fill.surplus == "carry" else ()
        self.progress = self.progress.after(filling, learned, clock)
        self.record(filling, skips, learned, clock)

    def record(
        self, filling: Filling, skips: Sequence[tuple[int, Skip]], learned: Mapping[str, float], clock: Stopwatch
    ) -> None:
        """Log the step that `progress` has just counted, and tell all recorders."""
        finished = FinishedStep(
            step=self.progress.step - 1,
            policy_version=self.learner.policy_version,
            spent=self.progress.spent,
            outcomes=filling.outcomes,
            skips=skips,
            rounds=filling.rounds,
            timing=clock.seconds,
            controllers=self.session.metrics(),
            groups=filling.groups,
            learner=learned,
            starved=filling.starved,
            unjudged=take_counts(),
        )
        record = self.log.append(finished)
        for recorder in self.recorders:
            recorder.step(record)

    def measure_if_due(self, clock: Stopwatch) -> None:
        """Tell the chain the policy's current pass rates, if it asks for them."""
        if self.oracle is None or self.progress.step % self.oracle_every:
            return
        with clock.time("measure"):
            measured = self.oracle(self.stream.at(self.progress.step, "measure"))
        self.session.inform(np.array(measured.passed_G) / measured.samples)
        rollouts = measured.num_problems * measured.samples
        self.progress = replace(self.progress, measured=self.progress.measured + rollouts)

    def score_if_needed(self, clock: Stopwatch) -> None:
        """Let the chain learn how likely earlier rollouts have become, if it asks for that."""
        if self.scorer is None:
            return
        log_ratios, passed_over = self.scorer.log_ratios, 0

        def score(groups: Sequence[Group]) -> list[NDArray[np.float64]]:
            nonlocal passed_over
            passed_over += sum(group.num_tokens for group in groups)
            return log_ratios(groups)

        with clock.time("score"):
            self.session.rescore(score)
        trained = self.progress.trained_tokens + math.ceil(passed_over * FORWARD_SHARE)
        self.progress = replace(self.progress, trained_tokens=trained)

    def roll_out(self, tickets: Sequence[Ticket], stream: Stream) -> list[Group]:
        """The groups of the tickets: new groups, groups in hand with what extends them, and stored groups."""
        asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
        for group in self.rollouts.run(asked, stream):
            self.session.record_group(group.request.ticket, group)
        group_of = {group.request.ticket: group for group in self.session.in_hand()}
        for ticket in tickets:
            if ticket.request.stored is not None:
                group_of[ticket.id] = replace(ticket.request.stored, request=ticket.request, weights=None)
        return [group_of[ticket.request.extends or ticket.id] for ticket in tickets]

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
                "session": self.session.state_dict(),
                "carried": to_plain(self.carried),
                "log_sizes": self.log.sizes(),
            }
            self.checkpoints.write(self.progress.step, state, self.learner.save)

    def resume(self) -> None:
        """Continue from the newest checkpoint: records written after it are cut off, since they will come again.

        Raises:
            UserError: if the checkpoint is damaged, or belongs to another problem set, other controllers or another
                model.
        """
        folder = self.checkpoints.latest()
        if folder is None:
            self.log.truncate()
            return
        with self.checkpoints.reading(folder) as state:
            self.session.load_state_dict(state["session"])
            self.progress = from_plain(Progress, state["progress"])
            self.carried = from_plain(tuple[Group, ...], state["carried"])
            self.learner.load(folder)
        self.sync()
        self.log.truncate(state["log_sizes"])  # last, since a refusal above leaves everything as it is

    def close(self, state: str) -> None:
        """Write how the run ended, "finished" or "failed", to status.json, and tell all recorders."""
        status = {"state": state, **vars(self.progress)}
        endings = [partial(write_json, self.folder / "status.json", status)]
        endings += [partial(recorder.close, state) for recorder in self.recorders]
        for ending in endings:
            # After a failure, the error that stopped the run must stay visible, not a later one: on a full disk, for
            # example, the status cannot be written either.
            with nullcontext() if state == "finished" else suppress(UserError):
                ending()
