"""Boxes, isolated work trees for a policy's commands, and the sandbox for untrusted programs.

- `box`: the contract of a box
- `limits`: confines both: bubblewrap's options, limits, one filter of system calls
- `worker_process`: a client of the worker process of either
- `bubblewrap`: the default boxes: bubblewrap, with an overlay for the work tree
- `box_worker`: the process between Halfway and the commands of one box
- `starting_trees`: a cache of starting work trees on this machine
- `trees`: converts changes of a work tree to bytes and back
- `sandbox`: runs untrusted functions; `sandbox_worker`: the process inside
- `determinism`: variables of commands, and removal of differences between equal executions
- `swerex`: boxes of swe-rex: docker, podman, cloud sandboxes
- `docker`: limits and removal of docker's and podman's containers, and the lines of bash around a command in one
"""

from collections.abc import Mapping
from typing import Any

from halfway.curriculum import Registry, UserError, require
from halfway.curriculum.boxes.box import BoxMaker

BOXES = Registry(
    what="box",
    group="halfway.boxes",
    builtin={
        "bubblewrap": "halfway.curriculum.boxes.bubblewrap:Bubblewrap",
        "swerex": "halfway.curriculum.boxes.swerex:SweRex",
    },
)


def make_boxes(box: Mapping[str, Any], field: str) -> BoxMaker:
    """Make the box maker that a field names, as `{name: options}`.

    Raises:
        UserError: if there is no such kind of box, or it has no such options.
    """
    require(len(box) == 1, field, box, "give one kind of box, such as {bubblewrap: {}}")
    [(name, options)] = box.items()
    kind = BOXES.get(name)
    try:
        boxes: BoxMaker = kind(**(options or {}))
    except TypeError as error:
        raise UserError(f"{field}.{name}: {error}; see the options of {kind.__name__}") from None
    return boxes
