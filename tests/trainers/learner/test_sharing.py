"""Every process's share of a batch."""

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_harness import OPTIONS, random_groups

from halfway.curriculum.stored import join, put_group
from halfway.trainers.learner.batch import TrainingSequence, make_batch
from halfway.trainers.learner.microbatches import scatter
from halfway.trainers.learner.sharing import Runs, Share, divide
from halfway.trainers.rollouts.file_store import FileStore, StoredFile

PROCESSES = 3
LATE = [replace(group, lag=lag) for lag, group in enumerate(random_groups(0))]
ENGINE = replace(OPTIONS, old_logprobs="engine")


def assert_equal(one: TrainingSequence, other: TrainingSequence, but: set[str]) -> None:
    for field in fields(TrainingSequence):
        if field.name not in but | {"context"}:
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


@pytest.mark.parametrize("options", [OPTIONS, ENGINE], ids=["policy", "engine"])
def test_all_processes_know_the_outlines_and_have_what_they_read(options: object) -> None:
    batch = make_batch(LATE, options)  # type: ignore[arg-type]
    reads = [set(range(rank, len(batch.sequences), PROCESSES)) for rank in range(PROCESSES)]
    for read, sent in zip(reads, divide(batch, reads), strict=True):
        share: Share = pickle.loads(pickle.dumps(sent))
        own = share.batch()
        assert own.left_out == batch.left_out and share.contents.keys() == read
        for i, (one, other) in enumerate(zip(batch.sequences, own.sequences, strict=True)):
            content = {"tokens_T", "engine_logprobs_T", "old_logprobs_T"}
            assert_equal(one, other, set() if i in read else content)
            assert (other.old_logprobs_T is None) == (one.old_logprobs_T is None)
            assert other.length == one.length and (i in read or not other.tokens_T.any())


def test_processes_agree_on_who_reads_what_whatever_they_have() -> None:
    groups = [*LATE, *random_groups(0)]  # the same prompts again
    batch = make_batch(groups, OPTIONS)
    wanted = scatter(batch.sequences, 64, PROCESSES, share=True)  # which compares tokens
    for share in divide(batch, [{0, 5}, set()]):
        assert {sequence.context for sequence in share.batch().sequences} == set(range(len(LATE)))
        assert scatter(share.batch().sequences, 64, PROCESSES, share=True) == wanted


def test_the_planner_reads_no_stored_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads = FileStore(tmp_path / "payloads"), list[int]()
    stored = [put_group(group, store) for group in LATE]
    read = StoredFile.read
    monkeypatch.setattr(StoredFile, "read", lambda *call: reads.append(1) or read(*call))  # type: ignore[func-returns-value]
    shares = divide(make_batch(stored, OPTIONS, join), [{0, 3}, set()])
    sent = pickle.dumps(shares)
    assert not reads
    [own, other] = [share.batch() for share in pickle.loads(sent)]
    assert reads
    for i, whole in enumerate(make_batch(LATE, OPTIONS).sequences):
        assert_equal(whole, own.sequences[i], set() if i in (0, 3) else {"tokens_T", "engine_logprobs_T"})
        assert not other.sequences[i].tokens_T.any()


@given(st.lists(st.integers(-3, 3), min_size=1), st.sampled_from([np.int32, np.bool_]))
def test_runs_are_the_array(values: list[int], kind: type) -> None:
    array = np.asarray(values, kind)
    runs = Runs.of(array)
    assert runs.array().tolist() == array.tolist() and runs.array().dtype == array.dtype
    assert (runs.values[1:] != runs.values[:-1]).all()
