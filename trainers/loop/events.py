"""The event log of a run with asynchronous rollouts: draws, finished groups and weight updates, in the session's order.

One JSON object per line of events.jsonl; `t` is the time in seconds of the pool's clock.

| event | fields |
|---|---|
| draw | `step`, `round`, `version` of the learner's weights, `tickets`: their ids with problem and origin |
| done | a group as the session records it: `ticket`, `passed`, `size`, `dropped`, `versions`, `lag`; when it was |
|      | sampled (`began`, `ended`); and `group`, packed, from which a session decides as it did; `arrays`: where in |
|      | events.bin its arrays lie, as first byte, number of bytes and CRC-32, if the chain reads tokens |
| commit | `step`: the chain observes, and the update begins |
| weights | `version`: the engine has them; `updated`: when the update had ended |
| measured | what an oracle measured for the chain |
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from halfway.curriculum import Group, Ticket
from halfway.curriculum.states import from_plain, to_plain
from halfway.curriculum.support.atomic import LONGEST_LINE, reading
from halfway.curriculum.support.extras import blaming
from halfway.trainers.loop.arrays import EventArrays, get_event_array
from halfway.trainers.loop.records import Bytes, JsonLines

ARRAYS_FILE = "events.bin"

MOST_BYTES = LONGEST_LINE
"""Maximum number of bytes to which a packed group may unpack."""


@dataclass(frozen=True)
class Events:
    """Writes the event log.

    Attributes:
        arrays: the file of the groups' arrays.
        tokens: true = the chain reads tokens; false = only their numbers are kept.
    """

    file: JsonLines
    arrays: Bytes
    tokens: bool

    def draw(self, time: float, tickets: Sequence[Ticket], version: int) -> None:
        """Log the tickets of one draw, even if there are none."""
        first = tickets[0].request if tickets else None
        where = {"step": first.step, "round": first.round} if first else {}
        drawn = [[ticket.id, ticket.request.problem.id, str(ticket.request.origin)] for ticket in tickets]
        self.append("draw", time, **where, version=version, tickets=drawn)

    def done(self, time: float, group: Group, times: tuple[float, float]) -> None:
        """Log a group as it is recorded."""
        counts = {"passed": group.num_passed, "size": group.size, "versions": group.policy_versions, "lag": group.lag}
        lost = {"dropped": dict(group.dropped)} if group.dropped else {}
        spent = {"began": times[0], "ended": times[1]}
        text, content = pack(group, self.tokens)
        lie = {"arrays": [self.arrays.extend(content), len(content), zlib.crc32(content)]} if content else {}
        self.append("done", time, ticket=group.request.ticket, **counts, **lost, **spent, group=text, **lie)

    def append(self, event: str, time: float, **fields: Any) -> None:
        self.file.append({"event": event, "t": round(time, 3), **fields})


def pack(group: Group, tokens: bool = True) -> tuple[str, bytes]:
    """Pack a group, without its request, as text and the bytes of its arrays.

    Args:
        tokens: False = only the shapes of the arrays are kept; unpacking gives zeros.
    """
    request, arrays = structs.replace(group.request, prefix=None, hint=None, stored=None), EventArrays(tokens)
    plain = msgspec.msgpack.encode(to_plain(replace(group, request=request), arrays.put))
    return base64.b64encode(zlib.compress(plain, 1)).decode(), bytes(arrays.content)


def unpack(text: str, content: bytes = b"") -> Group:
    """The inverse of `pack`. Raises UserError if either is damaged."""
    remedy = "retrace the run where the whole file is"
    with blaming("events.jsonl: a group is damaged", remedy, ValueError, zlib.error, msgspec.MsgspecError):
        plain = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
        group: Group = from_plain(Group, msgspec.msgpack.decode(plain), partial(get_event_array, content))
    return group


def logged_group(event: Mapping[str, Any], folder: Path) -> Group:
    """The group of a "done" event.

    Args:
        folder: the run directory, with events.bin.

    Raises:
        UserError: if the event or its part of events.bin is damaged.
    """
    start, size, checksum = event.get("arrays", (0, 0, 0))
    content = b""
    if size:
        path = folder / ARRAYS_FILE
        with reading(path, "retrace the run where the whole file is"), path.open("rb") as file:
            file.seek(start)
            content = file.read(size)
            if zlib.crc32(content) != checksum:
                raise ValueError(f"bytes {start} to {start + size} have changed since they were written")
    return unpack(event["group"], content)
