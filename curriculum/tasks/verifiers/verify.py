"""Verifiers by name: each judges one response against the problem's answer."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

import msgspec
import numpy as np
from msgspec.structs import replace

from halfway.curriculum import Problem, Registry, UserError, require
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched, Lost, Verifier, exact
from halfway.curriculum.tasks.verifiers.helpers import Unjudged, count

VERIFIERS = Registry(
    what="verifier",
    group="halfway.verifiers",
    builtin={
        "exact": "halfway.curriculum.tasks.verifiers.exact_numeric:exact",
        "numeric": "halfway.curriculum.tasks.verifiers.exact_numeric:numeric",
        "symbolic": "halfway.curriculum.tasks.verifiers.symbolic:symbolic",
        "reasoning_gym": "halfway.curriculum.tasks.reasoning_gym:verify",
        "operator_sheets": "halfway.curriculum.tasks.lab.operators:verify",
        "running_sums": "halfway.curriculum.tasks.lab.sums:verify",
        "function_induction": "halfway.curriculum.tasks.verifiers.function_induction:verify",
        "taskset": "halfway.curriculum.tasks.verifiers.task_rewards:verify",
        "any_of": "halfway.curriculum.tasks.verifiers.verify:any_of",
    },
)


ANY_OF = "any_of"
_WITH_OPTIONS = re.compile(r"(\w+)\((.+)\)")


def find_verifier(name: str) -> Verifier:
    """Find the verifier of a name such as "numeric", perhaps with options, as in "numeric(tolerance=0.01)".

    "any_of(numeric)" is the verifier of answers that are JSON lists, any item of which is right by "numeric".

    Raises:
        UserError: if there is no such verifier, or it has no such option.
    """
    found = _WITH_OPTIONS.fullmatch(name)
    if found is None:
        plain: Verifier = VERIFIERS.get(name)
        return plain
    if found[1] == ANY_OF:
        return _any_of(find_verifier(found[2]))
    verifier: Verifier = VERIFIERS.get(found[1])
    options = {}
    for pair in found[2].split(","):
        option, _, value = pair.partition("=")
        known = getattr(verifier, "__kwdefaults__", None) or {}
        require(option.strip() in known, f"verifier {found[1]}", pair, f"its options are: {', '.join(known) or 'none'}")
        try:
            options[option.strip()] = float(value)
        except ValueError:
            raise UserError(f"verifier {name}: {value!r} is not a number; give one, such as {option}=0.01") from None
        finite = math.isfinite(options[option.strip()]) and options[option.strip()] >= 0
        require(finite, f"verifier {found[1]}", pair, f"give 0 or more, such as {option}=0.01")
    return partial(verifier, **options)


def any_of(problem: Problem, response: str) -> bool | Lost:
    """True if a response equals any item of the answer, a JSON list of texts, by `exact`, or by V in "any_of(V)"."""
    return _any_of(exact)(problem, response)


def _any_of(verifier: Verifier) -> Verifier:
    """A verifier that passes if the given one passes for any item of the answer."""
    if isinstance(verifier, Batched):
        return Batched(partial(_judge_any, verifier.judge))
    judge = partial(_judge_any, partial(map, verifier))
    return lambda problem, response: judge([problem], [response])[0]


def _judge_any(
    judge: Callable[[Sequence[Problem], Sequence[str]], Iterable[bool | Lost]],
    problems: Sequence[Problem],
    responses: Sequence[str],
) -> list[bool | Lost]:
    """The verdict on each response: true if any is, else lost if any is lost."""
    items = [answers_of(problem.answer) for problem in problems]
    alone = [replace(problem, answer=item) for problem, mine in zip(problems, items, strict=True) for item in mine]
    said = [response for response, mine in zip(responses, items, strict=True) for _ in mine]
    verdicts = iter(judge(alone, said))
    return [max(list(islice(verdicts, len(mine))), key=_rank) for mine in items]


def _rank(verdict: bool | Lost) -> int:
    return 1 if isinstance(verdict, Lost) else 2 * bool(verdict)


def answers_of(answer: str) -> list[str]:
    """The items of a JSON list of texts; any other answer is the only one."""
    try:
        return msgspec.json.decode(answer, type=list[str]) or [answer]
    except msgspec.DecodeError:
        return [answer]


def verify(problem: Problem, response: str) -> bool | Lost:
    """Judge a response by the problem's verifier.

    A response on which the verifier raises fails, and is counted (see `helpers.take_counts`), unless the verifier
    raises on an empty response too: then the problem is to blame.

    Args:
        response: the policy's text, without special tokens.

    Raises:
        UserError: if there is no such verifier, if it raises on any response, or if its verdict is not a boolean.
    """
    verifier = find_verifier(problem.verifier)
    try:
        verdict = verifier(problem, response)
    except UserError:
        raise
    except Exception as error:
        if _reads(verifier, problem):
            count(Unjudged("raised"))
            return False
        raise UserError(
            f"verifier {problem.verifier}: raised {one_line(error)} on problem {problem.id!r}; "
            "correct that problem's answer, or give it another verifier"
        ) from error
    if isinstance(verdict, Lost):
        return verdict
    if not isinstance(verdict, bool | np.bool_):
        raise UserError(
            f"verifier {problem.verifier}: returned {one_line(verdict)} for problem {problem.id!r}; "
            "a verdict must be True or False, so compare a score with a threshold"
        )
    return bool(verdict)


def _reads(verifier: Verifier, problem: Problem) -> bool:
    """True if the verifier can judge an empty response to the problem."""
    try:
        verifier(problem, "")
    except Exception:
        return False
    return True


def verify_all(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool | Lost]:
    """`verify` for each response, in one call if the verifier is `Batched`. Raises UserError like `verify`."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, problem in enumerate(problems):
        rows_of[problem.verifier].append(row)
    verdicts: dict[int, bool | Lost] = {}
    for name, rows in rows_of.items():
        verifier = find_verifier(name)
        try:
            together = isinstance(verifier, Batched)
            if isinstance(verifier, Batched):
                found = list(verifier.judge([problems[i] for i in rows], [responses[i] for i in rows]))
        except UserError:
            raise
        except Exception:  # judge one by one to find the response to blame
            together = False
        if not together:
            found = [verify(problems[i], responses[i]) for i in rows]
        verdicts.update(zip(rows, found, strict=True))
    return [verdicts[row] for row in range(len(problems))]
