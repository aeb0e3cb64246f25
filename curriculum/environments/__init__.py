"""Environments by name: tasks of a single turn and of many, behind one contract (`curriculum.environments.base`)."""

from curriculum.registry import Registry

ENVIRONMENTS = Registry(
    what="environment",
    group="halfway.environments",
    builtin={
        "ledger": "curriculum.environments.ledger:Ledger",
        "single_turn": "curriculum.environments.single_turn:SingleTurn",
    },
)
