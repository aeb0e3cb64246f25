"""verl's data set with rows that are chosen when they are fetched; whatever index the sampler gives is ignored.

Its state goes with verl's data.pt: `StatefulDataLoader` keeps what a data set's `state_dict` gives.
"""

from collections.abc import Collection
from typing import Any, ClassVar

from verl.utils.dataset.rl_dataset import RLHFDataset

from halfway.curriculum.session import Ticket
from halfway.trainers.hosts.verl import steering

Base: Any = RLHFDataset


class LateDataset(Base):  # type: ignore[misc]
    """verl's own data set for validation files; for the training files, the same rows as the session wants them.

    Attributes:
        provides: what a chain can have.
        v1: whether it is for V1 trainers.
    """

    provides: ClassVar[Collection[str]] = ()
    v1: ClassVar[bool]

    def __init__(self, data_files: Any, *arguments: Any, **options: Any):
        super().__init__(data_files, *arguments, **options)
        # verl does not say which of its two data sets this is.
        given = self.config.train_files
        training = [given] if isinstance(given, str) else list(given)
        self.steering = None
        if list(self.original_data_files) == training:
            facts = steering.Facts(self.prompt_key, self._ends(), self.provides, self.v1)
            self.steering = steering.begin(self.config, self.dataframe, facts)

    def _ends(self) -> frozenset[int]:
        """The tokenizer's end token; and its padding, which stands for one in models that pad with another."""
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
        """The row, so that what comes back of it can be told to be the ticket's."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {} if self.steering is None else self.steering.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if self.steering is not None:
            self.steering.load_state_dict(saved)
