"""What the engine does about servers that fail, refuse, are busy or hold other weights. None of them runs vLLM."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from messages import says
from torch import nn

from halfway.curriculum import UserError
from halfway.curriculum.support import end_with_parent
from halfway.curriculum.support.acceptance import VARIABLE
from halfway.trainers.distributed import cluster
from halfway.trainers.distributed.cluster import ClusterOptions, ShapeOptions
from halfway.trainers.engines.contract import Completion, EngineSetup
from halfway.trainers.engines.part import PlannedRun
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.engines.vllm_servers import auth, start
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.load_balancing import Client, Errand, room_for_connections
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server import connection as vllm_server
from halfway.trainers.engines.vllm_servers.server.protocol import GENERATE, ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.start import (
    PREFIX,
    own_devices,
    own_folder,
    require_own_devices,
    require_room_for_weights,
)

TOKEN = "a_token_of_this_test"
CONTEXT = np.asarray([5, 6, 7], np.int32)


class Double(Server):
    """A server that answers at once, from the weights it was given last."""

    label = "another run's"
    logprob = -1.0

    async def ask(self, session: Any, path: str, body: Any, seconds: float) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        self.calls: list[str] = [*vars(self).get("calls", []), path]
        if path in ("/update_weight_version", "/finish_weight_update"):
            self.label = body.get("new_version") or body["weight_version"]
        if path == GENERATE:
            logprobs = {"content": [{"logprob": self.logprob}]}
            spans = [{"version": self.label}]
            choice = {"token_ids": [1], "finish_reason": "stop", "logprobs": logprobs, "weight_versions": spans}
            return {"choices": [choice]}
        return {"weight_version": self.label, "success": True, "data": [{"max_model_len": 100}]}

    def start(self) -> None:
        self.stop()
        self.process = object()  # type: ignore[assignment]
        self.attempts += 1

    def ended(self) -> bool:
        return bool(self.command) and self.process is None

    def remember_memory(self) -> None: ...

    def stop(self, grace_seconds: float = 0.0) -> None:
        self.usable, self.version, self.process = False, None, None


def build_engine(folder: Path, *servers: Server, **options: Any) -> VllmServersEngine:
    policy: Any = None
    chosen = VllmServers(**({"start_seconds": 5.0} | options))
    return VllmServersEngine(servers, chosen, EngineSetup(policy, "model", [0], 0, max_sequences=2), folder)


def ours(name: str) -> Double:
    return Double(name, ("command",))


@contextmanager
def served(answer: Any) -> Iterator[Server]:
    """A server over HTTP. `answer` is given a path, and gives a status and a text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None: ...

    class Listening(ThreadingHTTPServer):
        request_queue_size = 512  # with five, the kernel drops connections, whose clients wait for seconds

    with Listening(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Server(f"127.0.0.1:{server.server_port}", usable=True)
        server.shutdown()


def completion(version: str) -> str:
    """A server's answer: one token, sampled by the weights of this name."""
    choice = {"token_ids": [1], "finish_reason": "stop", "logprobs": {"content": [{"logprob": -1.0}]}}
    return json.dumps({"choices": [choice | {"weight_versions": [{"version": version}]}]})


def sampled(server: Server, seconds: float) -> list[int]:
    """The tokens of one sequence."""
    tokens: list[int] = []
    client = Client(1, seconds)
    errand = Errand(0, server, CONTEXT, {"max_tokens": 4})
    failed = client.run([errand], "1", lambda _, completion: tokens.extend(completion.tokens_T.tolist()))
    if failed:
        raise failed[server]
    return tokens


def test_servers_given_by_address_get_weights_before_the_first_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "Server", Double)
    monkeypatch.setenv(VARIABLE, "server:a,server:b")
    monkeypatch.setenv(auth.VARIABLE, TOKEN)
    policy = nn.Linear(2, 2)
    policy.dtype = torch.float32  # type: ignore[assignment]
    part = VllmServers(addresses=("a:1", "b:1"), folder=str(tmp_path))
    built: Any = part.build(EngineSetup(policy, "model", [0], 0))
    for server in built.servers:
        assert server.calls.index("/update_weights") < server.calls.index("/finish_weight_update")
        assert server.label == server.version == built.version
    assert built.replicas == 2 and {server.token for server in built.servers} == {TOKEN}
    built.close()


