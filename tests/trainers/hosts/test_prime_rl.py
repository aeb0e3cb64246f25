"""A chain as prime-rl's sampler of tasks. prime-rl is on no package index, so its calls are played."""

import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from damage import damaged
from messages import says
from paths import REPOSITORY, example

import halfway
from halfway.curriculum import UserError
from halfway.trainers.hosts.prime_rl import Batches, SessionSampler

GROUPS, SIZE, TASKS, STEPS = 4, 8, 40, 20
GRESO = ["uniform", {"greso": {"frozen_epochs": 0}}]


def tasks_of(number: int = TASKS) -> list[Any]:
    return [SimpleNamespace(key=f"t{i}", data=SimpleNamespace(idx=i, prompt=f"{i}+1=")) for i in range(number)]


def sampler(folder: Path, chain: list[Any] | None = None, tasks: Any = None, **changes: Any) -> SessionSampler:
    batches = Batches(groups=GROUPS, group_size=SIZE, folder=str(folder), **changes)
    return SessionSampler(halfway.from_yaml(chain or GRESO), tasks or tasks_of(), batches)


def episode(task: Any, reward: float, error: bool = False, agents: int = 1) -> Any:
    agent = SimpleNamespace(trainable=True)
    trace = SimpleNamespace(agent=agent, has_error=error, reward=reward)
    other = SimpleNamespace(agent=SimpleNamespace(trainable=False), has_error=False, reward=0.3)
    return SimpleNamespace(task=task, env=SimpleNamespace(name="sums"), traces=[trace] * agents + [other])


def came_back(task: Any, rng: np.random.Generator) -> list[Any]:
    return [episode(task, float(rng.random() < (task.data.idx % 6) / 5)) for _ in range(SIZE)]


def train(source: Any, rng: np.random.Generator, first: int, last: int) -> None:
    """An orchestrator that waits for a batch, whose groups come back in another order."""
    for step in range(first, last):
        tasks = [source.next_task(step=step).task for _ in range(GROUPS)]
        for place in rng.permutation(GROUPS):
            source.observe(came_back(tasks[place], rng))


class TrainSource:
    """prime-rl's source of tasks as 0.9 has it, for one environment whose own sampler does not matter."""

    def __init__(self, train_envs: list[Any]):
        self.envs, self.samplers = list(train_envs), dict[str, Any]()

    def next_task(self, *, step: int) -> Any:
        return SimpleNamespace(task=next(self.samplers[self.envs[0].name]))

    def observe(self, group: list[Any]) -> None:
        self.samplers[group[0].env.name].observe(group)

    def metrics(self) -> dict[str, float]:
        return {f"sampler/{k}/{name}": x for k, each in self.samplers.items() for name, x in each.metrics().items()}

    def state_dict(self) -> Any:
        return {"envs": {name: {"sampler": each.state_dict()} for name, each in self.samplers.items()}}

    def load_state_dict(self, saved: Any) -> None:
        for name, each in self.samplers.items():
            each.load_state_dict(saved["envs"][name]["sampler"])


