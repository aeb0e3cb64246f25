"""Contract suites for third-party parts, each one line in a test:

    from halfway.testing import check_controller, check_engine, check_environment, check_verifier

    def test_my_controller_keeps_the_contract():
        check_controller(MyController())

| file | what it checks |
|---|---|
| `controllers` | determinism, saving, permitted evidence, the verbs of a plan |
| `together` | promises between members of one chain, with rollouts late, lost, cut and in pieces |
| `parts` | verifiers, environments, rollout engines |

`simulator` has `SimulatedRollouts`, a learner without a model, on which a law can be watched for hundreds of steps in a
second.

A failed check raises AssertionError with the broken promise. `controller_checks` gives the checks one by one, for
`pytest.mark.parametrize`.
"""

from halfway.testing.controllers import check_controller, controller_checks, sample_problems
from halfway.testing.parts import check_engine, check_environment, check_verifier
from halfway.testing.simulator import SimulatedRollouts
from halfway.testing.together import Conduct, check_pairs, check_together

__all__ = [
    "Conduct",
    "SimulatedRollouts",
    "check_controller",
    "check_engine",
    "check_environment",
    "check_pairs",
    "check_together",
    "check_verifier",
    "controller_checks",
    "sample_problems",
]
