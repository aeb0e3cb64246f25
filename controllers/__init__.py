"""Pass-rate controllers by name. Importing this package loads none of them and no heavy dependency."""

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
