"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die.

- `part`: what is registered; `server_options`: its options, what follows from them, the command of a server
- `engine`: the engine: keeps servers, gives them weights, restarts lost ones
- `spreading`: spreads sequences over servers, in rounds
- `elsewhere`: samples through them in another process
- `start`: starts it: servers, their folder and devices
- `server`: one server: its process, if it is ours, started again after its end, and its endpoints
- `auth`: the token of a run, without which a server answers nobody
- `client`: sends sequences to servers over a bounded number of connections
- `transfer`: how weights get to servers: files, or a broadcast between devices
- `private_store`: how learner and servers find each other for a broadcast, and nobody else
- `receiver`: what runs inside a server to take them
"""
