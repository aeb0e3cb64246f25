"""The logs that other tools are given hold what the run's own log holds."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import Script, write_run

from halfway.experiments.audit.reading import read_logs
from halfway.experiments.studies.audit_rivals import Said, said, write_groups, write_scalars, write_verl


def test_one_run_in_three_forms_is_one_run(tmp_path: Path) -> None:
    pytest.importorskip("omegaconf")
    from halfway.experiments.report.records import load_run_records, read_jsonl

    run = load_run_records(write_run(tmp_path / "run", Script(), seed=0, steps=4))
    [own] = read_logs([tmp_path / "run"])
    groups = [replace(group, problem=f"problem {i}") for i, group in enumerate(run.groups)]  # all of a step have one
    for path in (write_verl(groups, tmp_path / "verl.jsonl"), write_groups(groups, tmp_path / "groups.jsonl")):
        [log] = read_logs([path])
        counts = np.stack([log.history.passed_V, log.history.size_V], axis=1)
        assert sorted(counts.tolist()) == sorted(np.stack([own.history.passed_V, own.history.size_V], axis=1).tolist())
    rows, _ = read_jsonl(write_scalars(run, tmp_path / "scalars.jsonl"), dict[str, float | None])
    assert len(rows) == run.num_steps
    first = [group for group in run.groups if group.step == 0]
    assert rows[0]["reward"] == pytest.approx(np.mean([(group.k or 0) / group.size for group in first]))
    assert rows[0]["frac_reward_zero_std"] == pytest.approx(np.mean([group.degenerate for group in first]))


def test_what_a_tool_said_is_its_error_or_its_first_number(tmp_path: Path) -> None:
    script = (
        "import sys; print('tool 1.2.3'); print('read', sys.argv[1]); print('7 findings'); sys.exit(int(sys.argv[2]))"
    )
    found = said("tool", [sys.executable, "-c", script.replace("sys.argv[2]", "'0'")], tmp_path / "log.jsonl")
    assert (found.status, found.log, found.words) == (0, "log", "7 findings")
    failed = Said("tool", "log", 1, "Traceback\n  line 3\n\x1b[31mKeyError: 'rewards'\x1b[0m\n")
    assert failed.words == "KeyError: 'rewards'"
