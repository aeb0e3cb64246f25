"""Tasks of one turn and of many, behind one contract.

- `contract`: the contract
- `single_turn`: the policy answers once, a verifier judges
- `ledger`: the lab's task of many turns
- `replay`: how an environment is brought to where a prefix ends
"""
