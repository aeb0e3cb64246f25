"""Checks that a task is valid: the untouched tree fails and the reference passes, both twice.

It also checks boxes on this machine with a task of known right and wrong answers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from halfway.curriculum import Problem, UserError
from halfway.curriculum.boxes.box import Base, Box, BoxFullError, BoxLostError, BoxMaker
from halfway.curriculum.repositories.harbor import solve
from halfway.curriculum.repositories.judge import APPLY, Judged, begin, judge, judge_in
from halfway.curriculum.repositories.task import RepositoryTask, from_text
from halfway.curriculum.tasks.sources import MAX_EXAMPLES, Loaded, SourceReport

TIMES = 2
REVERSED = APPLY.replace("git apply", "git apply -R")
RIGHT, WRONG = (f"def answer():\n    return {number}\n" for number in (42, 41))
TEST = "from answer import answer\n\n\ndef test_answer():\n    assert answer() == 42\n"


class _NoTaskError(Exception):
    """Why a row is not a valid task, in one of a few phrases for counting, and the details."""

    def __init__(self, reason: str, seen: str = ""):
        super().__init__(f"{reason} ({seen})" if seen else reason)
        self.reason, self.seen = reason, seen


def check_problems(
    problems: Sequence[Problem],
    boxes: BoxMaker,
    seconds: float,
    parallel: int = 1,
    tell: Callable[[], None] | None = None,
) -> Loaded:
    """Select the problems that are valid tasks; others are counted by reason.

    Args:
        seconds: time limit on one run of the tests.
        tell: called after every problem.

    Raises:
        UserError: if this machine cannot run boxes.
    """

    def check_one(problem: Problem) -> _NoTaskError | None:
        try:
            check(from_text(problem.answer, problem.id), boxes, seconds)
            return None
        except _NoTaskError as error:
            return error
        finally:
            if tell is not None:
                tell()

    with ThreadPoolExecutor(parallel) as pool:
        found = list(zip(problems, pool.map(check_one, problems), strict=True))
    kept = tuple(problem for problem, error in found if error is None)
    bad = [(problem, error) for problem, error in found if error is not None]
    examples = [f"{from_text(p.answer, p.id).name}: {error}" for p, error in bad]
    dropped = Counter(error.reason for _, error in bad)
    return Loaded(kept, SourceReport(len(kept), dict(dropped), tuple(examples[:MAX_EXAMPLES])))


def check(task: RepositoryTask, boxes: BoxMaker, seconds: float) -> None:
    """Raise _NoTaskError, naming what is wrong, unless the task is valid."""
    try:
        before = [_judge_untouched(task, boxes, seconds) for _ in range(TIMES)]
        _require(len({(run.passed, run.missing) for run in before}) == 1, "tests vary from run to run")
        untouched = before[0]
        _require(not untouched.passed, "passes untouched")
        _require(untouched.why in ("tests fail", ""), "tests do not run", untouched.why)
        missing = set(untouched.missing)
        good = [test for test in task.fail_to_pass if test not in missing]
        # R2E-Gym lists only the tests that pass in the end.
        _require(not task.pass_to_pass or not good, "a test that must fail passes", str(good[:1]))
        broken = [test for test in task.pass_to_pass if test in missing]
        _require(not broken, "a test that must keep passing fails", str(broken[:1]))
        if task.solution or task.bug or (task.folder and (Path(task.folder) / "solution" / "solve.sh").exists()):
            after = [_judge_reference(task, boxes, seconds) for _ in range(TIMES)]
            failing = next((run for run in after if not run.passed), None)
            _require(failing is None, "the reference fails", failing.why if failing else "")
    except BoxLostError as error:
        raise _NoTaskError("box lost", str(error)) from None
    except BoxFullError as error:
        raise _NoTaskError("no room on disk", str(error)) from None


def _require(condition: bool, reason: str, seen: str = "") -> None:
    if not condition:
        raise _NoTaskError(reason, seen)


def _judge_untouched(task: RepositoryTask, boxes: BoxMaker, seconds: float) -> Judged:
    with closing(boxes.open(task.base)) as box:
        _begin(box, task, seconds)
        return judge_in(box, task, seconds)


def _judge_reference(task: RepositoryTask, boxes: BoxMaker, seconds: float) -> Judged:
    """Judge the reference like a submission."""
    with closing(boxes.open(task.base)) as box:
        _begin(box, task, seconds)
        if task.folder:
            seen = solve(box, Path(task.folder), seconds)
            _require(not seen, "the reference fails", seen)
        else:
            command, diff = (APPLY, task.solution) if task.solution else (REVERSED, task.bug)
            done = box.exec(command, seconds, diff.encode())
            _require(done.status == 0, "the reference does not apply", " ".join(done.output.split())[:200])
        saved = box.save()
    return judge(boxes, task, saved, seconds)


def _begin(box: Box, task: RepositoryTask, seconds: float) -> None:
    try:
        begin(box, task, seconds)
    except UserError as error:
        raise _NoTaskError("the fault does not apply", str(error)) from None


def check_boxes(boxes: BoxMaker, seconds: float) -> None:
    """Judge a known wrong and a known right answer, if these boxes open folders.

    Raises:
        UserError: if either is misjudged, for example because pytest is missing inside.
    """
    with TemporaryDirectory() as folder:
        base = Base(folder)
        try:
            boxes.require(base)
        except UserError:  # these boxes open only images
            return
        (Path(folder) / "answer.py").write_text(WRONG)
        (Path(folder) / "test_answer.py").write_text(TEST)
        task = RepositoryTask("a known answer", base, fail_to_pass=("test_answer.py::test_answer",))
        with closing(boxes.open(base)) as box:
            wrong = judge_in(box, task, seconds)
            box.restore(b"")
            box.write("answer.py", RIGHT.encode())
            right = judge(boxes, task, box.save(), seconds)
    if wrong.passed or not right.passed:
        which, why = ("wrong", "its test passed") if wrong.passed else ("right", right.why)
        raise UserError(
            f"repository.box: a known {which} answer is misjudged here ({why}); install pytest in the box's Python "
            "environment, so that `python3 -m pytest` runs there"
        )
