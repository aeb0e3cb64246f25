"""How the processes of a run wait for one of them, while it samples, speaks to servers or converts files."""

from datetime import timedelta
from functools import cache
from typing import Any

from torch import distributed

# Beyond anything that one process does alone. A process that dies closes its connections, which gloo notices at once.
PATIENCE = timedelta(days=1)


def control_group() -> Any:
    """All processes, connected by gloo and with patience; the group that trains gives up after ten minutes.

    All have to ask for it the first time, and at about the same time. There has to be a process group.
    """
    return _beside(distributed.group.WORLD)


@cache
def _beside(world: Any) -> Any:
    """The control group that belongs to a group of all processes."""
    return distributed.new_group(backend="gloo", timeout=PATIENCE)


def together() -> None:
    """Wait, with patience, until all processes are here. Nothing if there is one."""
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.barrier(group=control_group())
