"""Isolated work trees in which a policy's commands run, and the sandbox in which unread programs run.

- `box`: the contract of a box
- `walls`: what keeps both in: bubblewrap's options, limits, one filter of system calls
- `worker_process`: a worker of either, as this side sees it
- `bubblewrap`: the default boxes: bubblewrap, with an overlay for the work tree
- `box_worker`: the process between Halfway and the commands of one box
- `starting_trees`: what work trees begin as, kept on this machine
- `trees`: changes of a work tree as bytes, and back
- `sandbox`: runs untrusted functions; `sandbox_worker`: the process inside
- `determinism`: the variables that commands see, and what differs between equal executions
- `swerex`: boxes of swe-rex: docker, podman, cloud sandboxes
- `docker`: limits and removal of docker's and podman's containers, and the lines of bash around a command in one
"""

from halfway.curriculum import Registry

BOXES = Registry(
    what="box",
    group="halfway.boxes",
    builtin={
        "bubblewrap": "halfway.curriculum.boxes.bubblewrap:Bubblewrap",
        "swerex": "halfway.curriculum.boxes.swerex:SweRex",
    },
)
