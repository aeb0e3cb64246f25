"""Pass-rate controllers by name: one file per method. Importing this package loads none of them.

- `uniform`: problems in random order, each once per epoch: plain GRPO
- `greso`: skips problems that have stopped teaching
- `prefix_sampling`: starts rollouts inside earlier rollouts, so that about half of them pass
- `pros`: reuses prefixes, and chooses by a hierarchical belief about the pass rate
- `mopps`: chooses by Thompson draws from a posterior of the pass rate
- `hints`: starts rollouts with a beginning of the reference solution
- `probe`: proposes generated problems by a probe's guess
- `beliefs`: what may be believed about pass rates
- `laws`: from a belief to an action
- `prefixes`: where to cut earlier rollouts and reference solutions, and what to keep
"""

from halfway.curriculum.support.registry import Registry

CONTROLLERS = Registry(
    what="controllers",
    group="halfway.controllers",
    builtin={
        "uniform": "halfway.controllers.uniform:Uniform",
        "greso": "halfway.controllers.greso:Greso",
        "prefix_sampling": "halfway.controllers.prefix_sampling:PrefixSampling",
        "pros": "halfway.controllers.pros:Pros",
        "mopps": "halfway.controllers.mopps:Mopps",
        "probe": "halfway.controllers.probe:Probed",
        "hints": "halfway.controllers.hints:Hints",
    },
)
