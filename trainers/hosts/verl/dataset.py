"""verl's data set, with rows chosen by the session when they are fetched; the sampler's indices are ignored.

The ticket's id is a column, and verl stores all columns with each trajectory; outcomes return through Halfway's replay
buffer. If the chain attaches prefixes or hints, rows name the agent loop that starts from them; verl's workers import
this module, and with it that loop. `StatefulDataLoader` saves the session's state, the data set's `state_dict`, in
verl's data.pt.
"""

import json
from typing import Any

from verl.utils.dataset.rl_dataset import RLHFDataset

from halfway.trainers.hosts.hosting import open_state, seal_state
from halfway.trainers.hosts.outcomes import add_hint, start_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.verl import steering
from halfway.trainers.hosts.verl.prefix_loop import LOOP, START

Base: Any = RLHFDataset


class SessionDataset(Base):  # type: ignore[misc]
    """verl's own data set for validation files; for training files, rows in the order of the session's tickets.

    Attributes:
        steering: the session; None for validation files.
    """

    def __init__(self, data_files: Any, *arguments: Any, **options: Any):
        super().__init__(data_files, *arguments, **options)
        # Only its files show whether a data set of verl's is for training.
        files = self.config.train_files
        training = [files] if isinstance(files, str) else list(files)
        self.steering = None
        if list(self.original_data_files) == training:
            self.steering = steering.begin(self.config, self.dataframe, self.prompt_key, self._ends())
            self.steering.hosting.decode = self.tokenizer.decode

    def _ends(self) -> frozenset[int]:
        """Tokens that end a response: the tokenizer's end token, and its padding, an end token of some models."""
        tokens = (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        return frozenset(token for token in tokens if token is not None)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.steering is None:
            row: dict[str, Any] = super().__getitem__(index)
            return row
        ticket = self.steering.next_ticket()
        # The column with the first tokens of the row's responses is a JSON list, maybe empty.
        start = json.dumps(start_of(ticket.request, self.tokenizer))
        row = super().__getitem__(self.steering.place(ticket)) | {START: start, TICKET: ticket.id}
        row["raw_prompt"] = add_hint(row["raw_prompt"], ticket.request)
        if self.steering.hosting.session.controller.needs & {"prefixes", "hints"}:
            row["agent_name"] = LOOP
        return row

    def state_dict(self) -> dict[str, Any]:
        return {} if self.steering is None else seal_state(self.steering.state_dict())

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if self.steering is not None:
            with open_state(saved, f"{self.steering.hosting.host.name}'s checkpoint") as state:
                self.steering.load_state_dict(state)
