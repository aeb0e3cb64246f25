"""Weights on their way to servers. The servers here are threads of the test; the process groups are real."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from messages import says
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import TCPStore

from halfway.curriculum import UserError
from halfway.trainers.distributed.ports import own_address
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server.protocol import ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.weights.private_store import KEY_BYTES, join_store, open_store
from halfway.trainers.engines.vllm_servers.weights.transfer import (
    Broadcast,
    Files,
    broadcast,
    make_group,
    parts,
    write_files,
)

WEIGHTS = {f"w{i}": torch.full((2, 5), float(i), dtype=torch.bfloat16 if i % 2 else torch.float32) for i in range(5)}


class Receiver(Server):
    """A server that keeps what it receives."""

    def __init__(self, name: str, refuses: bool = False):
        super().__init__("127.0.0.1:1", usable=True)
        self.label = "default"
        self.name, self.refuses = name, refuses
        self.group: Any = None
        self.joined = 0
        self.told: dict[str, Any] = {}
        self.held: dict[str, Tensor] = {}
        self.updates: list[str] = []
        self.process = object()  # type: ignore[assignment]

    def remember_memory(self) -> None: ...

    def call(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        self.updates.append(path)
        if path == "/update_weight_version":
            self.label = body["new_version"]
        if path == "/finish_weight_update":
            self.label = body["weight_version"]
        return {"weight_version": self.label, "success": True}

    def join(self, group: dict[str, Any], seconds: float) -> None:
        store = join_store(group["address"], group["port"], group["key"], group["size"], seconds)
        self.group = make_group(store, group["rank"], group["size"], "cpu", group["address"], seconds)
        self.told = group
        self.joined += 1

    def receive(self, part: dict[str, Any], seconds: float) -> None:
        if self.refuses:
            raise ServerError(f"{self.name} is gone")
        if "path" in part:
            self.held |= load_file(part["path"])
            return
        for name, dtype, shape in zip(part["names"], part["dtypes"], part["shapes"], strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            broadcast(self.group, weight, 5.0)
            self.held[name] = weight


def weights() -> Iterator[tuple[str, Tensor]]:
    yield from WEIGHTS.items()


def holds_all(server: Receiver) -> bool:
    return server.held.keys() == WEIGHTS.keys() and all(torch.equal(server.held[n], w) for n, w in WEIGHTS.items())


def test_weights_come_a_few_at_a_time_and_no_two_parts_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.weights.transfer.PART_BYTES", 50)
    names, previous = [], None
    for part in parts(weights()):
        assert not previous
        names.append([name for name, _ in part])
        previous = part
    assert names == [["w0", "w1"], ["w2", "w3"], ["w4"]]


def test_files_hold_all_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.weights.transfer.PART_BYTES", 50)
    loaded = [load_file(path) for path in write_files(weights(), tmp_path)]
    assert [sorted(part) for part in loaded] == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert all(torch.equal(values, WEIGHTS[name]) for part in loaded for name, values in part.items())


def test_a_server_that_fails_to_read_files_is_detected_and_can_catch_up(tmp_path: Path) -> None:
    good, bad = Receiver("good"), Receiver("bad", refuses=True)
    transfer = Files(tmp_path, 5.0)
    transfer.catch_up(good, "0")
    assert good.version == "0" and "/start_weight_update" not in good.updates
    transfer.send(weights(), [good, bad], "1")
    assert (good.version, bad.version) == ("1", None) and holds_all(good) and not bad.held
    bad.refuses = False
    transfer.catch_up(bad, "1")
    assert bad.version == "1" and holds_all(bad)
    transfer.send(weights(), [good, bad], "2")
    transfer.send(weights(), [good, bad], "2")  # an update without anything to train on makes no new version
    assert (good.version, bad.version) == ("2", "2") and len(list(tmp_path.iterdir())) == 1


def test_an_update_that_breaks_off_makes_a_server_unusable_until_it_is_restarted(tmp_path: Path) -> None:
    class Up(Receiver):
        def healthy(self) -> bool:
            return True

    bad = Up("bad", refuses=True)
    transfer = Files(tmp_path, 5.0)
    assert bad.ready()
    transfer.send(weights(), [bad], "a-1")
    assert bad.version is None and not bad.ready()
    assert "restart this server" in bad.last_words()
    bad.refuses, bad.label = False, "default"  # as after a restart
    assert bad.ready()
    transfer.catch_up(bad, "a-1")
    assert bad.ready() and (bad.version, bad.label) == ("a-1", "a-1")


def test_a_prefix_cache_that_is_not_emptied_is_a_failure(tmp_path: Path) -> None:
    class Full(Receiver):
        def call(self, *request: Any, **options: Any) -> Any:
            return super().call(*request, **options) | {"success": False}

    server = Full("full")
    Files(tmp_path, 5.0).send(weights(), [server], "1")
    assert server.version is None and "could not empty its prefix cache" in server.failure


def test_a_full_disk_is_a_mistake_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(UserError, match=says("vllm_servers.folder", "No space left", "make room")):
        Files(tmp_path, 5.0).send(weights(), [Receiver("one")], "1")
    with pytest.raises(UserError, match=says("vllm_servers.folder", "FileNotFoundError")):
        Files(tmp_path / "gone", 5.0).send(weights(), [Receiver("one")], "1")


def test_a_member_that_never_broadcasts_raises_in_time() -> None:
    server = Receiver("silent")
    transfer = Broadcast(Path(), 2.0)
    transfer.send(weights(), [server], "1")
    begun = time.monotonic()
    with pytest.raises(RuntimeError):
        broadcast(server.group, torch.zeros(1), 0.5)
    assert time.monotonic() - begun < 10.0


def test_a_broadcast_has_a_timeout_without_which_nccl_reports_nothing() -> None:
    waited: list[timedelta | None] = []

    class Group:
        def broadcast(self, *_: Any) -> "Group":
            return self

        def wait(self, timeout: timedelta | None = None) -> None:
            waited.append(timeout)

    broadcast(Group(), torch.zeros(1), 3.0)
    assert waited == [timedelta(seconds=3)]


def test_a_broadcast_reaches_every_server_and_joins_a_restarted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.weights.transfer.PART_BYTES", 50)
    one, two = servers = [Receiver("one"), Receiver("two")]
    transfer = Broadcast(Path(), 10.0)
    transfer.catch_up(one, "0")
    assert one.version == "0"  # nothing was sent, so it has the weights it started with
    for version in ("1", "2"):
        transfer.send(weights(), servers, version)
        assert all(server.version == version and holds_all(server) and server.joined == 1 for server in servers)
    two.process, two.held, two.group = object(), {}, None  # type: ignore[assignment]
    transfer.catch_up(two, "2")
    assert two.version is None
    transfer.send(weights(), servers, "3")
    assert all(server.version == "3" and holds_all(server) and server.joined == 2 for server in servers)
    transfer.send(weights(), [one], "4")
    assert (one.version, one.joined) == ("4", 3)
    one.version = None  # it was lost, and may be another process at the same address
    transfer.send(weights(), [one], "5")
    assert (one.version, one.joined) == ("5", 4)


def test_a_broadcast_is_arranged_on_one_address_with_a_key_of_its_own() -> None:
    one, two = Receiver("one"), Receiver("two")
    first, second = Broadcast(Path(), 10.0), Broadcast(Path(), 10.0)
    first.send(weights(), [one], "1")
    second.send(weights(), [two], "1")
    assert listening_addresses(one.told["port"]) == {"127.0.0.1"}
    assert one.told["key"] != two.told["key"] and len(one.told["key"]) == 2 * KEY_BYTES
    first.send(weights(), [one, two], "2")  # another group, with another door
    assert not listening_addresses(one.told["port"]) - {"127.0.0.1"} and holds_all(two)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(KEY_BYTES)])
def test_a_stranger_is_turned_away_from_the_store_of_a_broadcast(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the door, torch's store told everybody its keys, with the prefix that was to be a secret."""
    monkeypatch.setattr("halfway.trainers.engines.vllm_servers.weights.private_store.DOOR_SECONDS", 0.3)
    one, two = Receiver("one"), Receiver("two")
    transfer = Broadcast(Path(), 10.0)
    transfer.send(weights(), [one], "1")
    with socket.create_connection(("127.0.0.1", one.told["port"]), timeout=5) as stranger:
        stranger.sendall(said)
        with suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
    with pytest.raises(RuntimeError):
        join_store("127.0.0.1", one.told["port"], bytes(KEY_BYTES).hex(), 2, 1.0)
    transfer.send(weights(), [one, two], "2")
    assert holds_all(two)


