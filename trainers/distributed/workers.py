"""Several processes that work on one run: the first is the leader, and the others do their share of its orders.

Only the leader plans, fills batches, keeps records and evaluates. It runs the ordinary loop, with a `WorkerGroup` in
place of rollouts and learner. The group spreads requests over the processes; the learner spreads the sequences of an
update. Tokens go only to the process that reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import distributed

from halfway.curriculum import Group, Request, Stream, UserError
from halfway.curriculum.groups import spread
from halfway.curriculum.support.atomic import reason
from halfway.curriculum.tasks.verifiers.helpers import add_counts, take_counts
from halfway.trainers.contracts import DividingLearner, Rollouts
from halfway.trainers.distributed.collectives import control_group, lost_processes

LEADER = 0
END = "end"


class Scatter(Protocol):
    """Returns this process's share of what the leader gives; all processes call it together."""

    def __call__(self, shares: list[Any] | None = None) -> Any: ...


class WorkerGroup:
    """Combines the parts of this process with those of the other processes.

    The leader uses it as `halfway.trainers.contracts.Rollouts` and as the learner; the other processes call `serve`.
    When a process dies, the others end with a UserError as soon as they need it.

    Attributes:
        judge_seconds: seconds that the environments of all processes took; only the leader knows them.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        learner: DividingLearner,
        sync: Callable[[], None],
        leader_rolls_out: bool = False,
        scatter: "Scatter | None" = None,
    ):
        """
        Args:
            rollouts, learner, sync: this process's parts; the learner works on all processes together.
            leader_rolls_out: whether the leader's rollouts take all requests.
            scatter: gives each process its share of an update; default: by gloo.
        """
        self._leader_rolls_out = leader_rolls_out
        self._rollouts, self._learner, self._sync = rollouts, learner, sync
        self.judge_seconds = 0.0
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        # A process may wait for an order for hours.
        self._group = control_group()
        self._scatter = scatter or self._scatter_by_gloo

    @property
    def policy_version(self) -> int:
        return self._learner.policy_version

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """Return one group per request, in order."""
        positions = spread(requests, 1 if self._leader_rolls_out else self.size)
        positions += [[] for _ in range(self.size - len(positions))]
        done = self._order("run", stream, shares=[[requests[i] for i in own] for own in positions])
        groups: dict[int, Group] = {}
        for own, (rolled_out, judged, unjudged) in zip(positions, done, strict=True):
            groups |= zip(own, rolled_out, strict=True)
            self.judge_seconds += judged
            add_counts(unjudged)
        return [groups[i] for i in sorted(groups)]

    def update(self, groups: Sequence[Group], stream: Stream, spent: float) -> Mapping[str, float]:
        shares = self._learner.shares(groups, stream)
        metrics: Mapping[str, float] = self._order("update", stream, spent, shares=shares)
        return metrics

    def with_values(self, groups: Sequence[Group]) -> list[Group]:
        values = self._order("values", shares=self._learner.value_shares(groups))
        return self._learner.with_values(groups, values)

    def sync(self) -> None:
        self._order("sync")

    def save(self, folder: Path) -> None:
        self._order("save", folder)

    def load(self, folder: Path) -> None:
        self._order("load", folder)

    def shut_down(self) -> None:
        """End the `serve` of all other processes."""
        self._order(END)

    def serve(self) -> None:
        """Carry out the leader's orders until it shuts the group down."""
        name = ""
        while name != END:
            with lost_processes():
                order: list[Any] = [None]
                distributed.broadcast_object_list(order, src=LEADER, group=self._group)
                name, arguments, shared = order[0]
                try:
                    self._do(name, (self._scatter(), *arguments) if shared else arguments)
                except OSError as error:  # such as a full disk; only the leader would report it in one line
                    raise UserError(f"{name}: {reason(error)} on process {self.rank}; resume the run") from error

    def _order(self, name: str, *arguments: Any, shares: list[Any] | None = None) -> Any:
        """Carry out an order on all processes.

        Args:
            shares: the first argument of each process, if these differ.
        """
        with lost_processes():
            order = (name, arguments, shares is not None)
            distributed.broadcast_object_list([order], src=LEADER, group=self._group)
            if shares is None:
                return self._do(name, arguments)
            self._scatter([None, *shares[1:]])  # the leader keeps its own
            return self._do(name, (shares[LEADER], *arguments))

    def _scatter_by_gloo(self, shares: list[Any] | None = None) -> Any:
        own: list[Any] = [None]
        distributed.scatter_object_list(own, shares, src=LEADER, group=self._group)
        return own[0]

    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Carry out this process's share of an order."""
        match name:
            case "run":
                return self._roll_out(*arguments)
            case "update":
                return self._learner.update_with(*arguments)
            case "values":
                return self._learner.values_with(*arguments)
            case "sync":
                return self._sync()
            case "save":
                return self._learner.save(*arguments)
            case "load":
                return self._learner.load(*arguments)
        assert name == END, name

    def _roll_out(self, requests: Sequence[Request], stream: Stream) -> list[Any] | None:
        """Roll out this process's requests.

        Returns:
            On the leader, for every process, its groups, the seconds of its judging, and how many responses no verifier
            could judge, by reason. None elsewhere.
        """
        before = self._rollouts.judge_seconds
        own = self._rollouts.run(requests, stream)
        gathered: list[Any] | None = [None] * self.size if self.rank == LEADER else None
        gathering = (own, self._rollouts.judge_seconds - before, take_counts())
        distributed.gather_object(gathering, gathered, dst=LEADER, group=self._group)
        return gathered
