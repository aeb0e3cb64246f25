"""Arrays of checkpoints and of the event log in binary files."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import says

from halfway.curriculum import Group, Problem, Request, Rollout, Turn, UserError
from halfway.curriculum.states import from_plain, to_plain
from halfway.curriculum.stored import put_group
from halfway.trainers.loop.arrays import CheckpointArrays, array_reader
from halfway.trainers.loop.checkpoint import Checkpoints, LoopState
from halfway.trainers.loop.events import Events, logged_group, pack, unpack
from halfway.trainers.loop.loop_options import CheckpointOptions
from halfway.trainers.loop.manifest import SummedFile, write_manifest
from halfway.trainers.loop.progress import Progress
from halfway.trainers.loop.records import Bytes, JsonLines
from halfway.trainers.rollouts.file_store import FileStore

LENGTH = 1000


def group(number: int, length: int = LENGTH) -> Group:
    """A group of two rollouts with tokens of its own, and the same prompt as all others."""
    random = np.random.default_rng(number)

    def turn() -> Turn:
        values = [random.exponential(size=length).astype(np.float32) for _ in range(2)]
        return Turn(random.integers(0, 150_000, length).astype(np.int32), -values[0], values[1], 3)

    request = Request(Problem(f"p{number}", "", "4"), 2, ticket=f"0.0.{number}")
    return Group(request, np.arange(500, dtype=np.int32), (Rollout((turn(),), True), Rollout((turn(),), False)))


def plain(groups: Sequence[Group]) -> Any:
    return to_plain(tuple(groups))


def write(checkpoints: Checkpoints, step: int, groups: Sequence[Group]) -> int:
    """Write a checkpoint of these groups. Returns the bytes of arrays that came with it."""

    def state(put: Any) -> LoopState:
        return LoopState(Progress(), {"mine": to_plain(tuple(groups), put)}, waiting=tuple(groups))

    checkpoints.write(step, state, lambda folder: None)
    file = checkpoints.path(step) / f"arrays-{step:08d}.bin"
    return file.stat().st_size if file.exists() else 0


def read(folder: Path) -> tuple[Checkpoints, LoopState]:
    checkpoints = Checkpoints(folder, CheckpointOptions())
    latest = checkpoints.latest()
    assert latest is not None
    with checkpoints.reading(latest) as (state, _):
        return checkpoints, state


BYTES = 2 * 3 * 4 * LENGTH  # of a group's arrays without its prompt
PROMPT = 4 * 500


def test_each_array_is_written_once(tmp_path: Path) -> None:
    checkpoints, mine = Checkpoints(tmp_path / "checkpoints", CheckpointOptions()), group(0)
    for step, copy in enumerate([mine, group(0), put_group(mine, FileStore(tmp_path / "payloads"))]):
        assert write(checkpoints, step, [mine, copy, group(1)]) == 2 * BYTES + PROMPT
    assert plain(read(checkpoints.folder)[1].waiting) == plain([mine, mine, group(1)])


def test_what_a_killed_run_left_of_a_checkpoint_goes(tmp_path: Path) -> None:
    (tmp_path / ".step-00000007.partial" / "policy").mkdir(parents=True)
    write(Checkpoints(tmp_path, CheckpointOptions()), 10, [group(0)])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010"]


def test_arrays_that_differ_inside_are_written_apart(tmp_path: Path) -> None:
    arrays, inside = CheckpointArrays(), [0, 1, 1, 0, 2, 1]
    for number in inside:
        arrays.put(np.pad([number], LENGTH))
    places, _ = arrays.write(tmp_path / "arrays-00000001.bin")
    get = array_reader(tmp_path, places)
    assert [get("<i8", [i, 2 * LENGTH + 1])[LENGTH] for i in range(len(inside))] == inside
    assert len(set(places)) == 3


def test_a_damaged_file_of_arrays_spoils_one_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointOptions(keep=3))
    for step in (1, 2, 3):
        write(checkpoints, step, [group(0)])
        if step == 2:
            with (checkpoints.path(2) / "arrays-00000002.bin").open("r+b") as file:
                file.write(b"!")
    assert plain(read(tmp_path)[1].waiting) == plain([group(0)])
    shutil.rmtree(checkpoints.path(3))
    with pytest.raises(UserError, match=says("step-00000002: arrays-00000002.bin", "damaged", "--from 1")):
        read(tmp_path)
    checkpoints.go_back(1)
    assert plain(read(tmp_path)[1].waiting) == plain([group(0)])


def test_a_resumed_run_writes_the_same_files(tmp_path: Path) -> None:
    steps = [[group(i) for i in range(step, step + 3)] for step in range(5)]
    whole = Checkpoints(tmp_path / "whole", CheckpointOptions())
    for step, groups in enumerate(steps):
        write(whole, step, groups)
    cut = Checkpoints(tmp_path / "cut", CheckpointOptions())
    for step, groups in enumerate(steps[:3]):
        write(cut, step, groups)
    resumed, _ = read(tmp_path / "cut")
    for step, groups in enumerate(steps[3:], start=3):
        write(resumed, step, groups)
    for name in ("arrays-00000004.bin", "loop.json", "manifest.txt"):
        assert (resumed.path(4) / name).read_bytes() == (whole.path(4) / name).read_bytes()


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    old = to_plain(LoopState(Progress(), {}, waiting=(group(0, length=20),)))
    assert '"values"' in json.dumps(old) and '"at"' not in json.dumps(old)
    folder = tmp_path / "step-00000001"
    folder.mkdir()
    (folder / "loop.json").write_text(json.dumps(old))
    write_manifest(folder)
    assert plain(read(tmp_path)[1].waiting) == plain([group(0, length=20)])


def test_a_token_takes_twelve_bytes(tmp_path: Path) -> None:
    checkpoints, tokens = Checkpoints(tmp_path, CheckpointOptions()), 8 * 2 * 4096
    write(checkpoints, 1, [group(i, length=4096) for i in range(8)])
    assert sum(path.stat().st_size for path in checkpoints.path(1).iterdir()) <= 13 * tokens
    text, content = pack(group(0, length=4096))
    assert len(text) + len(content) <= 13 * 2 * 4096


def event(folder: Path, mine: Group, tokens: bool) -> dict[str, Any]:
    log = Events(JsonLines(folder / "events.jsonl"), Bytes(folder / "events.bin"), tokens)
    log.done(0.0, mine, (0.0, 1.0))
    last: dict[str, Any] = json.loads((folder / "events.jsonl").read_text().splitlines()[-1])
    return last


def test_the_event_log_keeps_tokens_where_the_chain_reads_them(tmp_path: Path) -> None:
    for number in range(3):
        logged = event(tmp_path, group(number), tokens=True)
        assert plain([logged_group(logged, tmp_path)]) == plain([group(number)])
    assert (tmp_path / "events.bin").stat().st_size == 3 * (BYTES + PROMPT)


def test_the_event_log_keeps_numbers_where_it_reads_none(tmp_path: Path) -> None:
    logged = event(tmp_path, group(1), tokens=False)
    found = logged_group(logged, tmp_path)
    assert (tmp_path / "events.bin").stat().st_size == 0 and len(logged["group"]) < 0.5 * LENGTH * 2
    assert [len(r.turns[0].tokens_T) for r in found.rollouts] == [LENGTH] * 2
    assert not any(r.turns[0].tokens_T.any() or r.turns[0].logprobs_T.any() for r in found.rollouts)
    assert [r.success for r in found.rollouts] == [True, False]


@pytest.mark.parametrize("harm", ["flip", "cut"])
def test_damaged_arrays_of_an_event_are_refused(tmp_path: Path, harm: str) -> None:
    logged = event(tmp_path, group(1), tokens=True)
    content = bytearray((tmp_path / "events.bin").read_bytes())
    content[700] ^= 4
    (tmp_path / "events.bin").write_bytes(content if harm == "flip" else content[:900])
    with pytest.raises(UserError, match=says("events.bin", "damaged", "whole file")):
        logged_group(logged, tmp_path)
    with pytest.raises(UserError, match=says("events.jsonl", "damaged")):
        unpack(logged["group"], b"")


def test_arrays_of_few_numbers_and_of_words_stay_in_the_text(tmp_path: Path) -> None:
    mine = replace(group(0, length=3), prompt_tokens_P=np.arange(4, dtype=np.int32))
    assert pack(mine)[1] == b""
    assert plain([unpack(pack(mine)[0])]) == plain([mine])


@pytest.mark.parametrize("file", ["../step-00000001/loop.json", "/etc/hostname", "loop.json"])
def test_no_other_file_is_read_as_an_array(tmp_path: Path, file: str) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointOptions())
    write(checkpoints, 1, [group(0)])
    state = checkpoints.path(1) / "loop.json"
    plain_state = json.loads(state.read_text())
    plain_state["arrays"][0][0] = file
    state.write_text(json.dumps(plain_state))
    write_manifest(checkpoints.path(1))
    with pytest.raises(UserError, match=says("cannot be read", "not a file of arrays")):
        read(tmp_path)


@pytest.mark.parametrize("sizes", [(), (16,), (5, 11, 16), (7, 30, 3), (100,)])
def test_the_manifest_says_of_a_file_what_its_bytes_say(
    sizes: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfway.trainers.loop.manifest.BLOCK", 16)
    with closing(SummedFile(tmp_path / "a")) as file:
        for size in sizes:
            file.write(memoryview(np.random.default_rng(size).bytes(size)))
    assert (tmp_path / "a").stat().st_size == file.size == sum(sizes)
    write_manifest(tmp_path)
    assert json.loads((tmp_path / "manifest.txt").read_text().splitlines()[0]) == {"a": file.entry}


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (), (2, 3)])
def test_arrays_among_plain_data_keep_their_shapes(shape: tuple[int, ...]) -> None:
    data = json.loads(json.dumps(to_plain(np.ones(shape))))
    restored = from_plain(np.ndarray, data)
    assert restored.shape == shape and restored.dtype == np.float64


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "5", "[" * 5000, '{"a": 5}', '{"a": []}', '{"a": ["x"]}', '{"a": [1]}', '{"a\\u0000": [1, "x"]}'),
        *('{"\\ud800": [1, "x"]}', '{"\\u001b]0;x\\u0007": [1, "x"]}', '{"a": [0' + ",0" * 4_000_000 + "]}"),
    ],
    ids=lambda line: line[:20],
)
def test_a_strange_manifest_that_fits_its_checksum_is_one_line(line: str, tmp_path: Path) -> None:
    write(Checkpoints(tmp_path, CheckpointOptions()), 1, [group(0)])
    content = line.encode()
    checksum = hashlib.sha256(content).hexdigest().encode()
    (tmp_path / "step-00000001" / "manifest.txt").write_bytes(content + b"\n" + checksum)
    with pytest.raises(UserError, match=r"manifest\.txt is damaged|is missing") as refused:
        read(tmp_path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "content", ["[" + "{}," * 4_000_000 + "{}]", '"' + "x" * (257 << 20) + '"'], ids=["values", "text"]
)
def test_a_state_that_would_fill_the_memory_is_one_line(content: str, tmp_path: Path) -> None:
    write(Checkpoints(tmp_path, CheckpointOptions()), 1, [group(0)])
    (tmp_path / "step-00000001" / "loop.json").write_text(f'{{"further": {content}}}')
    write_manifest(tmp_path / "step-00000001")
    with pytest.raises(UserError, match=says("loop.json", "holds more than", "another checkpoint")):
        read(tmp_path)
