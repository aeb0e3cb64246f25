"""Tasks that a generator writes: when a text is a valid task, and which problem the solver gets.

- `base`: the contract of a domain
- `candidates`: turns generated texts into problems, or says why they are not
- `oracles`: answers on which models agree, for tasks that come without one
- `diversity`: how much a set of texts repeats itself
- `maths`: competition-style mathematics
- `induction`: infer a function from inputs and outputs; `induction_rules`: what a function may look like
- `sheets`: the lab's running sums and operator sheets
"""

from halfway.curriculum.support.registry import Registry

DOMAINS = Registry(
    what="domain",
    group="halfway.domains",
    builtin={
        "function_induction": "halfway.trainers.propel.domains.induction:FunctionInduction",
        "maths": "halfway.trainers.propel.domains.maths:Maths",
        "operators": "halfway.trainers.propel.domains.sheets:Operators",
        "sums": "halfway.trainers.propel.domains.sheets:Sums",
    },
)
