"""Ports, addresses and network interfaces of this host."""

import errno
import fcntl
import os
import random
import re
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

HOST = re.compile(r"\w[\w-]{0,62}(\.\w[\w-]{0,62})*\.?|[\da-fA-F]*:[\da-fA-F:.]+(%\w+)?", re.ASCII)
"""A name, or an IPv4 or IPv6 address. None begins with a dash, so none can be taken for an option."""
LOOPBACK = "127."
SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface
INTERFACE_VARIABLES = {"GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_IFNAME": "="}
"""Variables that name the interface, with the prefix of its name; "=" makes NCCL match the whole name."""

FIRST_PORT = 10240
MANY_PORTS = 1000
"""Fewer could all be taken."""

_CLAIMS: list[socket.socket] = []
_RANDOM = random.SystemRandom()  # it leaves the seeded numbers alone


def free_port() -> int:
    """Find a free TCP port of this host and reserve it from other calls while this process lives.

    A server may take long to start listening. Until then a socket name that only one process can bind on Linux
    reserves the port. The port lies outside the range from which Linux assigns ports to connections.
    """
    ports = _listening_ports()
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", _RANDOM.choice(ports)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            port = int(probe.getsockname()[1])
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0halfway-port-{port}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                continue
        else:
            _CLAIMS.append(claim)
        return port


def _listening_ports() -> Sequence[int]:
    """Ports that Linux gives to no connection; any port (0) where it keeps too few back."""
    low, high = 32768, 60999
    with suppress(OSError):
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return max(range(FIRST_PORT, low), range(high + 1, 65536), [0] * MANY_PORTS, key=len)


def own_address(peer: str) -> str:
    """The address of this host as seen from "host:port". Raises OSError if "host" cannot be reached."""
    parts = urlsplit(f"//{peer}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "", parts.port or 1))  # this sends nothing
        return str(probe.getsockname()[0])


def addresses_of(hosts: Sequence[str]) -> dict[str, str]:
    """Map each host to an address by which all of these hosts reach it; a host that is not found keeps its name.

    A host's own name often means its loopback (on Debian 127.0.1.1), which no other host can reach.
    """
    found = {host: host.rpartition("@")[2] for host in hosts}
    for host, name in found.items():
        with suppress(OSError):
            found[host] = str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    others = [address for address in found.values() if not address.startswith(LOOPBACK)]
    for host, address in found.items():
        if others and address.startswith(LOOPBACK):
            with suppress(OSError):
                found[host] = own_address(f"{others[0]}:1")
    return found


def interface_of(address: str) -> str | None:
    """Find the network interface of this host with an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


def use_interface_towards(host: str) -> None:
    """Have gloo and NCCL use the interface by which this host reaches another, unless the user has named one.

    By default, gloo uses the interface of this host's own name, and NCCL the first interface that is up.
    """
    with suppress(OSError):
        address = own_address(f"[{host}]:1" if ":" in host else f"{host}:1")
        name = None if address.startswith(LOOPBACK) else interface_of(address)
        for variable, prefix in INTERFACE_VARIABLES.items():
            if name is not None:
                os.environ.setdefault(variable, prefix + name)
