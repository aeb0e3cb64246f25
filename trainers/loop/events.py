"""The event log of a run whose rollouts do not wait: what was drawn, came back, and changed, in the session's order.

One JSON object per line of events.jsonl; `t` is when, in seconds of the pool's clock.

| event | fields |
|---|---|
| draw | `step`, `round`, `version` of the learner's weights, `tickets`: their ids with problem and origin |
| done | a group as the session records it: `ticket`, `passed`, `size`, `dropped`, `versions`, `lag`; when it was |
|      | sampled (`began`, `ended`); and `group`, packed, from which a session decides as it did |
| commit | `step`: the chain observes, and the update begins |
| weights | `version`: the engine has them; `updated`: when the update had ended |
| measured | what an oracle told the chain |
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from halfway.curriculum.groups import Group
from halfway.curriculum.rollouts import Rollout
from halfway.curriculum.session import Ticket
from halfway.curriculum.states import from_plain, to_plain
from halfway.curriculum.support.errors import UserError
from halfway.trainers.loop.records import JsonLines

MOST_BYTES = 2**31
"""The most that a packed group may stand for."""


@dataclass(frozen=True)
class Events:
    """Writes the event log.

    Attributes:
        tokens: whether the chain reads tokens; if not, only their numbers are kept.
    """

    file: JsonLines
    tokens: bool

    def draw(self, time: float, tickets: Sequence[Ticket], version: int) -> None:
        """Tickets of one draw, which is logged even if it brought none."""
        first = tickets[0].request if tickets else None
        where = {"step": first.step, "round": first.round} if first else {}
        drawn = [[ticket.id, ticket.request.problem.id, str(ticket.request.origin)] for ticket in tickets]
        self.append("draw", time, **where, version=version, tickets=drawn)

    def done(self, time: float, group: Group, times: tuple[float, float]) -> None:
        """A group, as it is recorded."""
        told = {"passed": group.num_passed, "size": group.size, "versions": group.policy_versions, "lag": group.lag}
        lost = {"dropped": dict(group.dropped)} if group.dropped else {}
        spent = {"began": times[0], "ended": times[1]}
        self.append("done", time, ticket=group.request.ticket, **told, **lost, **spent, group=pack(group, self.tokens))

    def append(self, event: str, time: float, **fields: Any) -> None:
        self.file.append({"event": event, "t": round(time, 3), **fields})


def pack(group: Group, tokens: bool = True) -> str:
    """A group as text, without what its request brings.

    Args:
        tokens: False = only the numbers of tokens are kept, as zeros.
    """
    request = replace(group.request, prefix=None, hint=None, stored=None)
    rollouts = group.rollouts if tokens else tuple(map(_counted, group.rollouts))
    plain = msgspec.msgpack.encode(to_plain(replace(group, request=request, rollouts=rollouts)))
    return base64.b64encode(zlib.compress(plain, 1)).decode()


def unpack(text: str) -> Group:
    """The inverse of `pack`. Raises UserError if the text is damaged."""
    try:
        plain = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
        group: Group = from_plain(Group, msgspec.msgpack.decode(plain))
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise UserError(
            f"events.jsonl: a group is damaged ({error}); retrace the run where the whole file is"
        ) from error
    return group


def _counted(rollout: Rollout) -> Rollout:
    """A rollout whose tokens are zeros."""
    turns = (
        replace(turn, tokens_T=np.zeros_like(turn.tokens_T), logprobs_T=zeros_T, entropies_T=zeros_T, values_T=None)
        for turn in rollout.turns
        for zeros_T in [np.zeros(len(turn.tokens_T), np.float32)]
    )
    return replace(rollout, turns=tuple(turns))