def check_resumed(make: Any, folder: Path) -> None:
    """Twenty batches; then the last ten once more, from the checkpoint."""
    rng, log = np.random.default_rng(0), folder / "decisions.jsonl"
    whole = make()
    train(whole, rng, 0, STEPS // 2)
    saved = whole.state_dict()  # torch.save keeps Python's own values
    drawn = rng.bit_generator.state
    train(whole, rng, STEPS // 2, STEPS)
    before = log.read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    groups = [line for line in lines if line["outcome"] != "skipped"]
    assert len(groups) == STEPS * GROUPS and {group["n"] for group in groups} == {SIZE}
    assert any(line["outcome"] == "skipped" for line in lines)
    again = make()
    again.load_state_dict(saved)
    rng.bit_generator.state = drawn
    train(again, rng, STEPS // 2, STEPS)
    assert log.read_bytes() == before


def test_the_pages_script_observes_every_group_once_and_a_resumed_run_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = example("prime_rl.md")
    for old, new in (
        ("groups=64, group_size=16", f"groups={GROUPS}, group_size={SIZE}"),
        ("runs/halfway", str(tmp_path)),
    ):
        assert code.count(old) == 1
        code = code.replace(old, new)
    parts = {"entrypoints.orchestrator": {"main": None}, "orchestrator.train_source": {"TrainSource": TrainSource}}
    for name in ("prime_rl", "prime_rl.entrypoints", "prime_rl.orchestrator", *(f"prime_rl.{part}" for part in parts)):
        module = ModuleType(name)
        vars(module).update(parts.get(name.removeprefix("prime_rl."), {}))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(TrainSource, "__init__", TrainSource.__init__)  # is put back afterwards
    monkeypatch.chdir(REPOSITORY)
    exec(compile(code, "prime_rl.md", "exec"), {"__name__": "steered"})
    env = SimpleNamespace(name="sums", tasks=tasks_of(), num_tasks=TASKS)
    check_resumed(lambda: TrainSource([env]), tmp_path)
    source = TrainSource([env])
    assert isinstance(source.samplers["sums"], SessionSampler)
    train(source, np.random.default_rng(0), 0, 2)
    assert any(name.startswith("sampler/sums/halfway/uniform/") for name in source.metrics())


def test_groups_that_come_late_or_never_are_observed_or_counted_as_lost(tmp_path: Path) -> None:
    """A dispatcher with many groups in flight, which drops some without a word, and others in part."""
    shuffled, rng = random.Random(0), np.random.default_rng(0)
    inner = sampler(tmp_path, patience=10)
    flying = [next(inner) for _ in range(3 * GROUPS)]
    for number in range(160):
        keys = [task.key for task in flying]
        assert len(set(keys)) == len(keys), "no task is in flight twice"
        task = flying.pop(0 if number % 3 == 0 else shuffled.randrange(len(flying)))  # none waits for ten batches
        group = came_back(task, rng)
        if number % 10 == 1:
            group[0] = episode(task, 0.0, error=True)
        if number % 10 == 2:
            group = group[:-2]
        if number % 10 != 3:  # else it is stale
            inner.observe(group)
        flying.append(next(inner))
    session = inner.fetching.hosting.session
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    groups = [line for line in lines if line["outcome"] != "skipped"]
    assert all(group["n"] + sum(group["dropped"].values()) == SIZE for group in groups)
    assert {tuple(group["dropped"]) for group in groups} == {(), ("cancelled",), ("stale",)}
    assert all(session.step - ticket.request.step <= 11 for ticket in session.tickets_in_flight())
    inner.observe(came_back(SimpleNamespace(key="other", data=SimpleNamespace(idx=0)), rng))  # is nothing of ours


def test_a_damaged_state_is_one_line(tmp_path: Path) -> None:
    whole, rng = sampler(tmp_path), np.random.default_rng(0)
    for _ in range(GROUPS + 1):
        whole.observe(came_back(next(whole), rng))
    before = (tmp_path / "decisions.jsonl").read_bytes()
    again = sampler(tmp_path)
    for state in damaged(whole.state_dict()):
        with pytest.raises(UserError, match=says("prime-rl's checkpoint", "damaged", "another checkpoint")):
            again.load_state_dict(state)
    assert (tmp_path / "decisions.jsonl").read_bytes() == before
    again.load_state_dict(whole.state_dict())


def test_settings_that_cannot_work_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("controllers.prefix_sampling", "prime-rl")):
        sampler(tmp_path, ["prefix_sampling", "uniform"])
    with pytest.raises(UserError, match=says("tasks", "'list_iterator'", "num_tasks")):
        sampler(tmp_path, tasks=iter(tasks_of()))
    inner = sampler(tmp_path)
    with pytest.raises(UserError, match=says("reward", "'reward'", "0.5", "0", "1", "threshold=")):
        inner.observe([episode(next(inner), 0.5)])
    inner = sampler(tmp_path)
    with pytest.raises(UserError, match=says("train.env", "2 trainable traces")):
        inner.observe([episode(next(inner), 1.0, agents=2)])
    with pytest.raises(UserError, match=says("39 training problems", "saved session")):
        sampler(tmp_path, tasks=tasks_of(39)).load_state_dict(inner.state_dict())
