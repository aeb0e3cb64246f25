"""Task sets of the package verifiers that mean harm: none runs without a word, and what their rewards do is a line."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp
from textwrap import indent

import pytest

pytest.importorskip("verifiers.v1")

from messages import says
from strangers.mutations import CANARY, mutated

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks import tasksets
from halfway.curriculum.tasks.tasksets import TaskSet
from halfway.curriculum.tasks.verifiers import helpers, task_rewards
from halfway.curriculum.tasks.verifiers.exact_numeric import Lost
from halfway.curriculum.tasks.verifiers.verify import verify_all

HOSTILE = """\
import os, sys, time
from pathlib import Path
import verifiers.v1 as vf

Path({canary!r}).touch()


class OneTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def hostile(self, trace: vf.Trace) -> float:
{reward}


class OneTaskset(vf.Taskset[OneTask, vf.TasksetConfig]):
    def load(self):
        yield OneTask(vf.TaskData(prompt={prompt!r}), self.config.task)


__all__ = ["OneTaskset"]
"""
REWARDS = {
    "no number": 'return float("nan")',
    "without bound": 'return float("inf")',
    "a text": 'return "1\\x1b[2J"',
    "nothing": "return None",
    "a list": "return [1.0] * 10**6",
    "an exception": 'raise RuntimeError("\\x1b[2J\\n\\u202e" + "x" * 10**6)',
    "an exception of its own": 'raise type("\\x1b[2J", (Exception,), {})()',
    "an end": "raise SystemExit(0)",
    "an interruption": "raise KeyboardInterrupt",
    "the end of its process": "os._exit(0)",
    "a long time": "time.sleep(600)",
}
FOLDER = Path(mkdtemp())


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    helpers._get_helpers.cache_clear()  # those of an earlier file have its path
    yield
    sys.path.remove(str(FOLDER))
    rmtree(FOLDER)


def problem(name: str, monkeypatch: pytest.MonkeyPatch, reward: str = "return 1.0", prompt: str = "1+1=") -> Problem:
    """The only task of a new task set, which is accepted."""
    text = HOSTILE.format(canary=str(FOLDER / CANARY), reward=indent(reward, " " * 8), prompt=prompt)
    (FOLDER / f"{name}.py").write_text(text)
    monkeypatch.setenv("HALFWAY_ACCEPT", f"taskset:{name}")
    [only] = TaskSet(name).load(None, Stream(0)).problems
    return only


@pytest.mark.parametrize("name", REWARDS)
def test_a_hostile_reward_is_a_lost_rollout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_rewards, "SECONDS", 3.0)
    hostile = problem(f"hostile_{list(REWARDS).index(name)}", monkeypatch, REWARDS[name])
    try:
        [verdict] = verify_all([hostile], ["2"])
    except UserError as error:
        assert str(error).isprintable()
    else:
        assert verdict is False or isinstance(verdict, Lost)
        assert not isinstance(verdict, Lost) or (str(verdict).isprintable() and len(str(verdict)) < 4000)


def test_the_output_of_a_reward_is_discarded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shout = 'os.write(1, b"\\x1b[2J{}" * 99); os.write(2, b"\\x1b[2J"); print("\\x1b[2J", file=sys.stderr)\nreturn 1.0'
    assert verify_all([problem("shouting", monkeypatch, shout)] * 3, ["2"] * 3) == [True] * 3
    assert "\x1b" not in "".join(capfd.readouterr())


def test_a_prompt_of_control_characters_is_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = "\x1b[2J\x00\u202e<script>"
    found = problem("odd_prompt", monkeypatch, prompt=prompt)
    assert found.prompt == prompt and found.id.isprintable() and found.source == "taskset/odd_prompt"


@pytest.mark.parametrize(
    "name", ["../hostile", "/hostile", "hostile.py", "os.path", "", "a b", "x\ny", "owner/../hostile"]
)
def test_no_name_runs_unaccepted_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem("hostile", monkeypatch)
    (FOLDER / CANARY).unlink()
    sys.modules.pop("hostile")
    tasksets._open_taskset.cache_clear()
    for word in ("", f"taskset:{name}", "taskset:another"):
        monkeypatch.setenv("HALFWAY_ACCEPT", word)
        with pytest.raises(UserError, match=says("source taskset")):
            TaskSet(name).load(None, Stream(0))
        assert not (FOLDER / CANARY).exists()


def test_changed_tasks_of_a_file_are_verdicts_or_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = problem("changed", monkeypatch)
    chance = Random(0)
    for _ in range(150):
        answer = mutated("answer.json", sound.answer.encode(), chance).decode("utf-8", "replace")
        try:
            [verdict] = verify_all([Problem("p", "?", answer, "s", "taskset")], ["2"])
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 4000
        else:
            assert isinstance(verdict, bool | Lost)
    assert not Path(CANARY).exists() and json.loads(sound.answer)["taskset"] == "changed"


def test_changed_configurations_are_one_line_or_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    problem("configured", monkeypatch)
    sound = {"task": {"rewards": {"hostile": {"weight": 1.0}}, "metrics": {}, "stops": {}, "judges": []}, "id": "a"}
    chance, loaded, refused = Random(0), 0, 0
    for _ in range(300):
        text = mutated("config.json", json.dumps(sound).encode(), chance)
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(config, dict):
            continue
        try:
            loaded += len(TaskSet("configured", config).load(None, Stream(0)).problems)
        except UserError as error:
            refused += 1
            assert str(error).isprintable() and len(str(error)) < 4000
    assert loaded and refused and not Path(CANARY).exists()
