"""The authenticated store through which the processes of a group find each other.

torch's store answers every connection, and lists its keys. So it listens on the learner's loopback only. Members on
other hosts connect through a door, a port that asks for the key, from a port of their own loopback.
"""

import hmac
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import distributed

LOOPBACK = "127.0.0.1"
KEY_BYTES = 32
# Seconds for a connection to send the key.
DOOR_SECONDS = 10.0
c10d: Any = distributed  # only half typed


@dataclass
class PrivateStore:
    """The learner's end of the store by which the members of a process group find each other.

    Attributes:
        store: torch's store.
        key: the members' key, in hexadecimal digits.
        door: the listening socket for members, on one address of this host.
    """

    store: Any
    key: str
    door: socket.socket

    @property
    def port(self) -> int:
        return int(self.door.getsockname()[1])

    def close(self) -> None:
        """Stop accepting connections."""
        _hang_up(self.door)


def open_store(address: str, size: int, limit: timedelta) -> PrivateStore:
    """Open a store for `size` processes, with its door on this address.

    Args:
        limit: longest wait of a read for its key.
    """
    with socket.create_server((LOOPBACK, 0), backlog=size + 16) as listening:
        port, number = listening.getsockname()[1], listening.detach()
    options = {"is_master": True, "timeout": limit, "wait_for_workers": False, "master_listen_fd": number}
    store = c10d.TCPStore(LOOPBACK, port, size, **options)
    key = secrets.token_bytes(KEY_BYTES)

    def let_in(guest: socket.socket) -> socket.socket | None:
        guest.settimeout(DOOR_SECONDS)
        if not hmac.compare_digest(guest.recv(KEY_BYTES, socket.MSG_WAITALL), key):
            return None
        guest.settimeout(None)
        return socket.create_connection((LOOPBACK, port))

    door = socket.create_server((address, 0), backlog=size + 16)
    _welcome(door, let_in)
    return PrivateStore(store, key.hex(), door)


def join_store(address: str, port: int, key: str, size: int, seconds: float) -> Any:
    """Connect a member to the learner's store at this address.

    Raises:
        RuntimeError: if no store is reachable within `seconds`, or the key is wrong.
    """

    def go_in(_: socket.socket) -> socket.socket:
        door = socket.create_connection((address, port), timeout=seconds)
        door.settimeout(None)
        door.sendall(bytes.fromhex(key))
        return door

    with socket.create_server((LOOPBACK, 0)) as own:
        _welcome(own, go_in)
        timeout = timedelta(seconds=seconds)
        store = c10d.TCPStore(LOOPBACK, own.getsockname()[1], size, is_master=False, timeout=timeout)
        _hang_up(own)
    return store


def _welcome(listening: socket.socket, lead: Callable[[socket.socket], socket.socket | None]) -> None:
    """Accept connections until the socket closes, and forward each to the socket that `lead` returns for it."""

    def attend(guest: socket.socket) -> None:
        host = None
        with suppress(OSError):
            host = lead(guest)
        if host is None:
            _hang_up(guest)
            return
        threading.Thread(target=_pass_on, args=(host, guest), name="store", daemon=True).start()
        _pass_on(guest, host)

    def wait() -> None:
        with suppress(OSError):
            while True:
                guest, _ = listening.accept()
                threading.Thread(target=attend, args=(guest,), name="store", daemon=True).start()

    threading.Thread(target=wait, name="store", daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from one socket to the other until either closes."""
    with suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
    _hang_up(source)
    _hang_up(target)


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)  # wakes a blocked reader
    line.close()
