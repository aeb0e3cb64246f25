"""A chain as Trinity-RFT's selector: its real scheduler, reader and operator; rewards are drawn."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says

pytest.importorskip("trinity")

import numpy as np
from damage import damaged

from halfway.curriculum import UserError

BATCH, SIZE, TASKS, STEPS = 4, 8, 24, 20


def scheduler(
    folder: Path, state: dict[str, Any] | None = None, chain: Any = ("uniform", "greso"), tasks: int = TASKS
) -> Any:
    from trinity.buffer.task_scheduler import get_taskset_scheduler
    from trinity.common.config import Config, DataSelectorConfig, TasksetConfig

    data = folder / "data"
    data.mkdir(exist_ok=True)
    (data / "train.jsonl").write_text(
        "".join(json.dumps({"question": f"q{i}", "answer": "1"}) + "\n" for i in range(tasks))
    )
    config = Config()
    config.buffer.batch_size, config.buffer.total_steps, config.buffer.total_epochs = BATCH, 40, 100
    taskset = TasksetConfig(name="t", path=str(data), split="train")
    taskset.total_epochs, taskset.default_workflow_type = 100, "math_workflow"
    taskset.format.prompt_key, taskset.format.response_key = "question", "answer"
    taskset.batch_size, taskset.repeat_times = BATCH, SIZE
    options = {"chain": list(chain), "num_rollouts": SIZE, "folder": str(folder / "halfway")}
    kind = "halfway.trainers.hosts.trinity.HalfwaySelector"
    taskset.data_selector = DataSelectorConfig(selector_type=kind, seed=0, kwargs=options)
    config.buffer.explorer_input.tasksets = [taskset]
    return get_taskset_scheduler(state or {}, config)


def checkpoint(folder: Path, tasks: Any, step: int) -> dict[str, Any]:
    """The explorer's saved state of its task sets, read when it begins again."""
    from trinity.manager.state_manager import StateManager

    StateManager(str(folder / "monitor"), explorer_name="explorer").save_explorer(step, tasks.state_dict())
    found: dict[str, Any] = StateManager(str(folder / "monitor"), explorer_name="explorer").load_explorer()
    return found


def explore(tasks: Any, steps: int, rng: np.random.Generator) -> None:
    from trinity.buffer.operators.mappers.pass_rate_calculator import PassRateCalculator

    for _ in range(steps):
        done = []
        for task in asyncio.run(tasks.read()):
            rate = (task.index["index"] % 6) / 5
            done += [
                SimpleNamespace(info={"task_index": task.index}, reward=float(rng.random() < rate)) for _ in range(SIZE)
            ]
        tasks.feedback(PassRateCalculator().process(done)[1])


def test_every_group_is_observed_once_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = scheduler(tmp_path)
    explore(whole, STEPS // 2, rng)
    saved = checkpoint(tmp_path, whole, STEPS // 2)
    drawn = rng.bit_generator.state
    explore(whole, STEPS // 2, rng)
    log = tmp_path / "halfway" / "decisions.jsonl"
    before = log.read_bytes()
    groups = [line for line in map(json.loads, before.splitlines()) if line["outcome"] != "skipped"]
    assert len(groups) == STEPS * BATCH and {group["n"] for group in groups} == {SIZE}
    assert any(line["outcome"] == "skipped" for line in map(json.loads, before.splitlines()))
    rng.bit_generator.state = drawn
    explore(scheduler(tmp_path, saved), STEPS // 2, rng)
    assert log.read_bytes() == before


def test_settings_that_cannot_work_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("controllers.prefix_sampling", "Trinity-RFT 0.6")):
        scheduler(tmp_path, chain=["prefix_sampling", "uniform"])
    tasks = scheduler(tmp_path)
    explore(tasks, 2, np.random.default_rng(0))
    saved = checkpoint(tmp_path, tasks, 2)
    with pytest.raises(UserError, match=says("23 training problems", "saved session")):
        scheduler(tmp_path, saved, tasks=TASKS - 1)


def test_a_damaged_state_is_one_line(tmp_path: Path) -> None:
    tasks = scheduler(tmp_path)
    explore(tasks, 2, np.random.default_rng(0))
    saved = checkpoint(tmp_path, tasks, 2)
    before = (tmp_path / "halfway" / "decisions.jsonl").read_bytes()
    selector = tasks.tasksets[0].reader.selector
    for state in damaged(selector.state_dict()["halfway"]):
        with pytest.raises(UserError, match=says("Trinity-RFT 0.6", "checkpoint", "damaged", "another")):
            selector.load_state_dict({"halfway": state})
    assert (tmp_path / "halfway" / "decisions.jsonl").read_bytes() == before
    scheduler(tmp_path, saved)


def test_means_become_counts() -> None:
    from halfway.trainers.hosts.trinity import share, successes

    assert successes(0.375, 8) == 3 and successes(0.0, 8) == 0 and successes(1.0, 8) == 8
    assert successes(3 / 7, 8) == 3, "one episode failed, and is not in the mean"
    assert successes(float(np.float32(1 / 3)), 8) == 2
    with pytest.raises(UserError, match=says("0.37", "0 and 1", "8 rollouts")):
        successes(0.37, 8)
    assert [share(9, i, 2) for i in range(2)] == [5, 4]
