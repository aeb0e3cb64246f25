"""A verifier that is fair at random, whatever the policy is, and judges in processes of its own."""

import zlib
from collections.abc import Sequence

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.helpers import get_helpers

SECONDS = 60.0


def passes(answer: str, response: str) -> bool:
    """Whether a response's checksum is a multiple of the answer; none is of "never"."""
    return answer != "never" and zlib.crc32(response.encode()) % int(answer) == 0


def _judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    tasks = [(problem.answer, response) for problem, response in zip(problems, responses, strict=True)]
    return list(get_helpers(__name__).map(f"{__name__}:passes", tasks, SECONDS))


judged_coin = Batched(_judge)