def test_the_store_behind_the_door_answers_this_host_without_a_key() -> None:
    """SECURITY.md says so: torch asks nobody, whichever user connects."""
    opened = open_store("127.0.0.1", 2, timedelta(seconds=10))
    opened.store.set("key", "ours")
    port = opened.store.port
    assert listening_addresses(port) == {"127.0.0.1"} and port != opened.port
    other = TCPStore("127.0.0.1", port, 2, is_master=False, wait_for_workers=False)
    assert other.get("key") == b"ours"
    opened.close()


def listening_addresses(port: int) -> set[str]:
    """The addresses of this host on which a port accepts connections."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, number = line.split()[1].split(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                found.add(".".join(str(byte) for byte in reversed(bytes.fromhex(address))))
    return found


def test_a_server_lost_during_a_broadcast_ends_the_run_with_a_remedy() -> None:
    good, bad = Receiver("good"), Receiver("bad", refuses=True)
    with pytest.raises(UserError, match=says("transfer", "'broadcast'", "lost", "resume")):
        Broadcast(Path(), 2.0).send(weights(), [good, bad], "1")
    assert (good.version, bad.version) == (None, None)


def test_a_run_whose_servers_all_missed_a_broadcast_ends_at_once_with_a_remedy(tmp_path: Path) -> None:
    class Back(Receiver):
        def healthy(self) -> bool:
            return True

    one, two = Back("one"), Back("two")
    policy = torch.nn.Linear(2, 2)
    options = VllmServers(transfer="broadcast", start_seconds=60.0)
    engine = VllmServersEngine([one, two], options, EngineSetup(policy, "model", [0], 0), tmp_path)
    engine.sync(policy, 1)
    two.usable = False
    assert engine.available()[0] == [one]
    one.usable = False
    with pytest.raises(UserError, match=says("transfer", "'broadcast'", "next step", "transfer=files")):
        engine.generate([np.asarray([1], np.int32)], [1], [0])
    engine.sync(policy, 1)
    assert one.usable and two.usable


def test_the_own_address_is_the_one_that_the_peer_sees() -> None:
    assert own_address("127.0.0.1:80") == own_address("localhost:80") == "127.0.0.1"


def test_a_server_that_cannot_name_its_weights_is_refused() -> None:
    class Old(Server):
        async def ask(self, session: Any, path: str, body: Any, seconds: float) -> Any:
            logprobs = {"content": [{"logprob": -1.0}]}
            return {"choices": [{"token_ids": [1], "finish_reason": "stop", "logprobs": logprobs}]}

    with pytest.raises(UserError, match=says("host:1", "install vLLM 0.32")):
        asyncio.run(Old("host:1").generate(cast(Any, None), np.asarray([1], np.int32), {}, "1", 1.0))
