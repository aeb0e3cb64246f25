"""Lets the processes of a run wait for one that samples, talks to servers or converts files."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from torch import distributed

from halfway.curriculum import UserError

# Longer than anything that one process does alone. gloo notices a dead process at once, by its closed connections.
PATIENCE = timedelta(days=1)


def control_group() -> Any:
    """The group of all processes, connected by gloo with a long timeout; the training group's is ten minutes.

    All processes must make the first call at about the same time. A process group must exist.
    """
    return _beside(distributed.group.WORLD)


@cache
def _beside(world: Any) -> Any:
    """Make the control group of a group of all processes."""
    return distributed.new_group(backend="gloo", timeout=PATIENCE)


def wait_for_all() -> None:
    """Wait, with a long timeout, until all processes have arrived. A single process does not wait.

    Raises:
        UserError: if a process is lost.
    """
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        with lost_processes():
            distributed.barrier(group=control_group())


def broadcast_from_first(value: Any) -> Any:
    """Return the first process's value on all processes, which wait for it with a long timeout.

    Raises:
        UserError: if a process is lost.
    """
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return value
    with lost_processes():
        box = [value]
        distributed.broadcast_object_list(box, src=0, group=control_group())
        return box[0]


@contextmanager
def lost_processes() -> Iterator[None]:
    """Turn a broken connection into a one-line UserError."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error).lower():
            raise
        late = any(words in str(error).lower() for words in ("timed out", "timeout"))
        what = "has not answered in time" if late else "has died, see its own message above"
        raise UserError(
            f"a training process {what}; the last checkpoint is intact: resume the run with as many processes"
        ) from error
