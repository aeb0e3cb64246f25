"""Work trees with walls around them, in which commands of a policy run: what they change is a value.

- `base`: the contract of a box, boxes by name
- `bubblewrap`: the default: bubblewrap, and an overlay for the work tree
- `box_worker`: the process between Halfway and the commands of one box
- `bases`: what work trees begin as, kept on this machine
- `trees`: changes of a work tree as bytes, and back
- `determinism`: the variables that commands see, and what differs between equal executions
- `swerex`: boxes of swe-rex: docker, podman, cloud sandboxes
- `docker`: limits and the end of containers of docker and podman
- `container_shell`: the lines of bash around a command in a container
"""
