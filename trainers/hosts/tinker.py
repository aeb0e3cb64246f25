"""tinker-cookbook 0.6 as a host: a data set of environment groups that report their rewards to the session.

    batches = Batches(groups=32, group_size=8, number=500, folder="runs/halfway")
    dataset = SessionDataset(chain, rows, builder_of, batches)

`builder_of(row)` makes the `EnvGroupBuilder` of a row, with `group_size` environments; return the data set from your
own `RLDatasetBuilder`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset

from halfway.curriculum import PassRateController, Rollout, UserError
from halfway.trainers.hosts.hosting import Host, Hosting
from halfway.trainers.hosts.outcomes import Judge
from halfway.trainers.hosts.rows import rows_of

DatasetBase: Any = RLDataset
BuilderBase: Any = EnvGroupBuilder
BuilderOf = Callable[[dict[str, Any]], Any]
KEPT = 200
"""Number of states kept on disk, one per batch: the trainer does not report which batches have a checkpoint."""


@dataclass(frozen=True)
class Batches:
    """The sizes of a run's batches and groups, and other settings of the run.

    Attributes:
        groups: number of groups per batch.
        group_size: rollouts per group.
        number: number of batches, at least the run's number of steps: after the last batch the trainer starts over with
            the first.
        folder: folder for records and states.
        threshold: lowest total reward that counts as a success; None = total rewards are 0 or 1.
    """

    groups: int
    group_size: int
    number: int
    folder: str
    seed: int = 0
    threshold: float | None = None


class SessionDataset(DatasetBase):  # type: ignore[misc]
    """Draws a batch when the trainer asks for it, after the chain has observed the last one.

    A resumed run asks for its checkpoint's batch; that batch's state is read from `folder`.
    """

    def __init__(self, controller: PassRateController[Any], problems: Any, builder_of: BuilderOf, batches: Batches):
        """
        Args:
            problems: the rows, in any form that `halfway.trl` accepts.

        Raises:
            UserError: if a controller needs more than rewards.
        """
        self.batches, self.builder_of, self.folder = batches, builder_of, Path(batches.folder)
        rows = rows_of(problems, controller)
        host = Host(f"tinker-cookbook {version('tinker-cookbook')}")
        self.hosting = Hosting(controller, rows, batches.group_size, self.folder, host, batches.seed)
        self.judge = Judge("total reward", batches.threshold)
        self._next = 0

    def __len__(self) -> int:
        return self.batches.number

    def get_batch(self, index: int) -> Sequence[Any]:
        """Make the builders of batch `index`, one per group.

        Batches must come in order. For any other index, the state saved before that batch is restored first.

        Raises:
            UserError: if there is no such state, it is damaged, or the chain proposes too few problems.
        """
        if index != self._next:
            self.hosting.load(self.folder, _state_file(index))
        elif index == 0:
            self.hosting.begin()
        else:
            self._finish(index)
        self.hosting.save(self.folder, _state_file(index))
        (self.folder / _state_file(index - KEPT)).unlink(missing_ok=True)
        self._next = index + 1
        return [
            ObservedBuilder(self, ticket.id, self.builder_of(self.hosting.row(ticket)))
            for ticket in self.hosting.draw(self.batches.groups)
        ]

    def observe(self, ticket: str, rewards: Sequence[float]) -> None:
        """Record the total rewards of a ticket's rollouts. A second report of a group is ignored."""
        if not self.hosting.session.expects(ticket):
            return
        for reward in rewards[: self.hosting.session.num_rollouts]:
            good = self.judge.success(reward)
            self.hosting.record(ticket, None if good is None else Rollout((), good, reward=reward))

    def _finish(self, index: int) -> None:
        """End the step before batch `index`. Unfinished rollouts count as failed."""
        for ticket in self.hosting.session.tickets_in_flight():
            self.hosting.session.fail(ticket.id)
        self.hosting.commit(index - 1)


def _state_file(index: int) -> str:
    return f"batch-{index:08d}.json"


class ObservedBuilder(BuilderBase):  # type: ignore[misc]
    """Wraps a user's builder to record its group's total rewards once they are computed."""

    def __init__(self, dataset: SessionDataset, ticket: str, inner: Any):
        self.dataset, self.ticket, self.inner = dataset, ticket, inner

    async def make_envs(self) -> Any:
        envs = await self.inner.make_envs()
        wanted = self.dataset.hosting.session.num_rollouts
        if len(envs) != wanted:
            raise UserError(f"builder_of: makes {len(envs)} environments, but group_size is {wanted}; make them equal")
        return envs

    async def compute_group_rewards(self, trajectory_group: list[Any], env_group: Sequence[Any]) -> Any:
        scored = await self.inner.compute_group_rewards(trajectory_group, env_group)
        totals = [
            math.fsum(transition.reward for transition in trajectory.transitions) + reward
            for trajectory, (reward, _) in zip(trajectory_group, scored, strict=True)
        ]
        self.dataset.observe(self.ticket, totals)
        return scored

    async def cleanup(self) -> None:
        await self.inner.cleanup()

    def logging_tags(self) -> list[str]:
        tags: list[str] = self.inner.logging_tags()
        return tags

    def __reduce__(self) -> Any:
        raise UserError("builder_of: rollouts in other processes cannot reach the session; run them in this process")
