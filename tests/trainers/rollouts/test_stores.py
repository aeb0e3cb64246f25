"""Where the arrays of rollouts lie changes no result."""

import errno
import gc
import importlib
import pickle
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from five_chains import Place, build, digests, finish, in_files, in_ray
from loop_harness import records, training
from messages import says
from preloaded import Preloaded

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn, UserError
from halfway.curriculum.states import from_plain, to_plain
from halfway.curriculum.stored import FIELDS, StoredArray, identity, join, put_group
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.distributed.ports import free_port
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.rollouts import file_store, ray_pool
from halfway.trainers.rollouts.file_store import FileStore
from halfway.trainers.rollouts.in_flight import InlinePool
from halfway.trainers.rollouts.ray_pool import RayArrays, RayPool, RayScatter, connect_to_ray


class Counting:
    """A store in memory that counts how often it is read."""

    content, reads, name = b"", 0, "rollouts.payloads: memory"

    def put(self, content: bytes) -> "Counting":
        self.content = content
        return self

    def read(self, start: int, size: int) -> bytes:
        self.reads += 1
        return self.content[start : start + size]


def group(texts: tuple[tuple[int, ...], ...] = ((1, 2, 3), (4, 5))) -> Group:
    turns = [
        Turn(
            np.array(text, np.int32), np.linspace(-1, 0, len(text), dtype=np.float32), np.ones(len(text), np.float32), 0
        )
        for text in texts
    ]
    rollouts = tuple(Rollout((turn,), success=False) for turn in turns)
    return Group(Request(Problem("p", "", ""), len(texts)), np.array([7, 8], np.int32), rollouts)


def arrays(of: Group) -> list[Any]:
    return [getattr(turn, name) for rollout in of.rollouts for turn in rollout.turns for name in FIELDS]


def test_a_stored_array_is_read_when_its_values_are_used() -> None:
    store = Counting()
    stored = put_group(group(), store)
    tokens_T: Any = stored.rollouts[1].turns[0].tokens_T
    assert isinstance(tokens_T, StoredArray)
    assert (len(tokens_T), tokens_T.shape, tokens_T.dtype, stored.num_generated) == (2, (2,), np.int32, 5)
    assert store.reads == 0
    assert tokens_T[1:].tolist() == [5] and tokens_T.tolist() == [4, 5] and store.reads == 2
    assert np.concatenate([tokens_T, [9]]).tolist() == [4, 5, 9]
    assert np.where([True, False], tokens_T, 0).tolist() == [4, 0]
    assert (tokens_T == 4).tolist() == [True, False] and (1 + tokens_T > 5).tolist() == [False, True]
    with pytest.raises(AttributeError):
        _ = tokens_T.nothing


def test_stored_arrays_equal_those_before() -> None:
    before = group()
    for old, new in zip(arrays(before), arrays(put_group(before, Counting())), strict=True):
        assert np.asarray(new).dtype == old.dtype and np.asarray(new).tolist() == old.tolist()
    empty = group(())
    assert put_group(empty, Counting()) is empty


def test_equal_texts_are_known_without_reading() -> None:
    store = Counting()
    one, same, other = (put_group(group(texts), store) for texts in (((1, 2), (1, 2)), ((1, 2),), ((2, 1),)))
    first = [identity(one_of.rollouts[0].turns[0].tokens_T) for one_of in (one, same, other)]
    assert first[0] == first[1] != first[2] and store.reads == 0
    assert first[0] == identity(np.array([1, 2], np.int32))


@pytest.mark.parametrize(
    "where", [np.s_[:2], np.s_[-2:2], np.s_[1:2], np.s_[2::-1], np.s_[0:2:2], np.s_[3:1], np.s_[4]]
)
def test_slices_of_joined_arrays_are_numpys(where: Any) -> None:
    parts = np.arange(3), np.arange(3, 6)
    stored = [StoredArray(Counting().put(part.tobytes()), part.dtype, 3, 0, identity(part)) for part in parts]
    assert np.array_equal(join(stored)[where], np.concatenate(parts)[where])


def test_a_checkpoint_holds_the_values(tmp_path: Path) -> None:
    plain = to_plain(put_group(group(), FileStore(tmp_path / "payloads")))
    assert plain == to_plain(group())
    restored: Group = from_plain(Group, plain)
    assert restored.rollouts[0].turns[0].tokens_T.tolist() == [1, 2, 3]


