"""Several processes working on one run, and the machines they run on.

- `workers`: the leader sends orders, and all processes do their share
- `collectives`: waiting and broadcasting with long timeouts; detection of dead processes
- `colocated`: learner and engine take turns on the same devices
- `cluster`: options: hosts, devices, memory and sizes of the model; the pause before a restart
- `ports`: ports, addresses and network interfaces of this host
"""
