"""Transfer of weights from the learner to vLLM servers.

- `transfer`: the learner's side: files, or a broadcast between devices
- `receiver`: the servers' side
- `private_store`: the authenticated store through which learner and servers connect for a broadcast
"""
