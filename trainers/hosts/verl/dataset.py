"""A data set for verl whose rows are chosen when they are fetched; whatever index the sampler gives is ignored.

Its state goes with verl's data.pt: `StatefulDataLoader` keeps what a data set's `state_dict` gives. The ticket is a
column, and verl stores all columns with each trajectory. A row with a prefix names the agent loop that starts from it.
"""

import json
from typing import Any

from verl.utils.dataset.rl_dataset import RLHFDataset

from halfway.curriculum.session import Ticket
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.verl import steering
from halfway.trainers.hosts.verl.prefix_loop import LOOP, START

Base: Any = RLHFDataset


class SessionDataset(Base):  # type: ignore[misc]
    """verl's own data set for validation files; for the training files, the same rows as the session wants them."""

    def __init__(self, data_files: Any, *arguments: Any, **options: Any):
        super().__init__(data_files, *arguments, **options)
        # verl does not say which of its two data sets this is.
        given = self.config.train_files
        training = [given] if isinstance(given, str) else list(given)
        self.steering = None
        if list(self.original_data_files) == training:
            self.steering = steering.begin(self.config, self.dataframe, self.prompt_key, self._ends())

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
        place = self.steering.hosting.session.problems.position(ticket.request.problem.id)
        return self._started(super().__getitem__(place), ticket)

    def _started(self, row: dict[str, Any], ticket: Ticket) -> dict[str, Any]:
        """The row with its ticket, and with what its responses begin with. All rows have the same columns."""
        prefix, hint = ticket.request.prefix, ticket.request.hint
        start: list[int] = prefix.turns[0].tokens_T.tolist() if prefix is not None else []
        if hint is not None and hint.place == "response":
            start = self.tokenizer.encode(hint.text, add_special_tokens=False)
        elif hint is not None:
            *before, last = row["raw_prompt"]
            row["raw_prompt"] = [*before, {**last, "content": last["content"] + hint.opening + hint.text}]
        row |= {TICKET: ticket.id, START: json.dumps(start)}
        assert self.steering is not None
        if self.steering.hosting.session.controller.needs & {"prefixes", "hints"}:
            row["agent_name"] = LOOP
        return row

    def state_dict(self) -> dict[str, Any]:
        return {} if self.steering is None else self.steering.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if self.steering is not None:
            self.steering.load_state_dict(saved)
