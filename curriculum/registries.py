"""Registries of problem sources and environments, from all packages below."""

from halfway.curriculum.support.registry import Registry

SOURCES = Registry(
    what="source",
    group="halfway.sources",
    builtin={
        "file": "halfway.curriculum.tasks.files:File",
        "harbor_tasks": "halfway.curriculum.repositories.harbor:HarborTasks",
        "hub": "halfway.curriculum.tasks.hub:Hub",
        "ledger": "halfway.curriculum.tasks.lab.lab_sources:LedgerAccounts",
        "operator_sheets": "halfway.curriculum.tasks.lab.lab_sources:OperatorSheets",
        "pool": "halfway.curriculum.tasks.files:Pool",
        "reasoning_gym": "halfway.curriculum.tasks.reasoning_gym:ReasoningGym",
        "repository_archives": "halfway.curriculum.repositories.archives:RepositoryArchives",
        "repository_rows": "halfway.curriculum.repositories.rows:RepositoryRows",
        "running_sums": "halfway.curriculum.tasks.lab.lab_sources:RunningSums",
        "surveyed": "halfway.curriculum.tasks.files:Surveyed",
        "taskset": "halfway.curriculum.tasks.tasksets:TaskSet",
    },
)

ENVIRONMENTS = Registry(
    what="environment",
    group="halfway.environments",
    builtin={
        "ledger": "halfway.curriculum.environments.ledger_turns:Ledger",
        "repository": "halfway.curriculum.repositories.environment:Repository",
        "single_turn": "halfway.curriculum.environments.single_turn:SingleTurn",
    },
)
