"""Task sets of the package verifiers as problems, with a package of tasks made here."""

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from messages import says
from msgspec import structs

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.tasks import tasksets
from halfway.curriculum.tasks.files import File, write_problems
from halfway.curriculum.tasks.tasksets import TaskSet
from halfway.curriculum.tasks.verifiers.helpers import take_counts
from halfway.curriculum.tasks.verifiers.verify import verify_all

SUMS = """\
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData]):
    {more}

    @vf.reward(weight=0.75)
    async def correct(self, trace: vf.Trace{argument}) -> float:
        if "boom" in trace.last_reply:
            raise RuntimeError("the judge is down")
        if "nan" in trace.last_reply:
            return float("nan")
        return float(str(self.data.answer) in trace.last_reply.split())

    @vf.reward(weight=0.25)
    async def asked(self, trace: vf.Trace) -> float:
        return float([node.message.role for node in trace.nodes] == {roles})


class SumConfig(vf.TasksetConfig):
    number: int = 20


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    {set}

    def load(self):
        for i in range(self.config.number):
            yield SumTask(SumData(prompt={prompt}, system_prompt={system}, answer=2 * i), self.config.task)


__all__ = ["SumTaskset"]
"""
PLAIN = {"more": "", "argument": "", "roles": ["user", "assistant"], "set": "", "prompt": 'f"{i}+{i}="', "system": None}