def test_folders_of_killed_runs_are_removed_and_those_of_others_are_not(tmp_path: Path) -> None:
    imports = "import sys; from halfway.trainers.engines.vllm_servers.start import own_folder"
    code = f"{imports}; print(own_folder(sys.argv[1]), flush=True)"
    words = [sys.executable, "-c", f"{code}; sys.stdin.read()", str(tmp_path)]
    unknown = tmp_path / f"{PREFIX}unknown"
    unknown.mkdir()
    run = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other = Path(run.stdout.readline().strip())
    mine = own_folder(str(tmp_path))
    assert own_folder(str(tmp_path)).exists() and mine.exists() and other.exists()
    run.kill()
    run.communicate()
    (other / "weights").mkdir()
    own_folder(str(tmp_path))
    assert mine.exists() and not other.exists() and unknown.exists()
    with pytest.raises(UserError, match=says("rollouts.engine.vllm_servers.folder", "gone'", "written")):
        own_folder(str(tmp_path / "gone"))


def test_no_sequence_is_accepted_from_the_weights_of_another_run(tmp_path: Path) -> None:
    server = Double("a:1")
    one, two = build_engine(tmp_path / "one", server), build_engine(tmp_path / "two", replace(server))
    for engine in (one, two):
        engine.folder.mkdir()
        engine.begin()
        with pytest.raises(AssertionError, match="a sync before the first sequence"):
            engine.generate([CONTEXT], [4], [0])
        engine.sync(nn.Linear(2, 2), 6)
    assert one.version != two.version and one.version.endswith("-6") and two.version.endswith("-6")
    server.label = two.version  # it is the same server, and the other run was there
    (done,) = one.generate([CONTEXT], [4], [0])
    assert done.policy_version == 6
    assert one.retried == 1 and server.label == one.version


