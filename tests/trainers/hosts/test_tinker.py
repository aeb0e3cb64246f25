"""A chain as a data set of tinker-cookbook: its real interfaces; the training loop is played."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says

pytest.importorskip("tinker_cookbook")

import numpy as np

import halfway
from halfway.curriculum import UserError

GROUPS, SIZE, STEPS = 4, 8, 20
ROWS = [{"id": f"p{i}", "prompt": f"{i}+1=", "rate": (i % 6) / 5} for i in range(24)]


def dataset(
    folder: Path, rng: np.random.Generator, chain: list[str] | None = None, rows: Any = ROWS, passed: float = 1.0
) -> Any:
    from tinker_cookbook.rl.types import EnvGroupBuilder

    from halfway.trainers.hosts.tinker import Batches, SessionDataset

    class Builder(EnvGroupBuilder):
        def __init__(self, row: dict[str, Any]):
            self.row = row

        async def make_envs(self) -> Any:
            return [object() for _ in range(SIZE)]

        async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
            return [(passed * (rng.random() < self.row["rate"]), {}) for _ in trajectory_group]

    controller = halfway.from_yaml(chain or ["uniform", "greso"])
    batches = Batches(groups=GROUPS, group_size=SIZE, number=100, folder=str(folder))
    return SessionDataset(controller, rows, Builder, batches)


async def rolled_out(builder: Any) -> None:
    envs = await builder.make_envs()
    trajectories = [SimpleNamespace(transitions=[SimpleNamespace(reward=0.0)]) for _ in envs]
    await builder.compute_group_rewards(trajectories, envs)
    await builder.cleanup()


def train(data: Any, first: int, last: int, fails: int = -1) -> None:
    for index in range(first, last):
        for place, builder in enumerate(data.get_batch(index)):
            if place != fails:
                asyncio.run(rolled_out(builder))


async def checkpoint(folder: Path, batch: int) -> int:
    """What the cookbook writes with a checkpoint, by a training client that is played; where it resumes."""
    from tinker_cookbook.checkpoint_utils import get_last_checkpoint, save_checkpoint_async

    async def saved(name: str, **_: Any) -> Any:
        return SimpleNamespace(path=f"tinker://played/{name}")

    client: Any = SimpleNamespace(save_state=saved)
    await save_checkpoint_async(client, f"{batch:06d}", str(folder), loop_state={"batch": batch})
    found = get_last_checkpoint(str(folder))
    return int(found.batch)


def test_every_group_is_observed_once_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = dataset(tmp_path, rng)
    train(whole, 0, STEPS // 2)
    saved = asyncio.run(checkpoint(tmp_path, STEPS // 2))
    drawn = rng.bit_generator.state
    train(whole, STEPS // 2, STEPS + 1)
    log = tmp_path / "decisions.jsonl"
    before = log.read_bytes()
    groups = [line for line in map(json.loads, before.splitlines()) if line["outcome"] != "skipped"]
    assert len(groups) == STEPS * GROUPS and {group["n"] for group in groups} == {SIZE}
    assert any(line["outcome"] == "skipped" for line in map(json.loads, before.splitlines()))
    rng.bit_generator.state = drawn
    train(dataset(tmp_path, rng), saved, STEPS + 1)
    assert log.read_bytes() == before


def test_a_group_that_did_not_come_back_has_failed(tmp_path: Path) -> None:
    train(dataset(tmp_path, np.random.default_rng(0)), 0, 2, fails=1)
    groups = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    assert [(group["n"], group["dropped"]) for group in groups] == [
        (SIZE, {}),
        (SIZE, {}),
        (SIZE, {}),
        (SIZE, {}),
    ]


def test_settings_that_cannot_work_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("controllers.prefix_sampling", "tinker-cookbook")):
        dataset(tmp_path, np.random.default_rng(0), ["prefix_sampling", "uniform"])
    with pytest.raises(UserError, match=says("batch-00000007.json", "resume from a checkpoint")):
        dataset(tmp_path, np.random.default_rng(0)).get_batch(7)
    with pytest.raises(UserError, match=says("reward", "'total reward'", "0.5", "0", "1", "threshold=")):
        train(dataset(tmp_path, np.random.default_rng(0), passed=0.5), 0, 2)
    train(dataset(tmp_path, np.random.default_rng(0)), 0, 2)
    with pytest.raises(UserError, match=says("23 training problems", "saved session")):
        dataset(tmp_path, np.random.default_rng(0), rows=ROWS[1:]).get_batch(1)


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"state": {}}', "[" * 100_000, "digit"])
def test_a_damaged_state_is_one_line(damage: str, tmp_path: Path) -> None:
    train(dataset(tmp_path, np.random.default_rng(0)), 0, 3)
    file = tmp_path / "batch-00000001.json"
    text = file.read_text()
    file.write_text(text.replace('"round": 0', '"round": 7') if damage == "digit" else damage)
    assert file.read_text() != text
    with pytest.raises(UserError, match=says(file, "damaged", "another checkpoint")) as told:
        dataset(tmp_path, np.random.default_rng(0)).get_batch(1)
    assert "\n" not in str(told.value)