def test_a_file_is_removed_when_its_process_no_longer_refers_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "payloads"
    stored = put_group(group(), FileStore(folder))
    kept = stored.rollouts[0].turns[0].tokens_T
    elsewhere = pickle.dumps(stored)
    copy = pickle.loads(elsewhere)
    assert copy.rollouts[1].turns[0].tokens_T.tolist() == [4, 5]
    del stored, copy
    gc.collect()
    assert len(list(folder.iterdir())) == 1 and kept.tolist() == [1, 2, 3]
    del kept
    gc.collect()
    assert list(folder.iterdir()) == []
    with pytest.raises(UserError, match=says("rollouts.payloads", "cannot be read", "resume")):
        np.asarray(pickle.loads(elsewhere).rollouts[0].turns[0].tokens_T)


def test_a_folder_that_cannot_be_emptied_and_a_full_disk_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/payloads"):
        FileStore(tmp_path / "file" / "payloads")
    store = FileStore(tmp_path / "payloads")

    def fill(path: Path, mode: str) -> Any:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(file_store, "open_own", fill)
    with pytest.raises(UserError, match="payloads"):
        store.put(b"whole")
    gc.collect()
    assert not list((tmp_path / "payloads").iterdir())


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    stored = put_group(group(), FileStore(tmp_path / "payloads"))
    [path] = (tmp_path / "payloads").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    sound, _, damaged, *_ = arrays(stored)[-4:]
    assert sound.tolist() == [4, 5]
    with pytest.raises(UserError, match=says(f"rollouts.payloads: {path} is damaged", "resume the run")):
        np.asarray(damaged)


def test_damage_in_the_object_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    monkeypatch.setattr(ray_pool, "_content", lambda _: memoryview(b"damaged!"))
    stored = StoredArray(RayArrays(), np.dtype(np.int32), 2, 0, identity(np.array([1, 2], np.int32)))
    with pytest.raises(UserError, match=says("rollouts.workers", "is damaged", "resume the run")):
        np.asarray(stored)


def test_a_finished_run_has_left_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write(path: Path, value: Any) -> None:
        written.append((value["state"], (tmp_path / "payloads").exists()))

    monkeypatch.setattr("halfway.trainers.loop.training.write_json", write)
    training(tmp_path, FillOptions(groups=2), Budget(steps=1), store=FileStore(tmp_path / "payloads")).train()
    assert written == [("running", True), ("finished", False)]


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "payloads").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=says("payloads", "is a link", "remove")):
        FileStore(tmp_path / "payloads")
    assert (tmp_path / "mine").is_dir()


def test_another_process_does_not_remove_a_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "payloads")
    store.owner = "another host 1"
    stored = put_group(group(), store)
    assert len(list(store.folder.iterdir())) == 1
    del stored
    gc.collect()
    assert len(list(store.folder.iterdir())) == 1
    FileStore(store.folder)
    assert list(store.folder.iterdir()) == []


CASES = [("prefix_sampling", "lockstep", "tokens"), ("replay", "in_flight", "steps"), ("pros", "waiting", "tokens")]


def outcomes(folder: Path, place: Place, cases: list[Any]) -> list[dict[str, str]]:
    found = []
    for i, case in enumerate(cases):
        run = finish(partial(build, folder / str(i), *case, place=place))
        found.append(digests(folder / str(i), run))
    return found


def test_runs_with_files_equal_runs_in_memory(tmp_path: Path) -> None:
    memory = outcomes(tmp_path / "memory", lambda rollouts: rollouts, CASES)
    assert outcomes(tmp_path / "files", in_files(tmp_path), CASES) == memory


def test_a_run_on_files_resumes_as_one_in_memory(tmp_path: Path) -> None:
    places = {"memory": lambda rollouts: rollouts, "files": in_files(tmp_path)}
    found = []
    for name, place in places.items():
        build(tmp_path / name, *CASES[1], steps=4, place=place).train()
        run = build(tmp_path / name, *CASES[1], place=place)
        run.train()
        found.append(digests(tmp_path / name, run))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def ray() -> Iterator[Place]:
    with in_ray() as place:
        yield place


def test_runs_on_two_nodes_of_ray_equal_runs_in_memory_although_a_node_and_an_actor_are_killed(
    tmp_path: Path, ray: Place
) -> None:
    begun = []

    def place(rollouts: Any) -> Any:
        begun.append(ray(rollouts))
        return begun[-1]

    memory = outcomes(tmp_path / "memory", lambda rollouts: rollouts, CASES)
    assert outcomes(tmp_path / "ray", place, CASES) == memory
    assert len(begun) == len(CASES) + 1  # with the node went groups that the first run had not trained on


