"""Environments by name: tasks of a single turn and of many, behind one contract (see `base`)."""

from halfway.curriculum.support.registry import Registry

ENVIRONMENTS = Registry(
    what="environment",
    group="halfway.environments",
    builtin={
        "ledger": "halfway.curriculum.environments.ledger:Ledger",
        "single_turn": "halfway.curriculum.environments.single_turn:SingleTurn",
    },
)
