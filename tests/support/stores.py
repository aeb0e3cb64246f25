"""Stores of arrays for tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfway.curriculum import Group, Request, Stream
from halfway.curriculum.stored import Store, put_group
from halfway.trainers.contracts import Rollouts


@dataclass
class StoredRollouts(Rollouts):
    """Rollouts whose arrays go into a store."""

    rollouts: Any
    store: Store

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return [put_group(group, self.store) for group in self.rollouts.run(requests, stream)]

    def sync(self, version: int) -> None:
        self.rollouts.sync(version)
