"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die.

- `part`: the registered part; `server_options`: its options, its memory and the command of a server
- `start`: starts the engine: servers, their devices, their token, and the folder of a run for weights and logs
- `engine`: the engine: runs servers, sends them weights, restarts lost ones
- `elsewhere`: samples through the servers from another process
- `load_balancing`: spreads sequences over servers, in rounds
- `server`: one server: process, connection, protocol, health
- `weights`: transfer of weights to servers
- `auth`: the bearer-token check on every route of a server
"""
