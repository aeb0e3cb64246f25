"""Several processes at one run, and the machines they run on.

- `workers`: the leader orders, the other processes do their share
- `collectives`: waiting and broadcasting, with patience, noticing who died
- `colocated`: learner and engine take turns on the same devices
- `cluster`: settings: hosts, devices, memory, sizes of the model
- `restarts`: how long to wait before a process that ended is started again
- `ports`: free ports of this host
"""
