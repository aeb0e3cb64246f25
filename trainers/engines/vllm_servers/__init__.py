"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die.

- `part`: what is registered; `server_options`: its options, what follows from them, the command of a server
- `start`: starts the engine: servers, their devices and their token
- `engine`: the engine: keeps servers, gives them weights, restarts lost ones
- `elsewhere`: samples through them in another process
- `spreading`: spreads sequences over servers, in rounds
- `server`: one server: process, connection, protocol, health
- `weights`: how weights get to servers, and the folder for their files
- `auth`: the bearer-token check on every route of a server
"""