FOLDER = Path(mkdtemp())  # on the path before the first helper starts
NUMBERS = count()


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    rmtree(FOLDER)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a plain task set, which is accepted."""
    name = write(monkeypatch)
    yield name
    forget(name)


def write(monkeypatch: pytest.MonkeyPatch, **changes: object) -> str:
    """A new module with a task set, by its name."""
    pytest.importorskip("verifiers.v1")
    name = f"sums_{next(NUMBERS)}"
    (FOLDER / f"{name}.py").write_text(SUMS.format(**PLAIN | changes))
    monkeypatch.setenv("HALFWAY_ACCEPT", f"taskset:{name}")
    return name


def forget(name: str) -> None:
    sys.modules.pop(name, None)
    tasksets._open_taskset.cache_clear()


def answer_of(problem: Problem) -> str:
    return str(json.loads(problem.answer)["data"]["answer"])


def test_tasks_are_problems_and_rewards_verdicts(sums: str) -> None:
    loaded = TaskSet(sums, {"number": 4}).load(None, Stream(0))
    assert {p.prompt: answer_of(p) for p in loaded.problems} == {"0+0=": "0", "1+1=": "2", "2+2=": "4", "3+3=": "6"}
    assert len({p.id for p in loaded.problems}) == 4 and all(not p.messages for p in loaded.problems)
    assert TaskSet(sums, {"number": 4}).load(None, Stream(0)).problems == loaded.problems
    problems = list(loaded.problems)
    right = [f"it is {answer_of(problem)}" for problem in problems]
    assert verify_all(problems, right) == [True] * 4
    assert verify_all(problems, ["it is 77"] * 4) == [False] * 4
    lenient = TaskSet(sums, passes_at=0.25).load(None, Stream(0)).problems
    assert verify_all(lenient[:1], ["it is 77"]) == [True]  # the other reward is enough
    assert TaskSet(sums, heldout_config={"number": 2}).heldout() == TaskSet(sums, {"number": 2})


def test_a_rollout_whose_rewards_raise_is_lost_and_not_a_failure(sums: str) -> None:
    take_counts()
    environment = SingleTurn()
    problems = TaskSet(sums, {"number": 2}).load(None, Stream(0)).problems * 2
    texts = [answer_of(problems[0]), "boom", "77", "nan"]
    results = environment.step(environment.start([problems[0]] * 4), texts)
    assert [result.success for result in results] == [True, None, False, None]
    assert "judge is down" in results[1].lost and "nan" in results[3].lost and take_counts() == {}


def test_problems_are_judged_alike_when_they_come_from_a_file(sums: str, tmp_path: Path) -> None:
    problems = TaskSet(sums, {"number": 3}).load(None, Stream(0)).problems
    write_problems(problems, str(tmp_path / "p.jsonl"))
    file = File(path=str(tmp_path / "p.jsonl"), id_column="id", verifier_column="verifier")
    again = file.load(None, Stream(0)).problems
    assert verify_all(again, [answer_of(problem) for problem in again]) == [True] * 3


def test_code_runs_only_with_a_word(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = TaskSet(sums, {"number": 2}).load(None, Stream(0)).problems
    forget(sums)
    monkeypatch.setenv("HALFWAY_ACCEPT", "taskset:another")
    for run in (lambda: TaskSet(sums).load(None, Stream(0)), lambda: verify_all(problems, ["1"] * 2)):
        with pytest.raises(UserError, match=says("taskset", sums, f"HALFWAY_ACCEPT=taskset:{sums}")):
            run()
    assert sums not in sys.modules


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"argument": ", runtime: vf.Runtime"}, "correct"),
        ({"more": "async def setup(self, trace, runtime): ..."}, "setup"),
        ({"more": "NEEDS_CONTAINER = True"}, "container"),
        ({"more": "toolsets = classmethod(lambda cls, config: [object()])"}, "tools"),
        ({"set": "toolsets = classmethod(lambda cls, config: [object()])"}, "tools"),
        ({"prompt": None}, "without a prompt"),
        ({"prompt": '[vf.ToolMessage(tool_call_id="1", content="x")]'}, "more than text"),
        ({"set": "INFINITE = True"}, "problems.train"),
        ({"prompt": "1 / 0"}, "ZeroDivisionError"),
    ],
)
def test_task_sets_that_need_more_than_a_response_are_refused(
    changes: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write(monkeypatch, **changes)
    with pytest.raises(UserError, match=says("source taskset", name, said)):
        TaskSet(name).load(None, Stream(0))
    forget(name)


@pytest.mark.parametrize(
    ("task", "said"),
    [({"judges": [{"id": "reference"}]}, "judges"), ({"rewards": {"x": {"fn": "evil.py:f"}}}, "rewards.x.fn")],
)
def test_a_configuration_brings_no_code_and_no_judge(task: object, said: str, sums: str) -> None:
    with pytest.raises(UserError, match=says("source taskset", sums, said)):
        TaskSet(sums, {"task": task}).load(None, Stream(0))


def test_a_name_that_does_not_exist_and_an_unknown_option_are_one_line(
    sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=says("source taskset", sums, "numbr")):
        TaskSet(sums, {"numbr": 3}).load(None, Stream(0))
    monkeypatch.setenv("HALFWAY_ACCEPT", "taskset:nobody_has_this")
    with pytest.raises(UserError, match=says("source taskset", "nobody_has_this", "not found")):
        TaskSet("nobody_has_this").load(None, Stream(0))


def test_a_system_prompt_makes_messages_which_rewards_see(monkeypatch: pytest.MonkeyPatch) -> None:
    name = write(monkeypatch, system='"Be brief."', roles=["system", "user", "assistant"])
    [problem] = TaskSet(name, {"number": 1}).load(None, Stream(0)).problems
    assert [(m.role, m.content) for m in problem.messages] == [("system", "Be brief."), ("user", "0+0=")]
    assert verify_all([problem], ["0"]) == [True]
    forget(name)


def test_an_answer_of_another_kind_is_refused() -> None:
    for answer in ("5", "{}", '{"taskset": 1}'):
        with pytest.raises(UserError, match=says("verifier taskset", "'p'")):
            verify_all([Problem("p", "?", answer, "s", "taskset")], ["5"])


def test_a_task_set_that_is_gone_is_an_error_and_no_loss(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [problem, *_] = TaskSet(sums).load(None, Stream(0)).problems
    gone = structs.replace(problem, answer=problem.answer.replace(sums, "gone"))
    monkeypatch.setenv("HALFWAY_ACCEPT", "taskset:gone")
    with pytest.raises(UserError, match=says("verifier taskset", "'gone'", problem.id)):
        verify_all([gone], ["5"])
