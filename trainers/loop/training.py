"""The training loop, independent of any controller."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import Group, Session, Skip, Stream, Ticket, UserError
from halfway.curriculum.session import start_group
from halfway.curriculum.states import Put
from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.tasks.verifiers.helpers import separate_counts, take_counts
from halfway.trainers.contracts import Learner, Recorder, Rollouts
from halfway.trainers.loop.checkpoint import MISLED, Checkpoints, LoopState
from halfway.trainers.loop.events import Events
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.held_out import Evaluation
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.progress import Progress, Stopwatch, evaluation_record
from halfway.trainers.loop.records import FinishedStep, RunLog
from halfway.trainers.loop.samples import Decode, Samples
from halfway.trainers.rollouts.file_store import FileStore
from halfway.trainers.rollouts.in_flight import InlinePool, Pool

IN_A_STEP = tuple(set(MISLED) - {OSError, MemoryError})
"""Errors that a step raises because of what it has read from a checkpoint."""


@dataclass
class Training:
    """One run: the parts and options of the loop, and its state between steps.

    Attributes:
        folder: the run directory; records and checkpoints go there.
        session: the chain of controllers and the problems.
        sync: sends the learner's weights, with their version, to the rollout engine.
        evaluate: held-out evaluation, or None.
        evaluation_points: number of evaluations spread evenly over the budget, after the one at the start.
        oracle: measures the pass rates of all training problems, outside the budget; None = no member needs them.
        oracle_every: steps between two measurements.
        finish: called when the budget is spent.
        decode: the text of tokens, for samples.jsonl; None = no texts are kept.
        carried: surplus groups of the last step that train in the next (fill option "carry").
        pool: samples rollouts in the background; None = rollouts are awaited as soon as they are drawn.
        store: keeps the arrays of these rollouts; None = their groups hold them.
        staleness: batches that may be outstanding beyond the next one, to be sampled while the learner updates. It
            bounds the lag of a group that trains, unless the group has waited.
        in_flight: true = weights change under rollouts; false = rollouts are awaited first.
        waiting: outstanding groups by ticket, in the order they were drawn; None = not yet sampled.
        stop: true = end after the current step.
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
    finish: Callable[[], None] | None = None
    decode: Decode | None = None
    recorders: Sequence[Recorder] = ()
    progress: Progress = field(default_factory=Progress)
    carried: tuple[Group, ...] = ()
    pool: Pool | None = None
    store: FileStore | None = None
    staleness: int = 0
    in_flight: bool = False
    waiting: dict[str, Group | None] = field(default_factory=dict)
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        ids = self.session.problems.ids() if self.decode else []
        samples = Samples(ids, self.decode, self.folder / "decisions.jsonl") if self.decode else None
        self.log = RunLog(self.folder, events=self.staleness > 0, chosen=samples)
        self.stream = Stream(self.seed)
        # The state for a checkpoint if the step is abandoned now; None while the weights change.
        self._between: Callable[[Put], LoopState] | None = None
        tokens = "tokens" in self.session.controller.needs
        self._events = Events(self.log.events, self.log.event_arrays, tokens) if self.staleness else None

    @cached_property
    def _pool(self) -> Pool:
        return InlinePool(self.rollouts, self.store) if self.pool is None else self.pool

    def train(self) -> Progress:
        """Train until the budget is spent, from the newest checkpoint if there is one."""
        state = "failed"
        try:
            resumed = self.resume()
            take_counts()  # those of another run in this process are not this one's
            write_json(self.folder / "status.json", {"state": "running"})
            clock = Stopwatch()
            if self.evaluate_if_due(clock) and not self.progress.unspent(self.budget):
                self.save_if_due(clock)  # the run was stopped before its last evaluation
            while self.progress.unspent(self.budget) and not self.stop():
                with self.checkpoints.trusting(resumed, IN_A_STEP):
                    self.step(clock)
                    clock = self.evaluate_and_save()
                resumed = None
            if self.finish is not None:
                self.finish()
            state = "stopped" if self.unfinished else "finished"
        except BaseException as error:
            state = self.leave_step(error)
            raise
        finally:
            self.close(state)
        return self.progress

    def step(self, clock: Stopwatch) -> None:
        """One step: draw and take groups until the batch is full, observe, update, sync, log.

        With staleness, outstanding groups are sampled during the update, and groups are recorded in the order they were
        drawn. Rollouts end before the weights change, so that one version samples a group; with `in_flight` they
        continue with the new weights.
        """
        step = self.progress.step
        self.measure_if_due(clock)
        judging = self.pool or self.rollouts
        judged = judging.judge_seconds
        filling = Filling.begin(self.fill, [self.add_lag(group) for group in self.carried])
        while (wanted := self.wanted(filling)) or (self.session.continues and filling.rounds < self.fill.max_rounds):
            self.draw(wanted, clock)
            due = list(self.waiting)[: wanted if self.staleness else None]
            if not (wanted or due):
                break  # the groups in hand are not extended any further
            with clock.time("rollout"):
                groups = self.take(due)
            filling = filling.add(self.session.weigh(groups))
        skips = self.session.skipped
        filling = filling.hold(self.commit(step, clock))
        with clock.time("update"):
            spent = self.progress.share(self.budget)
            learned = self.learner.update(filling.trained, self.stream.at(step, "update"), spent)
        self.hand_over(clock)
        clock.judged += judging.judge_seconds - judged
        self.carried = filling.surplus if self.fill.surplus == "carry" else ()
        self.progress = self.progress.after(filling, learned, clock)
        self.record(filling, skips, learned, clock)

    def commit(self, step: int, clock: Stopwatch) -> Sequence[Group]:
        """Let the chain observe the groups of the step, and return them. After this the step can only be finished."""
        with clock.time("observe"):
            observed = self.session.commit()
        self.tell("commit", step=step)
        self._between = None
        return observed

    def hand_over(self, clock: Stopwatch) -> None:
        """Send the new weights to the engine. Rollouts are awaited first, unless weights may change under them."""
        updated = self._pool.time()
        if self.staleness and not self.in_flight:
            with clock.time("drain"):
                self.await_groups(list(self.waiting))
        with clock.time("sync"):
            self.sync()
        self.tell("weights", version=self.learner.policy_version, updated=updated)

    def wanted(self, filling: Filling) -> int:
        """Groups of the next round; 0 = stop. With staleness at most the missing ones, so that there is no surplus."""
        wanted = filling.wanted()
        return min(wanted, filling.missing) if self.staleness else wanted

    def draw(self, wanted: int, clock: Stopwatch) -> None:
        """Draw tickets and submit them: those of a round, or as many as staleness allows to be outstanding."""
        numbers, batch = [wanted], self.fill.groups
        if self.staleness:
            room = wanted + self.staleness * batch - len(self.waiting)
            numbers = [min(batch, room - drawn) for drawn in range(0, room, batch)]
        for number in numbers:
            with clock.time("propose"):
                tickets = self.session.next_batch(number)
            if self._events:
                self._events.draw(self._pool.time(), tickets, self.learner.policy_version)
            with clock.time("rollout"):
                self.submit(tickets)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Submit the tickets of one draw for rollouts. Stored groups are already complete."""
        self.waiting |= {ticket.id: stored_group(ticket) for ticket in tickets}
        asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
        if asked:
            self._pool.submit(asked, self.stream.at(asked[0].step, asked[0].round, "rollout"))

    def await_groups(self, tickets: Sequence[str]) -> None:
        """Wait for the rollouts of these tickets."""
        away = [ticket for ticket in tickets if self.waiting[ticket] is None]
        self.waiting |= zip(away, self._pool.take(away), strict=True)

    def take(self, tickets: Sequence[str]) -> list[Group]:
        """Record the outcomes of these tickets. Returns their groups: new, extending one in hand, and stored ones.

        This sets the lag of each group: the number of updates by which the learner is ahead of the weights that sampled
        it. The lag of a stored group has grown since it was recorded.
        """
        self.await_groups(tickets)
        taken = [group for ticket in tickets if (group := self.waiting.pop(ticket)) is not None]
        for group in taken:
            if group.request.stored is None:
                self._record(self.add_lag(group))
        self.session.age(self.learner.policy_version)  # one that has waited is later than when it was recorded
        in_hand = {group.request.ticket: group for group in self.session.in_hand()}
        return [in_hand.get(group.request.extends or group.request.ticket, self.add_lag(group)) for group in taken]

    def _record(self, group: Group) -> None:
        """Record a group in the session."""
        ticket = group.request.ticket
        self.session.record_group(ticket, group)
        now = self._pool.time()
        times = self._pool.times.pop(ticket, (now, now))
        if self._events:
            self._events.done(now, group, times)

    def tell(self, event: str, **fields: Any) -> None:
        """Write to the event log, if there is one."""
        if self._events:
            self._events.append(event, self._pool.time(), **fields)

    def add_lag(self, group: Group) -> Group:
        """The group with its lag."""
        ahead = self.learner.policy_version - group.policy_version if group.policy_versions else 0
        return replace(group, lag=ahead) if ahead > 0 else group

    def record(
        self, filling: Filling, skips: Sequence[tuple[int, Skip]], learned: Mapping[str, float], clock: Stopwatch
    ) -> None:
        """Log the step that `progress` has just counted, and notify all recorders."""
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
            resampled=self._pool.resampled,
        )
        self._pool.resampled = 0
        record = self.log.append(finished)
        for recorder in self.recorders:
            recorder.step(record)

    def measure_if_due(self, clock: Stopwatch) -> None:
        """Measure the policy's current pass rates for the chain, if it needs them and they are due."""
        if self.oracle is None or self.progress.step % self.oracle_every:
            return
        with clock.time("measure"), separate_counts():  # what cannot be judged here is not the step's
            measured = self.oracle(self.stream.at(self.progress.step, "measure"))
        self.session.inform(np.array(measured.passed_G) / measured.samples)
        self.tell("measured", passed=measured.passed_G, samples=measured.samples)
        rollouts = measured.num_problems * measured.samples
        self.progress = replace(self.progress, measured=self.progress.measured + rollouts)

    @property
    def unfinished(self) -> bool:
        """True if the budget is not spent, or the evaluation at its end is still to be made."""
        return self.progress.unspent(self.budget) or self.evaluations_due > 0

    @property
    def evaluations_due(self) -> int:
        """Number of evenly spaced points of the budget, the start included, that were passed without an evaluation."""
        passed = math.floor(self.progress.share(self.budget) * self.evaluation_points + 1e-9)
        return 0 if self.evaluate is None or not self.evaluation_points else passed + 1 - self.progress.evaluations

    def evaluate_if_due(self, clock: Stopwatch) -> bool:
        """Evaluate at the start, and at every evenly spaced point of the budget. Returns whether it did."""
        self._between = self.state_now()
        due = self.evaluations_due
        if self.evaluate is None or due <= 0 or self.stop():
            return False
        with clock.time("evaluate"), separate_counts() as unjudged:
            evaluation = self.evaluate()
        record = evaluation_record(self.progress, evaluation, unjudged)
        self.progress = replace(self.progress, evaluations=self.progress.evaluations + due)
        self.log.evaluations.append(record)
        self._between = self.state_now()
        for recorder in self.recorders:
            recorder.evaluation(record)
        return True

    def evaluate_and_save(self) -> Stopwatch:
        """Evaluate and save, if they are due. Returns the clock, which the next step continues."""
        clock = Stopwatch()
        self.evaluate_if_due(clock)
        self.save_if_due(clock)
        return clock

    def save_if_due(self, clock: Stopwatch) -> None:
        """Write a checkpoint if one is due, if the budget is spent, or if the run is to end."""
        if not (self.checkpoints.due(self.progress.step) or self.progress.share(self.budget) >= 1 or self.stop()):
            return
        with clock.time("checkpoint"):
            self.checkpoints.write(self.progress.step, self.state_now(), self.learner.save)

    def leave_step(self, error: BaseException) -> str:
        """The final state of a run that an error ends: "failed", or "stopped" after SIGTERM or Ctrl-C.

        A stopped run writes a checkpoint of the state before the step, unless the update has begun.
        """
        if not (self.stop() or isinstance(error, KeyboardInterrupt)):
            return "failed"
        with suppress(UserError):
            if self._between and self.progress.step not in self.checkpoints.steps():
                self.checkpoints.write(self.progress.step, self._between, self.learner.save)
        return "stopped"

    def state_now(self) -> Callable[[Put], LoopState]:
        """The current state of the loop, as a function that puts it in checkpoint form with a given store for arrays.

        An outstanding group that is still being sampled is saved without rollouts.
        """
        session, waiting = self.session.snapshot(), dict(self.waiting)
        saved = partial(LoopState, self.progress, carried=self.carried, log_sizes=self.log.sizes())

        def state(put: Put) -> LoopState:
            outstanding = [group or start_group(session.ticket(ticket).request) for ticket, group in waiting.items()]
            return saved(session=session.state_dict(put), waiting=tuple(outstanding))

        return state

    def resume(self) -> Path | None:
        """Continue from the newest checkpoint; records written after it are removed, since they will be written again.

        Returns:
            The checkpoint's folder, if there is one.

        Raises:
            UserError: if the checkpoint is damaged, or belongs to another problem set, chain or model.
        """
        folder = self.checkpoints.latest()
        if folder is None:
            self.log.truncate()
            return None
        with self.checkpoints.reading(folder, self.session.problems.ids()) as (state, get):
            self.session.load_state_dict(state.session, get=get)
            self.progress, self.carried = state.progress, state.carried
            away = [group.request for group in state.waiting if group.request.stored is None and group.missing]
            self.waiting = {group.request.ticket: group for group in state.waiting}
            self.waiting |= {request.ticket: None for request in away}
            self.learner.load(folder)
        self.sync()
        for request in away:
            self._pool.submit([request], self.stream.at(request.step, request.round, "rollout", request.ticket))
        self.log.truncate(state.log_sizes)  # last, since a refusal above leaves everything as it is
        return folder

    def close(self, state: str) -> None:
        """Write the final state, "finished", "stopped" or "failed", to status.json, and notify all recorders."""
        status = {"state": state, **vars(self.progress)}
        endings: list[Callable[[], object]] = [closed.close for closed in (self._pool, self.store) if closed]
        endings += [partial(write_json, self.folder / "status.json", status)]  # a finished run is not begun again
        endings += [partial(recorder.close, state) for recorder in self.recorders]
        for ending in endings:
            # After a failure, the error that stopped the run must stay visible, not a later one: on a full disk, for
            # example, the status cannot be written either.
            with nullcontext() if state == "finished" else suppress(UserError):
                ending()


def stored_group(ticket: Ticket) -> Group | None:
    """The earlier group on which a ticket trains again; None if it requests new rollouts."""
    request = ticket.request
    return None if request.stored is None else replace(request.stored, request=request, weights=None)
