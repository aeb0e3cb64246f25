"""prime-rl as a host: a task sampler that replaces prime-rl's own.

    plain = TrainSource.__init__

    def hosted(self, train_envs):
        plain(self, train_envs)
        [env] = self.envs
        batches = Batches(groups=64, group_size=16, folder="runs/halfway")
        self.samplers[env.name] = SessionSampler(chain, list(env.tasks), batches)

    TrainSource.__init__ = hosted

This module does not import prime-rl. prime-rl's source asks the sampler for one task at a time, and reports a group to
it once its episodes have finished. The orchestrator's checkpoint holds the sampler's state.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfway.curriculum import PassRateController, Problem, ProblemSet, Rollout, Ticket, UserError, require
from halfway.trainers.hosts.fetching import Fetching
from halfway.trainers.hosts.hosting import Host, Hosting, open_state, seal_state
from halfway.trainers.hosts.outcomes import Judge
from halfway.trainers.hosts.rows import Rows, as_text


@dataclass(frozen=True)
class Batches:
    """The sizes of a run's batches and groups, and other settings of the run.

    Attributes:
        groups: groups per batch, drawn at once; the chain observes whenever this many have finished.
        group_size: rollouts per group; must equal the environment's `group_size`.
        folder: folder for the records.
        threshold: lowest reward that counts as a success; None = rewards are 0 or 1.
        patience: batches after which an unfinished group counts as lost, since prime-rl does not report groups that it
            drops as stale. Give more batches than prime-rl takes to drop one.
    """

    groups: int
    group_size: int
    folder: str
    seed: int = 0
    threshold: float | None = None
    patience: int = 16


class SessionSampler:
    """Yields the tasks of the session's tickets, and records every group that prime-rl reports."""

    def __init__(self, controller: PassRateController[Any], tasks: Any, batches: Batches):
        """
        Args:
            tasks: the tasks of one training environment, each with a unique key.

        Raises:
            UserError: if the tasks are not a finite sequence, or a controller needs more than rewards.
        """
        require(isinstance(tasks, Sequence), "tasks", type(tasks).__name__, "set num_tasks; a chain has a finite set")
        self.tasks = {str(task.key): task for task in tasks}
        problems = ProblemSet([Problem(str(t.key), as_text(getattr(t.data, "prompt", None)), "") for t in tasks])
        rows, host, folder = Rows(problems, None, ()), Host("prime-rl"), Path(batches.folder)
        hosting = Hosting(controller, rows, batches.group_size, folder, host, batches.seed)
        self.batches, self.judge = batches, Judge("reward", batches.threshold)
        self.fetching = Fetching(hosting, batches.groups)
        self._ticket_of: dict[str, Ticket] = {}  # by task; no task is in flight twice
        self._observed = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        ticket = self.fetching.next_ticket()
        name = ticket.request.problem.id
        self._ticket_of[name] = ticket
        return self.tasks[name]

    def observe(self, group: Sequence[Any]) -> None:
        """Record the episodes of a task. The ticket's other rollouts count as cancelled."""
        hosting = self.fetching.hosting
        ticket = self._ticket_of.pop(str(group[0].task.key), None)
        if ticket is None or not hosting.session.expects(ticket.id):
            return
        for episode in group:
            traces = [trace for trace in episode.traces if trace.agent.trainable and not trace.has_error]
            if len(traces) > 1:
                raise UserError(
                    f"train.env: an episode has {len(traces)} trainable traces; use an environment with a single agent"
                )
            reward = float(traces[0].reward) if traces else None
            good = bool(self.judge.success(reward))  # an episode with an error counts as failed
            hosting.record(ticket.id, Rollout((), good, truncated=reward is None, reward=reward))
        self.fetching.abandon(ticket.id, "cancelled")
        self._observed += 1
        if self._observed == self.batches.groups:
            self._commit()

    def metrics(self) -> dict[str, float]:
        return self.fetching.hosting.metrics()

    def state_dict(self) -> dict[str, Any]:
        return seal_state({"hosting": self.fetching.hosting.state_dict(), "observed": self._observed})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. Tickets that were in flight are lost, and offered again."""
        with open_state(state_dict, "prime-rl's checkpoint") as state:
            self.fetching.hosting.load_state_dict(state["hosting"], reissue=True)
            self.fetching.drawn, self.fetching.handed, self.fetching.begun = [], set(), True
            self._observed = int(state["observed"])
            self._ticket_of.clear()

    def _commit(self) -> None:
        session = self.fetching.hosting.session
        for name, ticket in list(self._ticket_of.items()):
            if session.step - ticket.request.step >= self.batches.patience:
                self.fetching.abandon(ticket.id, "stale")
                del self._ticket_of[name]
        self.fetching.commit(session.step)
        self._observed = 0
