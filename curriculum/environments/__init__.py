"""Environments by name: tasks of one turn and of many, behind one contract.

- `base`: the contract
- `single_turn`: the policy answers once, a verifier judges
- `ledger`: the lab's task of many turns
- `replay`: how an environment is brought to where a prefix ends
"""

from halfway.curriculum.support.registry import Registry

ENVIRONMENTS = Registry(
    what="environment",
    group="halfway.environments",
    builtin={
        "ledger": "halfway.curriculum.environments.ledger:Ledger",
        "repository": "halfway.curriculum.repositories.environment:Repository",
        "single_turn": "halfway.curriculum.environments.single_turn:SingleTurn",
    },
)
