"""The data set for V1 trainers, whose outcomes come back through Halfway's replay buffer.

The ticket's id is a column, and verl stores all columns with each trajectory. If the chain attaches prefixes or hints,
rows name the agent loop that starts from them; verl's workers import this module, and with it that loop.
"""

import json
from typing import Any

from halfway.curriculum.session import Ticket
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.verl.late_rows import LateDataset
from halfway.trainers.hosts.verl.prefix_loop import LOOP, START


class SessionDataset(LateDataset):
    """The data set of `+halfway=session`."""

    provides = frozenset({"tokens", "prefixes", "hints"})
    v1 = True

    def _marked(self, row: dict[str, Any], ticket: Ticket) -> dict[str, Any]:
        """The row with its ticket, and with the tokens that its responses begin with (a JSON list, maybe empty)."""
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