def test_the_results_of_an_actor_are_sampled_again_if_its_node_is_lost(
    monkeypatch: pytest.MonkeyPatch, ray: Place
) -> None:
    rollouts: Any = ray(SimulatedRollouts())
    pool, lost = rollouts.pool, [False]

    def call(self: Any, actor: Any, method: str, *arguments: Any) -> Any:
        if method == "run" and not lost[0]:
            lost[0] = True
            raise pool.ray.exceptions.ObjectLostError("00", None, "")
        return called(self, actor, method, *arguments)

    called = RayPool._call
    monkeypatch.setattr(RayPool, "_call", call)
    before, requests = pool.resampled, [Request(Problem("p", "", ""), 4, ticket="1")]
    pool.submit(requests, Stream(0))
    assert len(pool.take(["1"])[0].rollouts) == 4 and pool.resampled == before + 1


@pytest.mark.usefixtures("ray")
def test_an_actor_whose_builder_is_in_the_object_store_is_started_again() -> None:
    tokenizer = bytes(2**20)

    def build() -> Any:
        return SimulatedRollouts() if tokenizer else None

    pool = RayPool(build)
    gc.collect()
    try:
        for worker, actor in enumerate(pool.actors):
            before = pool._ask(worker, "process")
            pool.ray.kill(actor, no_restart=False)
            while pool._ask(worker, "process") == before:  # it does not end at once
                time.sleep(0.1)
    finally:
        pool.close()


@pytest.mark.usefixtures("ray")
def test_an_actor_that_does_not_start_is_one_line() -> None:
    def build() -> Any:
        raise UserError("nothing to build")

    with pytest.raises(UserError, match=says("rollouts.workers", "did not start", "nothing to build")):
        RayPool(build)


def test_a_cluster_without_processors_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"Alive": True, "Resources": {"memory": 1.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]
    monkeypatch.setattr(ray_pool, "connect_to_ray", lambda _: SimpleNamespace(nodes=lambda: nodes))
    with pytest.raises(UserError, match=says("rollouts.workers", "CPU", "--num-cpus")):
        RayPool(lambda: None)  # type: ignore[arg-type,return-value]


@pytest.mark.usefixtures("ray")
def test_a_cluster_whose_processors_others_have_is_named_and_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray: Any = importlib.import_module("ray")
    remote = ray.remote(num_cpus=1)(Counting)
    others = []
    while (free := int(ray.available_resources().get("CPU", 0))) > 0:
        others += [remote.remote() for _ in range(free)]
        ray.get([other.put.remote(b"") for other in others])
        time.sleep(1)  # what is free is known a little later
    monkeypatch.setattr(ray_pool, "NOTICE_SECONDS", 1.0)
    monkeypatch.setattr(ray_pool, "STUCK_SECONDS", 3.0)
    try:
        with pytest.raises(UserError, match=says("rollouts.workers", "needs 1 CPU", "0 of 4", "resume the run")):
            RayPool(lambda: None)  # type: ignore[arg-type,return-value]
    finally:
        for other in others:
            ray.kill(other)
    assert re.search(r"not started for \d s: it needs 1 CPU, and 0 of 4 .*; waiting\n", capsys.readouterr().err)


class GoneError(Exception):
    """Ray's error for an actor that ends."""


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> RayPool:
    """A pool of one actor that ended and does not start again."""
    ray = MagicMock(**{"nodes.return_value": [{"Alive": True, "Resources": {"CPU": 1.0}}]})
    errors = {"RayActorError": GoneError, "ObjectLostError": GoneError, "RayTaskError": KeyError, "RayError": OSError}
    ray.exceptions = SimpleNamespace(**errors)
    ray.wait.return_value = [True], []
    ray.available_resources.return_value, ray.cluster_resources.return_value = {}, {"CPU": 1.0}
    monkeypatch.setattr(ray_pool, "connect_to_ray", lambda _: ray)
    pool = RayPool(lambda: None)  # type: ignore[arg-type,return-value]
    ray.get.side_effect = GoneError
    return pool


