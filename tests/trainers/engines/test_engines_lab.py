"""The lab's chain of controllers learns as much on one engine as on another."""

from pathlib import Path

import pytest

from halfway.experiments.benchmarks.engines import COLUMNS, Column, disagreements, table, train

STEPS = 8


def column(engine: str, after: float, stderr: float = 0.02) -> Column:
    return Column(engine, 0, 0.3, stderr, after, stderr, 100, 1000, 1.0, 1e-6)


def test_rises_are_told_apart_by_their_intervals() -> None:
    alike = [column("transformers", 0.6), column("vllm", 0.65)]
    assert disagreements(alike) == [] and "no two rises differ" in table(alike, "command")
    assert len(disagreements([column("transformers", 0.6), column("vllm", 0.75)])) == 1
    assert "no clear rise" in disagreements([column("vllm", 0.35)])[0]


@pytest.mark.slow
@pytest.mark.engines
def test_the_chain_learns_as_much_on_every_engine(tmp_path: Path) -> None:
    """The third column is two vLLM servers, and a learner of two ranks under ZeRO-3."""
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)")
    columns = [train(engine, 0, STEPS, tmp_path) for engine in COLUMNS]
    assert disagreements(columns) == []
    assert all(c.engine_gap < 1e-4 for c in columns)
