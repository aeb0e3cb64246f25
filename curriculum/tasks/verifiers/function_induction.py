"""The verifier of function induction: runs a function on hidden inputs, in the sandbox.

The answer of a problem is a `Reference`: inputs hidden from the solver, and the right function's results.
"""

import json
import threading
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import islice

from halfway.curriculum import Problem
from halfway.curriculum.boxes.sandbox import Failure, Job, Outcome, SandboxOptions, get_sandbox
from halfway.curriculum.support.blocks import find_fenced
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched

PURE_MODULES = (
    *("bisect", "cmath", "collections", "collections.abc", "copy", "decimal", "fractions", "functools", "heapq"),
    *("itertools", "math", "operator", "re", "statistics", "string", "typing"),
)
"""Pure modules of the standard library, already imported in the sandbox."""


def last_python_block(response: str) -> str | None:
    """The content of a response's last block of Python; None if there is none."""
    blocks = [content for name, content in find_fenced(response) if name == "python"]
    return blocks[-1] if blocks else None


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference answer of a problem: hidden inputs and their results.

    Attributes:
        seconds: time limit on a function over all inputs.
        inputs: the hidden inputs, each as the text of a tuple literal.
        results: the right function's results on them, as `Result.key`.
    """

    seconds: float
    inputs: tuple[str, ...]
    results: tuple[str, ...]

    def as_text(self) -> str:
        """Convert to JSON text, which `reference_of` reads."""
        return json.dumps(asdict(self))


@lru_cache(maxsize=4096)
def reference_of(answer: str) -> Reference:
    """The inverse of `Reference.as_text`. Raises ValueError for other text."""
    try:
        facts = json.loads(answer)
        return Reference(float(facts["seconds"]), tuple(map(str, facts["inputs"])), tuple(map(str, facts["results"])))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not an answer of function induction ({one_line(error)})") from error


@dataclass
class Memory:
    """Caches the outcomes of programs, so that an equal program does not run again.

    A program that ran out of time, or whose worker died, is not cached: the machine may be to blame.

    Attributes:
        capacity: largest number of programs; the oldest are forgotten.
    """

    capacity: int = 100_000
    outcomes: dict[Job, Outcome] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: Sequence[Job], options: SandboxOptions) -> list[Outcome]:
        """Run the programs like `Sandbox.run`. Raises UserError if there is no sandbox."""
        distinct = dict.fromkeys(jobs)
        with self.lock:
            known = {job: self.outcomes[job] for job in distinct if job in self.outcomes}
        fresh = [job for job in distinct if job not in known]
        ran = dict(zip(fresh, get_sandbox(options, PURE_MODULES).run(fresh), strict=True)) if fresh else {}
        with self.lock:
            self.outcomes.update((job, one) for job, one in ran.items() if _lasts(one))
            for job in list(islice(self.outcomes, max(0, len(self.outcomes) - self.capacity))):
                del self.outcomes[job]
        return [known[job] if job in known else ran[job] for job in jobs]


def _lasts(outcome: Outcome) -> bool:
    return not isinstance(outcome, Failure) or outcome.fault == "error"


@lru_cache(maxsize=8)
def _memory(options: SandboxOptions) -> Memory:
    return Memory()


def run(jobs: Sequence[Job], seconds: float, processes: int = 1) -> list[Outcome]:
    """Run the programs; equal programs run once per process. Raises UserError if there is no sandbox."""
    options = SandboxOptions(seconds, processes=processes)
    return _memory(options).run(jobs, options)


def judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    """Judge each response: its function must give the reference's results on the problem's hidden inputs.

    A response may define more than the function. Results are compared by Python's ==, outside the sandbox; the code
    inside sees the hidden inputs but none of their results.

    Raises:
        ValueError: if a problem's answer does not belong to this task.
        UserError: if there is no sandbox.
    """
    references = [reference_of(problem.answer) for problem in problems]
    jobs: dict[float, list[tuple[int, Job]]] = defaultdict(list)
    for row, (reference, response) in enumerate(zip(references, responses, strict=True)):
        code = last_python_block(response)
        if code is not None:
            # Use both lanes; equal programs go to the same lane.
            jobs[reference.seconds].append((row, Job(code, "f", reference.inputs, zlib.crc32(code.encode()) % 2)))
    verdicts = [False] * len(problems)
    for seconds, numbered in jobs.items():
        for (row, _), outcome in zip(numbered, run([job for _, job in numbered], seconds), strict=True):
            right = references[row].results
            verdicts[row] = not isinstance(outcome, Failure) and tuple(result.key for result in outcome) == right
    return verdicts


verify = Batched(judge)
"""The verifier `function_induction`."""
