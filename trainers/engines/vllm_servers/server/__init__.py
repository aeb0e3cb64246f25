"""One vLLM server: its process, if it is our own, and what it is asked.

- `server`: the server: its health, the weights it holds, the sequences it continues
- `process`: its process: start, restart, end, log
- `connection`: requests over HTTP, bounded in time and size
- `protocol`: answers as types, versions of weights, and what can be wrong with them
"""
