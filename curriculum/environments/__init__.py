"""Tasks of one turn and of several turns, behind one contract.

- `contract`: the contract
- `single_turn`: the policy answers once, a verifier judges
- `ledger_turns`: the lab's task of several turns
- `replay`: executes a prefix in an environment
"""
