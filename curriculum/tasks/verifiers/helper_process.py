"""A process that judges one text after the other; `helpers` starts several, and replaces those that end.

Messages in both directions: a length, then JSON. A request names a function, as "module:name", and gives its arguments;
the reply is its value, or why it refuses the reference. Nothing else reaches the other side: the standard output and
error of the code here are discarded.
"""

import json
import os
import resource
import struct
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from halfway.curriculum.support.end_with_parent import end_with_starter

HEADER = struct.Struct("<I")


def limit_memory(mib: int) -> None:
    """Limit the address space to its present size and this much more, if the system reports the size."""
    used = Path("/proc/self/statm")
    if used.exists():
        size = int(used.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + mib * 2**20
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def answer(function: str, arguments: list[Any]) -> dict[str, Any]:
    """Call a function; returns its value, "error" for an unreadable reference, or "raised" for other exceptions."""
    module, _, name = function.partition(":")
    try:
        return {"value": getattr(import_module(module), name)(*arguments)}
    except MemoryError:
        os._exit(1)  # the state may be inconsistent; a new process judges the rest
    except ValueError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"[:1000]}


def read(source: int, size: int) -> bytes:
    """Read `size` bytes; end the process if there are no more."""
    data = bytearray()
    while len(data) < size:
        part = os.read(source, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return bytes(data)


def main() -> None:
    memory, *modules = sys.argv[1:]
    requests, replies = os.dup(0), os.dup(1)
    end_with_starter()  # outside Linux, the process ends at its next read
    for module in modules:
        import_module(module)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    limit_memory(int(memory))
    reply: dict[str, Any] = {"value": "ready"}
    while True:
        body = memoryview(json.dumps(reply).encode())
        message = memoryview(HEADER.pack(len(body)) + body)
        while message:
            message = message[os.write(replies, message) :]
        request = json.loads(read(requests, HEADER.unpack(read(requests, HEADER.size))[0]))
        reply = answer(request["function"], request["arguments"])


if __name__ == "__main__":
    main()
