"""The digests of `five_chains` tell runs apart, and the log needs no tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from five_chains import CHAINS, VARIES, build, digests
from loop_harness import records

from halfway.curriculum import Group, Request, Rollout, Stream
from halfway.trainers.contracts import Rollouts
from halfway.trainers.loop.training import Training


def short(folder: Path, chain: str = "plain") -> Training:
    run = build(folder, chain, "in_flight", "steps", steps=2)
    run.train()
    return run


def test_digests_are_equal_for_equal_runs_only(tmp_path: Path) -> None:
    run = short(tmp_path / "one")
    found = digests(tmp_path / "one", run)
    assert digests(tmp_path / "two", short(tmp_path / "two")) == found
    with torch.no_grad():
        next(iter(run.learner.policy.parameters())).view(-1)[0] += 1e-12  # type: ignore[attr-defined]
    changed = digests(tmp_path / "one", run)
    assert changed["weights"] != found["weights"] and changed["log"] == found["log"]
    other = short(tmp_path / "other", "prefix_sampling")
    assert digests(tmp_path / "other", other)["log"] != found["log"]


def test_all_chains_do_what_they_are_for(tmp_path: Path) -> None:
    origins = {}
    for chain in CHAINS:
        build(tmp_path / chain, chain, "waiting", "tokens").train()
        lines = records(tmp_path / chain)
        origins[chain] = {line["origin"] for line in lines} | {line["outcome"] for line in lines}
    assert "prefix" in origins["prefix_sampling"] & origins["pros"]
    assert "stored" in origins["replay"] and "skipped" in origins["frontier_greso"]


@dataclass
class WithoutTokens(Rollouts):
    """Rollouts whose arrays have a length and nothing else: all their zeros are one."""

    rollouts: Rollouts

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return [
            replace(group, rollouts=tuple(map(without_tokens, group.rollouts)))
            for group in self.rollouts.run(requests, stream)
        ]


def without_tokens(rollout: Rollout) -> Rollout:
    names = ("tokens_T", "logprobs_T", "entropies_T", "observation_tokens_O")
    turns = [replace(turn, **{name: nothing(getattr(turn, name)) for name in names}) for turn in rollout.turns]
    return replace(rollout, turns=tuple(turns))


def nothing(array: Any) -> Any:
    return np.broadcast_to(array.dtype.type(0), array.shape)


@pytest.mark.parametrize("way", ["waiting", "in_flight"])
@pytest.mark.parametrize("chain", ["plain", "frontier_greso"])
def test_session_fill_and_log_need_no_tokens(tmp_path: Path, chain: str, way: str) -> None:
    run, other = (build(tmp_path / name, chain, way, "steps", steps=4) for name in ("whole", "without"))
    run.train()
    other.rollouts = WithoutTokens(other.rollouts)
    if other.pool is not None:
        other.pool.rollouts = other.rollouts  # type: ignore[attr-defined]
    other.train()
    assert records(tmp_path / "without") == records(tmp_path / "whole")
    whole, without = steps(tmp_path / "whole"), steps(tmp_path / "without")
    repeated = [[line["responses"].pop("repeated") for line in lines] for lines in (whole, without)]
    assert without == whole
    assert not any(repeated[0]) and any(repeated[1])  # the only count that compares texts


def steps(folder: Path) -> list[dict[str, Any]]:
    """The lines of steps.jsonl without times and without what the learner says."""
    return [{k: v for k, v in line.items() if k not in VARIES | {"learner"}} for line in records(folder, "steps")]
