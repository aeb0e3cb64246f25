"""Pass-rate controllers by name. Importing this package loads none of them and no heavy dependency."""

from curriculum.registry import Registry

CONTROLLERS = Registry(
    what="controllers",
    group="halfway.controllers",
    builtin={
        "uniform": "controllers.uniform:Uniform",
        "greso": "controllers.greso:Greso",
        "prefix_sampling": "controllers.prefix_sampling:PrefixSampling",
        "pros": "controllers.pros:Pros",
        "probe": "controllers.probe:Probed",
    },
)
