"""Sampling through servers from a process that does not manage them."""

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from multiprocessing.managers import BaseManager
from typing import Any

from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.load_balancing import Spreading
from halfway.trainers.engines.vllm_servers.server.protocol import ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server


class Keeper:
    """Tells another process about the servers, from the process of the engine that manages them."""

    def __init__(self, engine: VllmServersEngine):
        self._engine = engine

    def available(self) -> tuple[list[str], str]:
        """Addresses of the servers with the current weights, and the weights' name."""
        servers, version = self._engine.available()
        return [server.address for server in servers], version

    def note_failures(self, errors: Mapping[str, ServerError]) -> None:
        """Note which servers failed, by address."""
        self._engine.note_failures(
            {server: errors[server.address] for server in self._engine.servers if server.address in errors}
        )

    def last_words(self) -> str:
        return self._engine.last_words()


class _Manager(BaseManager):
    """Connects the other process to the keeper."""


class ServersElsewhere(Spreading):
    """Samples through the servers of an engine in another process; asks it for servers before every round."""

    def __init__(self, engine: VllmServersEngine, setup: EngineSetup):
        super().__init__(engine.options, setup, len(engine.servers))
        self.max_length = engine.max_length
        self._key = os.urandom(32)
        self._address = _serve(Keeper(engine), self._key, setup.elsewhere)
        self._servers: dict[str, Server] = {}
        self._tokens = {server.address: server.token for server in engine.servers}
        self._vocabulary, self._in_flight = engine.servers[0].vocabulary, setup.in_flight

    @property
    def replicas(self) -> int:
        return len(self.available()[0])

    def available(self) -> tuple[Sequence[Server], str]:
        addresses, version = self._keeper.available()
        for address in addresses:
            token, vocabulary = self._tokens[address], self._vocabulary
            new = Server(address, token=token, vocabulary=vocabulary, in_flight=self._in_flight)
            self._servers.setdefault(address, new)
        return [self._servers[address] for address in addresses], version

    def note_failures(self, errors: Mapping[Server, ServerError]) -> None:
        if errors:
            self._keeper.note_failures({server.address: error for server, error in errors.items()})

    def last_words(self) -> str:
        return str(self._keeper.last_words())

    @cached_property
    def _keeper(self) -> Any:
        _Manager.register("keeper")
        manager: Any = _Manager(self._address, self._key)
        manager.connect()
        return manager.keeper()


def _serve(keeper: Keeper, key: bytes, elsewhere: bool) -> Any:
    """Serve the keeper from a thread, on this host's address if `elsewhere`. Returns the address to connect to."""
    _Manager.register("keeper", callable=lambda: keeper)
    address = (socket.gethostbyname(socket.gethostname()), 0) if elsewhere else None
    server = _Manager(address, authkey=key).get_server()
    threading.Thread(target=server.serve_forever, name="keeper", daemon=True).start()
    return server.address
