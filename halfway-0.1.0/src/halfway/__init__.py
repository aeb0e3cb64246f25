"""Halfway steers reinforcement learning with verifiable rewards toward the rollouts that teach.

| room | what is in it | may import |
|---|---|---|
| `halfway.curriculum` | the vocabulary, the contract of a controller, the session; tasks, environments, boxes | |
| `halfway.controllers` | one file per method; their beliefs, laws and prefixes | curriculum |
| `halfway.trainers` | the loop, the rollouts and their engines, the learner, several processes; probes, PROPEL; other \
trainers as hosts | the above |
| `halfway.experiments` | configuration, command line, comparison, report, recipes | the above |

`run`, `compare`, `load` and `audit` do what the commands of these names do, and return tables. For the trainer that you
already use, `from_yaml` reads a chain, and `trl` makes it the curriculum of a `GRPOTrainer`; in any other, a `Session`
of a `chain` of controllers, `CONTROLLERS.get(name)`, says what to try.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfway.controllers import CONTROLLERS
    from halfway.controllers.chains import from_yaml
    from halfway.curriculum import Problem, ProblemSet, Session, chain
    from halfway.experiments.api import audit, compare, load, run
    from halfway.trainers.hosts.trl.hosted import trl

__version__ = "0.1.0"

__all__ = [
    "CONTROLLERS",
    "Problem",
    "ProblemSet",
    "Session",
    "audit",
    "chain",
    "compare",
    "from_yaml",
    "load",
    "run",
    "trl",
]

_HOMES = {
    "CONTROLLERS": "halfway.controllers",
    "Problem": "halfway.curriculum",
    "ProblemSet": "halfway.curriculum",
    "Session": "halfway.curriculum",
    "audit": "halfway.experiments.api",
    "chain": "halfway.curriculum",
    "compare": "halfway.experiments.api",
    "from_yaml": "halfway.controllers.chains",
    "load": "halfway.experiments.api",
    "run": "halfway.experiments.api",
    "trl": "halfway.trainers.hosts.trl.hosted",
}


def __getattr__(name: str) -> Any:
    """What this package offers by itself, imported when it is used: importing a room loads no other one."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
