"""Environments by name: tasks of one turn and of many, behind one contract.

- `base`: the contract
- `single_turn`: the policy answers once, a verifier judges
- `ledger`: the lab's task of many turns
- `micro_repository`: the lab's repositories, with real tests
- `repository`: real repositories, in which a policy works with a shell
- `replay`: how an environment is brought to where a prefix ends
"""

from halfway.curriculum.support.registry import Registry

ENVIRONMENTS = Registry(
    what="environment",
    group="halfway.environments",
    builtin={
        "ledger": "halfway.curriculum.environments.ledger:Ledger",
        "micro_repository": "halfway.curriculum.environments.micro_repository:MicroRepositories",
        "repository": "halfway.curriculum.environments.repository:Repository",
        "single_turn": "halfway.curriculum.environments.single_turn:SingleTurn",
    },
)
