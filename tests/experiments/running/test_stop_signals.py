"""SIGTERM and Ctrl-C: a run ends before or after its step, with a checkpoint, and continues to the same bits."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from paths import IMPORTABLE, count_lines
from preloaded import Command, Preloaded

from halfway.experiments.comparing.processes import MODULES
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running import stop_signals
from halfway.experiments.running.build import build_run
from halfway.experiments.running.runs import read_state

RUN = """
problems: {source: running_sums, train: 16}
model: {path: experiments/starting_models/sums}
controllers: [uniform, retire]
fill: {groups: 3}
rollouts: {num_rollouts: 4, max_response_tokens: 32}
learner: {lr: 1e-3}
budget: {steps: STEPS}
evaluation: {points: 2, samples: 2, problems: 2}
checkpoint: {every: 1000}
tracking: {mlflow: false}
threads: 1
"""
PATIENCE_SECONDS = 120


def await_that(what: Callable[[], bool], process: Command) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert process.runs() and time.monotonic() < deadline
        time.sleep(0.02)


def lines_of(folder: Path) -> int:
    return count_lines(folder / "steps.jsonl")


def children_of(pid: int) -> list[int]:
    """All processes below a process."""
    table: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            table.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    own = table.get(pid, [])
    return own + [below for child in own for below in children_of(child)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_ends_after_its_step_with_a_checkpoint(
    preloaded: Preloaded, tmp_path: Path, number: int, code: int
) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("STEPS", "1000"))
    folder = tmp_path / "runs" / "run"
    process = preloaded.begin(tmp_path, "run", "run.yaml", "--quiet")
    await_that(lambda: lines_of(folder) > 0, process)
    process.send_signal(number)
    status, said = process.ended(stop_signals.LEAVE_SECONDS + 30)
    assert status == code, said
    assert "halfway resume runs/run" in said and len(said.split("\n")) <= 3
    assert read_state(folder) == "stopped"
    [saved] = (folder / "checkpoints").glob("step-*")
    assert int(saved.name.removeprefix("step-")) == lines_of(folder)


STOPPED = "stopped; continue with: halfway resume runs/run"


def test_a_signal_before_the_first_step_names_the_command_too(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("STEPS", "1"))
    process = preloaded.begin(tmp_path, "run", "run.yaml", "--quiet")
    await_that((tmp_path / "runs" / "run" / "provenance.json").exists, process)
    process.send_signal(signal.SIGTERM)
    status, said = process.ended(60)
    assert status == 143 and said.strip() == STOPPED


def finished(folder: Path) -> bool:
    return (folder / "status.json").exists() and read_state(folder) == "finished"


def test_a_signal_in_the_report_names_the_command_too(preloaded: Preloaded, tmp_path: Path) -> None:
    """A signal between the end of the training and the report changes nothing, so several instants are tried."""
    ends = []
    for late in (0.0, 0.05, 0.1, 0.2, 0.4):
        place = tmp_path / str(late)
        place.mkdir()
        (place / "run.yaml").write_text(RUN.replace("STEPS", "1"))
        folder = place / "runs" / "run"
        # With an empty cache a report takes two seconds.
        process = preloaded.begin(place, "run", "run.yaml", "--quiet", XDG_CACHE_HOME=str(place))
        await_that(partial(finished, folder), process)
        time.sleep(late)
        process.send_signal(signal.SIGTERM)
        status, said = process.ended(60)
        ends.append((status, said.strip()))
        if status:
            break
    assert ends[-1] == (143, STOPPED), ends


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_survey_ends_with_a_line_and_keeps_what_it_tried(
    preloaded: Preloaded, tmp_path: Path, number: int, code: int
) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("STEPS", "1"))
    tried = tmp_path / "runs" / "run-survey" / "records.jsonl"
    words = ("survey", "run.yaml", "problems.train=640", "--problems", "640", "--samples", "8", "--quiet")
    process = preloaded.begin(tmp_path, *words)
    await_that(lambda: count_lines(tried) > 0, process)
    process.send_signal(number)
    status, said = process.ended(60)
    assert status == code and said.strip() == "stopped; continue with the same command"
    assert 0 < count_lines(tried) < 640


def test_a_comparison_ends_all_of_its_runs_with_checkpoints(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("budget: {steps: STEPS}\n", ""))
    (tmp_path / "both.yaml").write_text(
        "base: {base: run.yaml}\narms: {one: {}, two: {controllers: [uniform]}}\nseeds: [0]\nbudget: {steps: 1000}\n"
    )
    folders = [tmp_path / "runs" / "both" / arm / "seed-0" for arm in ("one", "two")]
    process = preloaded.begin(tmp_path, "compare", "both.yaml", "--jobs", "2", "--quiet")
    await_that(lambda: all(map(lines_of, folders)), process)
    below = children_of(process.pid)
    assert len(below) >= 2
    process.send_signal(signal.SIGTERM)
    status, said = process.ended(60)
    assert status == 143 and "halfway resume runs/both" in said
    for folder in folders:
        assert read_state(folder) == "stopped"
        [saved] = (folder / "checkpoints").glob("step-*")
        assert int(saved.name.removeprefix("step-")) == lines_of(folder)
    deadline = time.monotonic() + 20
    while left := [pid for pid in below if alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.fixture
def forked_samplers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Samplers are forks of a process that has imported what they need, and no fresh Pythons."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(MODULES))
    monkeypatch.setattr(multiprocessing, "get_context", lambda how: context)
    yield
    vars(forkserver)["_forkserver"]._stop()  # other tests begin theirs with other variables


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("how", ["left in rollouts", "left in the update", "finished", "finished the last"])
def test_a_stopped_run_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_samplers: None, how: str, staleness: int
) -> None:
    if staleness and how != "left in rollouts":
        pytest.skip("one way is enough for a process that samples")
    (tmp_path / "run.yaml").write_text(RUN.replace("STEPS", "4"))
    changes = [f"rollouts.staleness={staleness}", "learner.mismatch=token_masked"] if staleness else []
    config = load_run_config(tmp_path / "run.yaml", changes)
    build_run(config, tmp_path / "peace").train()
    in_files = ["rollouts.payloads=files"] if how == "left in rollouts" else []  # which changes nothing
    stopped = build_run(load_run_config(tmp_path / "run.yaml", [*changes, *in_files]), tmp_path / "stopped")
    asked = False

    def interrupt(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        if stopped.progress.step == (3 if how == "finished the last" else 2):
            asked = True
            if how.startswith("left"):
                raise stop_signals.Interrupted(signal.SIGTERM)
        return original(*arguments, **options)

    owner, name = (stopped.session, "commit") if how == "left in rollouts" else (stopped.learner, "update")
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, interrupt)
    stopped.stop = lambda: asked
    if how.startswith("finished"):
        stopped.train()
    else:
        with pytest.raises(KeyboardInterrupt):
            stopped.train()
    assert json.loads((tmp_path / "stopped" / "status.json").read_text())["state"] == "stopped"
    saved = [int(path.name.removeprefix("step-")) for path in (tmp_path / "stopped" / "checkpoints").glob("step-*")]
    wanted = {"left in rollouts": [2], "left in the update": [], "finished": [3], "finished the last": [4]}
    payloads = tmp_path / "stopped" / "payloads"
    assert saved == wanted[how] and not payloads.exists()
    payloads.mkdir()
    (payloads / "group").touch()  # as if it had been killed
    build_run(config, tmp_path / "stopped").train()
    assert not payloads.exists()
    last = "checkpoints/step-00000004/policy/model.safetensors"
    for part in ("decisions.jsonl", last):
        assert (tmp_path / "peace" / part).read_bytes() == (tmp_path / "stopped" / part).read_bytes()
    evaluations = [(tmp_path / name / "evaluations.jsonl").read_text().count("\n") for name in ("peace", "stopped")]
    assert evaluations == [3, 3]
    loops = [tmp_path / name / "checkpoints/step-00000004/loop.json" for name in ("peace", "stopped")]
    assert [json.loads(path.read_text())["progress"]["evaluations"] for path in loops] == [3, 3]


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """Even where a step would never end."""
    program = (
        "import os, sys, time\nfrom halfway.experiments.running.stop_signals import heed_signals\n"
        "with heed_signals() as ending:\n print('ready', flush=True)\n"
        " while True:\n  time.sleep(0.01)\n  if ending(): print('heard', flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "heard\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130 and time.monotonic() - began < 5


def test_a_step_that_lasts_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signals, "LEAVE_SECONDS", 0.1)
    with pytest.raises(stop_signals.Interrupted) as left, stop_signals.heed_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    assert stop_signals.exit_code(left.value) == 143


def test_a_supervised_process_ignores_a_second_signal() -> None:
    with stop_signals.heed_signals(supervised=True, leaves=False) as ending:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert ending() and ending.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_rank_whose_first_process_does_not_answer_is_ended_by_a_signal(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("STEPS", "1"))
    with socket.create_server(("127.0.0.1", 0)) as first:
        place = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(first.getsockname()[1])}
        process = preloaded.begin(tmp_path, "run", "run.yaml", "--quiet", **place, **meeting)
        first.settimeout(PATIENCE_SECONDS)
        with first.accept()[0]:
            process.send_signal(signal.SIGTERM)
            assert process.ended(20)[0] == -signal.SIGTERM


@pytest.mark.parametrize("scope", ["heed_signals", "interrupt_on_signals"])
def test_a_signal_that_a_background_job_ignores_stays_ignored(scope: str) -> None:
    """A script's shell starts its background jobs so; SIGTERM still ends them."""
    program = (
        f"import os, signal, sys\nfrom halfway.experiments.running.stop_signals import {scope}\n"
        f"with {scope}():\n os.kill(os.getpid(), signal.SIGINT)\n"
        " assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        " assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL\n print('still here')\n"
    )
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0 and done.stdout == "still here\n", done.stderr
