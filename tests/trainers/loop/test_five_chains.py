"""The digests of `five_chains`: equal for equal runs, and different where a weight or a decision is."""

from pathlib import Path

import torch
from five_chains import CHAINS, build, digests
from loop_harness import records

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