class Refusing(Double):
    """Takes no weights."""

    def start(self) -> None:
        super().start()
        self.label = "as loaded"

    def call(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        if path == "/update_weights":
            raise ServerError("no space left there")
        return super().call(method, path, body, seconds)


def test_a_server_that_refuses_weights_is_restarted_while_the_others_work(tmp_path: Path) -> None:
    fine, refusing = ours("a:1"), Refusing("b:1", ("command",))
    engine = build_engine(tmp_path, fine, refusing, start_seconds=0.1)
    engine.sync(nn.Linear(2, 2), 1)
    assert (fine.usable, refusing.usable, refusing.version) == (True, False, None) and refusing.process is not None
    (done,) = engine.generate([CONTEXT], [4], [0])
    assert done.policy_version == 1 and engine.retried == 0
    alone = build_engine(tmp_path, Refusing("c:1", ("command",)), start_seconds=0.1)
    with pytest.raises(UserError, match=says("server", "no space left there")):
        alone.sync(nn.Linear(2, 2), 1)


class Spanning(Double):
    """Its sequences are of two tokens, by two versions of weights."""

    versions = ("", "")
    ends = (1, 2)

    def call(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        answer = super().call(method, path, body, seconds)
        if path == GENERATE:
            self.salt = body.get("cache_salt")
            spans = [{"version": self.versions[0], "start": 0, "end": self.ends[0]}]
            spans += [{"version": self.versions[1], "start": 1, "end": self.ends[1]}]
            choice = {"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}] * 2}, "weight_versions": spans}
            answer["choices"][0] |= choice
        return answer


def test_rollouts_sampled_in_flight_name_the_versions_of_this_run(tmp_path: Path) -> None:
    server = Spanning("a:1", in_flight=True)
    engine = build_engine(tmp_path, server)
    engine.sync(nn.Linear(2, 2), 6)
    assert "/pause?mode=keep" in server.calls and "/reset_prefix_cache" not in server.calls
    run = engine.version.rpartition("-")[0]
    server.versions = (f"{run}-5", engine.version)
    (done,) = engine.generate([CONTEXT], [4], [0])
    assert (done.policy_version, done.spans, server.salt) == (5, ((5, 1), (6, 1)), engine.version)
    for versions, ends in ((("other-5", engine.version), (1, 2)), ((f"{run}-5-unfinished", engine.version), (1, 2))):
        server.versions, server.ends = versions, ends
        with pytest.raises(UserError, match=says(1, "no server")):
            engine.generate([CONTEXT], [4], [0])
    server.versions, server.ends = (f"{run}-5", engine.version), (1, 3)
    with pytest.raises(UserError, match=says("2 tokens", "weight versions")):
        engine.generate([CONTEXT], [4], [0])


def test_a_server_that_does_not_start_is_started_again_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    class Broken(Server):
        def start(self) -> None:
            starts.append(time.monotonic())
            super().start()

    monkeypatch.setattr(cluster, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.engine.POLL_SECONDS", 0.02)
    log = tmp_path / "log"
    server = Broken("127.0.0.1:9", ("sh", "-c", "echo 'WARNING OSError: no fast kernel'; exit 1"), log)
    engine = build_engine(tmp_path, server, start_seconds=4.0)
    engine._lost(server, ServerError("it died"))
    with pytest.raises(UserError, match=says("server", "died", "error", "log")):
        engine.available()
    pauses = np.diff(starts)
    assert 2 <= len(pauses) <= 4 and all(pauses > 0.2 * 2.0 ** np.arange(1, len(pauses) + 1))
    engine.close()


HEADS = "(APIServer) ERROR 11-27 [core.py:7] ValueError: head size 24"


def test_a_fault_that_starting_again_does_not_cure_stops_at_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.engine.POLL_SECONDS", 0.02)
    folder = tmp_path / "of the run"
    folder.mkdir()
    words = f"echo 'INFO RuntimeError: no matter'; echo '{HEADS}'; echo 'EngineDeadError: see above'; exit 1"
    server = Server("127.0.0.1:9", ("sh", "-c", words), folder / "log", usable=True)
    engine = build_engine(folder, server, start_seconds=60.0)
    server.start()
    assert server.process is not None
    server.process.wait(60)
    server.usable = True
    begun = time.monotonic()
    engine._lost(server, ServerError("no answer"))
    said = capsys.readouterr().err
    assert "lost a server" in said and "no answer: ValueError: head size 24" in said and said.count("\n") == 1
    with pytest.raises(UserError, match=says("twice", "ValueError: head size 24", "log")) as error:
        engine.available()
    assert time.monotonic() - begun < 30 and "EngineDead" not in str(error.value)
    engine.close()
    assert not folder.exists()
    assert Path(str(error.value).rpartition(": ")[2]).read_text().count(HEADS) == 2


def test_the_same_error_after_other_weights_is_another_fault(tmp_path: Path) -> None:
    server = ours("a:1")
    server.first_error = lambda: "RuntimeError: once a day"  # type: ignore[method-assign]
    engine = build_engine(tmp_path, server)
    engine.begin()
    for version in range(3):
        engine.sync(nn.Linear(2, 2), version)
        engine._lost(server, ServerError("gone"))
    with pytest.raises(UserError, match=says("a:1", "twice")):
        engine._lost(server, ServerError("gone"))


@pytest.mark.parametrize("by_another", [False, True])
def test_shared_memory_of_a_killed_server_is_removed(tmp_path: Path, by_another: bool) -> None:
    code = (
        "from multiprocessing.shared_memory import SharedMemory as S; import time\n"
        "block = S(create=True, size=100); print(block.name, flush=True); time.sleep(100)"
    )
    server = Server("127.0.0.1:9", (sys.executable, "-c", code), tmp_path / "log")
    server.start()
    deadline = time.monotonic() + 60
    while not (name := (tmp_path / "log").read_text()).endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    name = name.strip()
    assert Path("/dev/shm", name).exists()
    if by_another:
        server.remember_memory()  # as the engine does when it is usable
        assert server.process is not None
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
    server.stop()
    assert not Path("/dev/shm", name).exists()


def test_a_server_that_ends_while_it_boots_is_named_with_its_log(tmp_path: Path) -> None:
    server = Server("127.0.0.1:9", ("sh", "-c", "echo 'ValueError: no such dtype'; exit 1"), tmp_path / "log")
    with pytest.raises(UserError, match=says("127.0.0.1:9", "ValueError: no such dtype")):
        build_engine(tmp_path, server).begin()


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)])
def test_the_process_around_a_server_ends_with_its_status(tmp_path: Path, command: str, status: int) -> None:
    (tmp_path / "kept").touch()
    words = (sys.executable, end_with_parent.__file__, str(tmp_path), "sh", "-c", command)
    run = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert run.wait(30) == status
    assert run.stderr is not None and run.stderr.read() == b""
    assert (tmp_path / "kept").exists()
    run.communicate()


def test_no_server_of_ours_boots_while_the_servers_sleep(tmp_path: Path) -> None:
    fine, booting, failing = servers = [ours("fine:1"), ours("booting:1"), ours("failing:1")]
    engine = build_engine(tmp_path, *servers)
    engine.begin()
    booting.usable = False  # it was lost, and started again

    def fails(seconds: float) -> None:
        raise ServerError("it is gone")

    failing.sleep = fails  # type: ignore[method-assign]
    engine.sleep()
    assert [server.process is not None for server in servers] == [True, False, False]
    engine._lost(fine)
    assert fine.process is None
    engine.sync(nn.Linear(2, 2), 1)
    assert all(server.process is not None for server in servers) and engine.replicas == 3


def test_a_request_that_a_server_refuses_is_an_error_and_the_server_is_not_lost(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, str]:
        return (400, '{"error": {"message": "prompt too long"}}') if path == GENERATE else (200, "{}")

    with served(answer) as server:
        engine = build_engine(tmp_path, server)
        engine._synced = True
        with pytest.raises(UserError, match=says("3 + 4 tokens", "status 400", "prompt too long")):
            engine.generate([CONTEXT], [4], [0])
        assert server.usable and engine.retried == 0


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_with_any_other_error_is_lost(status: int) -> None:
    with served(lambda path: (status, "")) as server, pytest.raises(ServerError, match=f"status {status}"):
        sampled(server, 1.0)


def test_a_sequence_that_no_server_can_hold_is_not_sent(tmp_path: Path) -> None:
    server = ours("a:1")
    engine = build_engine(tmp_path, server)
    engine.begin()
    with pytest.raises(UserError, match=says("rollouts.engine.vllm_servers.max_length", "101 tokens", 100)):
        engine.generate([CONTEXT], [98], [0])
    assert GENERATE not in server.calls
    engine.generate([CONTEXT], [97], [0])


def test_all_servers_are_busy_and_none_has_more_than_it_was_made_for(tmp_path: Path) -> None:
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()

    class Counting(Double):
        async def ask(self, *arguments: Any) -> Any:
            now[self.address] += 1
            most[self.address] = max(most[self.address], now[self.address])
            deadline = time.monotonic() + 20
            while len(most) < 4:  # ends once all four have been asked something
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            now[self.address] -= 1
            return await super().ask(*arguments)

    engine = build_engine(tmp_path, *(Counting(name, ("command",)) for name in "abcd"))
    engine.begin()
    contexts = [np.asarray([group], np.int32) for group in range(16) for _ in range(4)]
    assert len(engine.generate(contexts, [4] * 64, [0] * 64)) == 64
    assert most == dict.fromkeys("abcd", 2)


MANY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import numpy as np
from pathlib import Path
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server.server import Server

server = Server(sys.argv[1], usable=True)
setup = EngineSetup(None, "model", [0], 0, max_sequences=1000)
engine = VllmServersEngine([server], VllmServers(addresses=(sys.argv[1],)), setup, Path(sys.argv[2]))
engine._synced, engine._run = True, "run"
done = engine.generate([np.asarray([5])] * 400, [4] * 400, list(range(400)))
print(len(done), engine.retried, server.usable)
"""


def test_sequences_beyond_the_limit_on_open_files_wait_and_no_server_counts_as_lost(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, str]:
        time.sleep(0.2)  # so that as many as the client allows are open at once
        return 200, completion("run-0")

    with served(answer) as server:
        words = [sys.executable, "-c", MANY, server.address, str(tmp_path)]
        run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert run.stdout.split() == ["400", "0", "True"], run.stderr


def test_the_limit_on_open_files_is_raised_as_far_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [100, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: limits.__setitem__(slice(None), values))
    assert [room_for_connections(wanted) for wanted in (20, 300, 4096)] == [20, 300, 500]
    assert limits == [1000, 1000]
    limits[:] = [1, 1]
    assert room_for_connections(8) == 1


def test_a_busy_server_is_waited_for_and_a_silent_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    text = completion("1")

    def busy(path: str) -> tuple[int, str]:
        if path == GENERATE:
            released.wait(20)
        return 200, text

    with served(busy) as server:
        threading.Timer(1.0, released.set).start()
        assert sampled(server, 0.3) == [1]
        released.clear()
        monkeypatch.setattr(vllm_server, "PATIENCE", 3)
        begun = time.monotonic()
        with pytest.raises(ServerError, match=says("0.6 s", "raise rollouts.engine.vllm_servers.seconds")):
            sampled(server, 0.2)
        assert time.monotonic() - begun < 10
        released.set()

    def frozen(path: str) -> tuple[int, str]:
        released.wait(20)
        return 200, text

    monkeypatch.setattr(Server.call, "__defaults__", (None, 0.3))  # how long /health may take
    released.clear()
    with served(frozen) as server:
        begun = time.monotonic()
        with pytest.raises(ServerError, match=says("/health")):
            sampled(server, 0.2)
        assert time.monotonic() - begun < 10
        released.set()


def see(monkeypatch: pytest.MonkeyPatch, count: int, visible: str | None) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def test_servers_see_devices_that_the_run_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, visible, wanted in ((4, None, ["0,1", "2,3", "0,1"]), (3, "7, GPU-x,2", ["7,GPU-x", "2,7", "GPU-x,2"])):
        see(monkeypatch, count, visible)
        assert [own_devices(number, 2)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == wanted


@pytest.mark.parametrize(
    ("options", "learner"),
    [
        (VllmServers(count=1), 0),
        (VllmServers(count=2, tensor_parallel=2), 3),
        (VllmServers(count=5), 7),
        (VllmServers(addresses=("h:1",), sleep=True), 0),
    ],
)
def test_a_broadcast_on_shared_devices_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VllmServers, learner: int
) -> None:
    see(monkeypatch, 4, None)
    with pytest.raises(UserError, match=says("transfer", "'broadcast'", "GPU", "transfer=files")):
        require_own_devices(options, learner)
    monkeypatch.setattr(start, "load_extra", lambda *_: None)
    policy: Any = SimpleNamespace(dtype=torch.float32, parameters=lambda: iter([torch.zeros(1)]))
    if learner == 0:
        chosen = replace(options, transfer="broadcast", folder=str(tmp_path))
        with pytest.raises(UserError, match=says("'broadcast'", "GPU")):
            chosen.build(EngineSetup(policy, "model", [0], 0))
        assert not list(tmp_path.iterdir())


def test_a_broadcast_between_devices_of_their_own_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, 4, None)
    require_own_devices(VllmServers(count=3), 3)
    require_own_devices(VllmServers(addresses=("h:1", "h:2")), 0)


@pytest.mark.parametrize("wrong", range(3))
def test_a_sync_check_looks_at_every_server(tmp_path: Path, wrong: int) -> None:
    class Learner:
        def logprobs(self, context_P: Any, tokens_T: Any) -> Any:
            return np.full(len(tokens_T), -1.0)

    servers = [ours(f"{name}:1") for name in "abc"]
    engine = build_engine(tmp_path, *servers)
    engine.begin()
    check = SyncCheck(engine, Learner(), 40, 60, tolerance=1e-4)
    assert check() == 0.0 and all(GENERATE in server.calls for server in servers)
    servers[wrong].logprob = -1.5
    with pytest.raises(UserError, match=says("log-probabilities", "0.5 nats")):
        check()


def test_one_token_beyond_the_tolerance_stops_no_run() -> None:
    """Of servers times sixteen tokens one is always rounded worst; weights that differ, differ everywhere."""
    drawn = np.random.default_rng(0).normal(0.0, 0.1, (64, 16))
    expected = iter(np.full((64, 16), -1.0))

    class Many:
        replicas = 64

        def generate(self, contexts: Any, *_: Any) -> list[Completion]:
            some = np.zeros(16, np.int32)
            return [Completion(some, -1.0 + row, some.astype(float), "length", 0) for row in drawn]

    class Learner:
        def logprobs(self, *_: Any) -> Any:
            return next(expected)

    assert np.abs(drawn).max() > 0.3
    many: Any = Many()
    assert SyncCheck(many, Learner(), 40, 60, tolerance=0.2)() < 0.15


def test_a_folder_that_cannot_take_the_weights_is_refused_before_servers_start(tmp_path: Path) -> None:
    policy = nn.Linear(1000, 1000, bias=False)
    require_room_for_weights(str(tmp_path), policy, 2)
    require_room_for_weights("/no such folder", policy, 2)
    policy.weight.ds_numel = 2**60  # type: ignore[union-attr]
    with pytest.raises(UserError, match=says("vllm_servers.folder", "GiB free", "docker run --shm-size")):
        require_room_for_weights(str(tmp_path), policy, 2)


def test_weights_in_shared_memory_count_as_the_hosts() -> None:
    part, away = VllmServers(), VllmServers(folder="/shared")
    run = PlannedRun("model", "bfloat16", 100, 8, ClusterOptions(devices_per_node=8))
    shape = ShapeOptions(64, 2, 128, 4, 4, 16, 1000)
    assert part.memory(run, shape).host == {"weights in shared memory": 2 * 2 * shape.weights / 8}
    assert away.memory(run, shape).host == {}


@pytest.mark.parametrize(("part", "size", "refused"), [(VllmServers(), 24, True), (VllmServers(), 32, False)])
def test_heads_that_vllm_does_not_take_on_a_cpu_are_refused(part: VllmServers, size: int, refused: bool) -> None:
    run = PlannedRun("model", "float32", 100, 8, ClusterOptions(), ShapeOptions(96, 2, 192, 4, 4, size, 100))
    if refused:
        with pytest.raises(
            UserError,
            match=says("model.path", "'model'", 24, 32, "experiments/starting_models/sums_wide", "widen_heads"),
        ):
            part.check(run)
        replace(part, addresses=("127.0.0.1:1",)).check(run)  # what they take, nobody knows here
    else:
        part.check(run)


@contextmanager
def frozen_server() -> Iterator[Server]:
    """A server that connects, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as frozen:
        yield Server(f"127.0.0.1:{frozen.getsockname()[1]}", usable=True)


@pytest.mark.parametrize("when", ["at the start", "at a sync", "in the middle"])
def test_a_frozen_server_is_named_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    monkeypatch.setattr(vllm_server.Connection.call, "__defaults__", (None, 0.05))  # a probe's seconds
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.engine.POLL_SECONDS", 0.05)
    with frozen_server() as server:
        engine = build_engine(tmp_path, server, start_seconds=0.5, seconds=0.2)
        steps = {"at the start": engine.begin, "at a sync": lambda: engine.sync(nn.Linear(1, 1), 1)}
        server.usable, engine._synced = False, True
        with pytest.raises(UserError, match=says(server.address)):
            steps.get(when, engine.available)()
        lines = [line for line in capsys.readouterr().err.splitlines() if "waiting" in line]
        assert 2 <= len(lines) <= 3 and all(server.address in line and "0.5 s" in line for line in lines)


class Freezing(Double):
    """Says nothing from some time on, until it is started again."""

    frozen = False

    def call(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        if self.frozen:
            raise ServerError("no answer")
        return super().call(method, path, body, seconds)

    def start(self) -> None:
        super().start()
        self.frozen = False


@pytest.mark.parametrize("when", ["at a sync", "in the middle"])
def test_an_own_server_that_freezes_is_restarted_even_if_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.engine.POLL_SECONDS", 0.02)
    server = Freezing("a:1", ("command",))
    engine = build_engine(tmp_path, server, start_seconds=60.0, seconds=0.2)
    engine.begin()
    engine.sync(nn.Linear(1, 1), 1)
    server.frozen = True
    begun = time.monotonic()
    if when == "at a sync":
        engine.sync(nn.Linear(1, 1), 2)
    (done,) = engine.generate([CONTEXT], [4], [0])
    assert done.policy_version == engine.policy_version and server.attempts == 0 and time.monotonic() - begun < 20
    said = capsys.readouterr().err
    assert said.count("lost a server; it will be restarted") == 1
    assert when == "in the middle" or "gave no answer for 0.2 s" in said


def test_a_server_that_takes_long_to_start_is_named_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.engine.POLL_SECONDS", 0.02)
    server = Freezing("a:1", ("command",))
    server.start = lambda: setattr(server, "frozen", True)  # type: ignore[method-assign]
    server.ended = lambda: False  # type: ignore[method-assign]
    with pytest.raises(UserError, match=says("a:1", "is not up in 0.5 s")):
        build_engine(tmp_path, server, start_seconds=0.5, seconds=0.2).begin()
    assert 1 <= capsys.readouterr().err.count("waiting up to 0.5 s for a:1") <= 2


def test_a_server_that_is_healthy_and_samples_nothing_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(path: str) -> tuple[int, str]:
        if path == GENERATE:
            time.sleep(2)
        return 200, ""

    with served(answer) as server:
        failed = Client(8, 0.1).run([Errand(i, server, CONTEXT, {"max_tokens": 4}) for i in range(8)], "1", print)
        assert "1 s" in str(failed[server])
        assert capsys.readouterr().err.count(server.address) == 1


def test_all_who_wait_for_a_frozen_server_ask_once_whether_it_answers() -> None:
    """Asked by each for itself, over a few threads, a server would be noticed after several times as long."""
    asked: list[float] = []

    def healthy() -> bool:
        asked.append(time.monotonic())
        time.sleep(0.5)
        return False

    with frozen_server() as server:
        server.healthy = healthy  # type: ignore[method-assign]
        errands = [Errand(i, server, CONTEXT, {"max_tokens": 4}) for i in range(64)]
        failed = Client(64, 0.5).run(errands, "1", lambda *_: None)
    assert "/health" in str(failed[server]) and len(asked) < 8