def test_an_actor_that_does_not_start_again_is_awaited_while_others_work(
    monkeypatch: pytest.MonkeyPatch, lost: RayPool
) -> None:
    monkeypatch.setattr(ray_pool, "STUCK_SECONDS", 0.0)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            lost._busy.clear()

    monkeypatch.setattr(time, "sleep", sleep)
    lost._busy.add(0)
    with pytest.raises(UserError, match=says("rollouts.workers", "not started", "resume the run")):
        lost._await(lost.actors[0], again=True)
    assert len(pauses) == 3


def test_another_failure_of_ray_is_one_line(monkeypatch: pytest.MonkeyPatch, lost: RayPool) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    monkeypatch.setattr(lost.ray.exceptions, "RayError", ray.exceptions.RayError)
    lost.ray.get.side_effect = full = ray.exceptions.OutOfDiskError()
    with pytest.raises(UserError, match=says("rollouts.workers", "OutOfDiskError", "resume the run")):
        lost._ask(0, "process")
    monkeypatch.setattr(ray, "get", lambda _: (_ for _ in ()).throw(full))
    with pytest.raises(UserError, match=says("rollouts.workers", "OutOfDiskError", "resume the run")):
        RayArrays().read(0, 1)


def test_a_closed_pool_awaits_no_actor(lost: RayPool) -> None:
    job = lost._threads[0].submit(lost._ask, 0, "process")
    lost.close()
    with pytest.raises(UserError, match=says("rollouts.workers")):
        job.result(timeout=60)


def test_groups_sampled_again_are_counted_in_their_step(tmp_path: Path) -> None:
    run = build(tmp_path, "plain", "waiting", "tokens", steps=2)
    run.pool = InlinePool(run.rollouts)
    run.pool.resampled = 3
    run.train()
    assert [line.get("resampled") for line in records(tmp_path, "steps")] == [3, None]


def test_a_ray_cluster_that_does_not_respond_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test's cluster may be up in this process
    for address in (f"127.0.0.1:{free_port()}", f"ray://127.0.0.1:{free_port()}"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match=says("rollouts.workers", "set RAY_ADDRESS")):
            RayPool(lambda: None)  # type: ignore[arg-type,return-value]


def test_a_cluster_that_nobody_named_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    asked: list[str] = []
    monkeypatch.setattr(ray, "init", lambda address, **_: asked.append(address))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    connect_to_ray("rollouts.workers")
    connect_to_ray("rollouts.workers", address="auto")
    assert asked == ["local", "auto"]


def test_a_node_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra ray)")

    def init(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen because")  # as Ray does

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match=says("rollouts.workers", "timed out", "set RAY_ADDRESS")):
        connect_to_ray("rollouts.workers")


def test_ray_does_not_change_what_sigterm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, signal.default_int_handler))
    connect_to_ray("rollouts.workers")
    assert signal.getsignal(signal.SIGTERM) is before


MIB = 2**20


def share_by_ray() -> None:
    """One of two training processes: the first hands the other 30 MiB by reference, six times."""
    from torch import distributed

    distributed.init_process_group("gloo")
    scatter = RayScatter()
    for step in range(6):
        if distributed.get_rank() == 0:
            payload = RayArrays()
            content = np.full(30 * MIB, step, np.uint8)
            payload.ref = scatter.ray.put(content)
            scatter([None, StoredArray(payload, content.dtype, content.size, 0, identity(content))])
            del payload
        else:
            own = scatter()
            print("read", int(np.asarray(own)[::MIB].sum()))
            del own
        wait_for_all()
    if distributed.get_rank() == 0:
        session = Path(importlib.import_module("ray._private.worker")._global_node.get_session_dir_path())
        until = time.monotonic() + 60  # a node may spill what is just being forgotten, and deletes it then
        while kept := sum(path.is_file() for path in session.rglob("ray_spilled_objects*/*")):
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        print("spilled", kept)


def test_training_processes_fetch_what_they_read_and_ray_forgets_it(
    ray: Place, preloaded: Preloaded, tmp_path: Path
) -> None:
    address = importlib.import_module("ray").get_runtime_context().gcs_address
    (_, leader), (_, follower) = preloaded.run_ranks(tmp_path, __file__, RAY_ADDRESS=address)
    assert re.findall(r"read (\d+)", follower) == [str(30 * step) for step in range(6)], follower
    assert "spilled 0\n" in leader, leader  # 180 MiB went through nodes of 80


if __name__ == "__main__":
    share_by_ray()
