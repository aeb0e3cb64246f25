"""Pass-rate controllers by name: one file per method. Importing this package loads none of them.

- `uniform`: problems in random order, each once per epoch: plain GRPO
- `greso`: skips problems with a streak of zero-variance groups
- `prefix_sampling`: starts rollouts inside earlier rollouts, so that about half of them pass
- `pros`: reuses prefixes of correct rollouts, and chooses by a hierarchical model of pass rates
- `frontier`: chooses problems by the expected signal of their groups, under one model of all pass rates
- `servo`: moves along a difficulty column, by feedback or on a schedule
- `retire`: drops problems that pass too often
- `hints`: starts rollouts with the beginning of the reference solution
- `maxrl`: weighs rare successes more, by the gradient of log p
- `replay`: trains on stored groups again
- `mixture`: divides a batch among fresh, prefixed, generated and stored groups
- `probe`: proposes generated problems by the predictions of a probe
- `contrib`: published methods that showed no gain in our comparisons
- `chains`: reads a chain from the `controllers` of a YAML file
- `beliefs`: estimators of pass rates
- `laws`: rules that turn pass rates into actions
- `prefixes`: cuts and stores prefixes of earlier rollouts and of reference solutions
"""

from halfway.curriculum import Registry

CONTROLLERS = Registry(
    what="controllers",
    group="halfway.controllers",
    builtin={
        "uniform": "halfway.controllers.uniform:Uniform",
        "greso": "halfway.controllers.greso:Greso",
        "prefix_sampling": "halfway.controllers.prefix_sampling:PrefixSampling",
        "pros": "halfway.controllers.pros:Pros",
        "mopps": "halfway.controllers.contrib.mopps:Mopps",
        "bots": "halfway.controllers.contrib.bots:Bots",
        "cdas": "halfway.controllers.contrib.cdas:Cdas",
        "frontier": "halfway.controllers.frontier:Frontier",
        "bandit": "halfway.controllers.contrib.bandit:Bandit",
        "servo": "halfway.controllers.servo:Servo",
        "retire": "halfway.controllers.retire:Retire",
        "probe": "halfway.controllers.probe:Probed",
        "hints": "halfway.controllers.hints:Hints",
        "knapsack": "halfway.controllers.contrib.knapsack:Knapsack",
        "pilot": "halfway.controllers.contrib.pilot:Pilot",
        "rounds": "halfway.controllers.contrib.rounds:Rounds",
        "reinforce_ada": "halfway.controllers.contrib.rounds:ReinforceAda",
        "ar3po": "halfway.controllers.contrib.rounds:Ar3po",
        "ngu_rounds": "halfway.controllers.contrib.rounds:NguRounds",
        "ngu": "halfway.controllers.contrib.ngu:Ngu",
        "signal": "halfway.controllers.contrib.signal:Signal",
        "maxrl": "halfway.controllers.maxrl:MaxRL",
        "downsample": "halfway.controllers.contrib.varied:Downsample",
        "vcrl": "halfway.controllers.contrib.varied:Vcrl",
        "ragen": "halfway.controllers.contrib.varied:Ragen",
        "lilo": "halfway.controllers.contrib.varied:Lilo",
        "replay": "halfway.controllers.replay:Replay",
        "mixture": "halfway.controllers.mixture:Mixture",
    },
    removed={
        "dare": "it showed no gain over dynamic sampling and cost extra passes; use mopps or frontier",
        "conformal": "it learned less per rollout than plain GRPO; use pilot",
        "variants": "no experiment showed a gain; use probe with a pool of generated problems",
    },
)
