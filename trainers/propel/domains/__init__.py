"""Domains of generated tasks: validity of a text, and its problem for the solver.

- `domain`: the contract of a domain
- `candidates`: turns generated texts into problems, or records why they are not valid
- `oracles`: answers on which models agree, for tasks that come without an answer
- `diversity`: diversity of a set of texts
- `maths`: competition-style mathematics
- `induction`: infer a function from inputs and outputs; `induction_rules`: rules for such functions
- `sheets`: the lab's running sums and operator sheets
"""

from halfway.curriculum import Registry

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
