"""The process inside the sandbox: forks one child per program, and never reads a program itself.

`halfway.curriculum.boxes.sandbox` starts it as a script, so it imports only the standard library. Requests come on
standard input: a header (magic, number, length, milliseconds), then a JSON body that only the child reads: code, entry
(name of the function) and inputs (each a literal tuple of arguments). Replies go to standard output: the request's
number, a status byte, a length and the child's bytes. The number is random, so that a reply cannot pass for another
program's. The parent relays these bytes through one buffer that it wipes, and keeps no other trace of a program. A
child, which starts as a copy of the parent, finds nothing of earlier programs.

A child that breaks out of Python can write any bytes as its own result. That pipe is its only open file, and the
reference answer never enters the sandbox.
"""

import ast
import ctypes
import gc
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
from typing import Any

HEADER = struct.Struct("<4s8sII")
REPLY = struct.Struct("<8scI")
MAGIC = b"task"

MAX_DEPTH = 20
MAX_TEXT = 4096
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38


def confine(libc: Any, program: Any) -> None:
    """Install the filter on this process, permanently. Raises OSError if the kernel refuses."""
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses the system-call filter")


def limit(limits: list[tuple[int, int]], seconds: float) -> None:
    """Limit this process and its processor time, permanently."""
    for number, value in [*limits, (resource.RLIMIT_CPU, int(seconds) + 2)]:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def literal(value: object, depth: int = 0) -> tuple[str, str]:
    """Convert a plain value to text, and to a text that is the same for equal values.

    The first is a Python literal with sets in a fixed order. The second follows Python's ==: True, 1 and 1.0 are equal,
    and so are dictionaries in any order. Raises TypeError for values that are not plain or not finite.
    """
    if depth > MAX_DEPTH:
        raise TypeError(f"nested deeper than {MAX_DEPTH}")
    kind = type(value)
    if value is None or kind is str:
        return repr(value), repr(value)
    if kind in (bool, int, float):
        return _number(value)
    if kind in (list, tuple, set):
        parts = [literal(item, depth + 1) for item in value]  # type: ignore[attr-defined]
        shown, keys = [part[0] for part in parts], [part[1] for part in parts]
        return _sequence(kind, sorted(shown), sorted(keys)) if kind is set else _sequence(kind, shown, keys)
    if kind is dict:
        pairs = [(literal(k, depth + 1), literal(v, depth + 1)) for k, v in value.items()]  # type: ignore[attr-defined]
        text = "{" + ", ".join(f"{k[0]}: {v[0]}" for k, v in pairs) + "}"
        return text, "{" + ", ".join(sorted(f"{k[1]}: {v[1]}" for k, v in pairs)) + "}"
    raise TypeError(f"a {kind.__name__} is not a plain value")


def _number(value: Any) -> tuple[str, str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} is not a plain value")
        return repr(value), repr(int(value)) if value.is_integer() else repr(value)
    return repr(value), repr(int(value))


def _sequence(kind: type, shown: list[str], keys: list[str]) -> tuple[str, str]:
    if kind is set and not shown:
        return "set()", "set()"
    brackets: dict[type, tuple[str, str]] = {
        list: ("[", "]"),
        tuple: ("(", ",)" if len(shown) == 1 else ")"),
        set: ("{", "}"),
    }
    opening, closing = brackets[kind]
    return opening + ", ".join(shown) + closing, opening + ", ".join(keys) + closing


def evaluate(request: dict[str, Any]) -> dict[str, Any]:
    """Compute the function on each input; returns the results, or the program's error."""
    try:
        names: dict[str, Any] = {"__name__": "task"}
        exec(compile(request["code"], "<task>", "exec"), names)
        function = names[request["entry"]]
        return {"results": [literal(function(*ast.literal_eval(text))) for text in request["inputs"]]}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:MAX_TEXT]}


class Worker:
    """The parent process of the programs."""

    def __init__(self, output: int, limits: list[tuple[int, int]], code: bytes):
        self.requests, self.replies = os.dup(0), os.dup(1)
        nowhere = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.close(nowhere)
        self.limits, self.filtered = limits, bool(code)
        self.buffer, self.zeros = bytearray(output + 1), bytes(output + 1)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.code = ctypes.create_string_buffer(code)
        address = ctypes.addressof(self.code)
        self.program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, address))
        if self.filtered:
            self.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)

    def serve(self) -> None:
        """Serve requests until standard input closes."""
        while header := os.read(self.requests, HEADER.size):
            magic, number, length, milliseconds = HEADER.unpack(header)
            if magic != MAGIC:  # a child died before it had read its body
                return
            self._serve_one(number, length, milliseconds / 1000)

    def _serve_one(self, number: bytes, length: int, seconds: float) -> None:
        results, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(results)
            self._be_child(length, seconds, write_end)
        os.close(write_end)
        status, size = self._collect(results, time.monotonic() + seconds)
        os.close(results)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with memoryview(self.buffer) as view:
            os.write(self.replies, REPLY.pack(number, status, size))
            sent = 0
            while sent < size:
                sent += os.write(self.replies, view[sent:size])
            view[:] = self.zeros

    def _collect(self, results: int, deadline: float) -> tuple[bytes, int]:
        """Collect the child's output until it ends, and a status: k = complete, t = out of time, o = too long."""
        size = 0
        with memoryview(self.buffer) as view:
            while size < len(view):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([results], [], [], left)[0]:
                    return b"t", 0
                read = os.readv(results, [view[size:]])
                if read == 0:
                    return b"k", size
                size += read
        return b"o", 0

    def _be_child(self, length: int, seconds: float, write_end: int) -> None:
        try:
            body = b""
            while len(body) < length:
                body += os.read(self.requests, length - len(body))
            os.close(self.requests)
            os.close(self.replies)
            request = json.loads(body)
            limit(self.limits, seconds)
            if self.filtered:
                confine(self.libc, self.program)
            reply = json.dumps(evaluate(request)).encode()
            while reply:
                reply = reply[os.write(write_end, reply) :]
        finally:
            os._exit(0)


def main() -> None:
    settings = json.loads(sys.argv[1])
    for module in settings["modules"]:  # once, for all children
        __import__(module)
    gc.freeze()  # otherwise a collection in a child would copy every page of the parent
    Worker(settings["output"], settings["limits"], bytes.fromhex(settings["filter"])).serve()


if __name__ == "__main__":
    main()
