"""One vLLM server: its process, if it is our own, and requests to it.

- `server`: the server: its health, the weights it holds, the sequences it continues
- `process`: its process: start, restart, end, log
- `connection`: requests over HTTP, bounded in time and size
- `protocol`: types of responses, versions of weights, and errors
"""
