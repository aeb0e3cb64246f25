"""Several processes working on one run, and the machines they run on.

- `workers`: the leader gives orders, and the other processes do their share
- `collectives`: waiting and broadcasting with long timeouts, noticing processes that died
- `colocated`: learner and engine take turns on the same devices
- `cluster`: settings: hosts, devices, memory, and sizes of the model; the pause before a process is started again
- `ports`: ports, addresses and network interfaces of this host
"""
