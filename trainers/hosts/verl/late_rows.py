"""verl's data set, with rows chosen by the session when they are fetched; the sampler's indices are ignored.

Its state is saved in verl's data.pt, since `StatefulDataLoader` stores what a data set's `state_dict` returns.
"""

from collections.abc import Collection
from typing import Any, ClassVar

from verl.utils.dataset.rl_dataset import RLHFDataset

from halfway.curriculum.session import Ticket
from halfway.trainers.hosts.verl import steering

Base: Any = RLHFDataset


class LateDataset(Base):  # type: ignore[misc]
    """verl's own data set for validation files; for training files, its rows in the order of the session's tickets.

    Attributes:
        provides: which of `halfway.curriculum.controller.NEEDS` a chain can have.
        v1: whether the data set is for V1 trainers.
        steering: the session; None for validation files.
    """

    provides: ClassVar[Collection[str]] = ()
    v1: ClassVar[bool]

    def __init__(self, data_files: Any, *arguments: Any, **options: Any):
        super().__init__(data_files, *arguments, **options)
        # verl does not tell a data set whether it is for training, so its files have to.
        given = self.config.train_files
        training = [given] if isinstance(given, str) else list(given)
        self.steering = None
        if list(self.original_data_files) == training:
            facts = steering.Facts(self.prompt_key, self._ends(), self.provides, self.v1)
            self.steering = steering.begin(self.config, self.dataframe, facts)

    def _ends(self) -> frozenset[int]:
        """The tokens that end a response: the tokenizer's end token, and its padding, which is one for some models."""
        tokens = (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        return frozenset(token for token in tokens if token is not None)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.steering is None:
            row: dict[str, Any] = super().__getitem__(index)
            return row
        ticket = self.steering.next_ticket()
        return self._marked(super().__getitem__(self.steering.place(ticket)), ticket)

    def _marked(self, row: dict[str, Any], ticket: Ticket) -> dict[str, Any]:
        """The row, marked so that the rollouts that come back for it can be assigned to the ticket."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {} if self.steering is None else self.steering.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if self.steering is not None:
            self.steering.load_state_dict(saved)
