"""The filter of system calls, interpreted as the kernel would, and its numbers against the kernel's own headers."""

import re
import struct
from pathlib import Path

import pytest

from halfway.curriculum.boxes import limits
from halfway.curriculum.boxes.limits import ALLOW, KILL, MACHINES, NOT_PERMITTED, NOT_THERE

HEADERS = Path("/usr/include")
RENAMED = {
    "open": "openat",
    "stat": "newfstatat",
    "lstat": "newfstatat",
    "poll": "ppoll",
    "access": "faccessat",
    "readlink": "readlinkat",
    "time": "clock_gettime",
}
"""Calls of x86-64 that later machines lack, and what a C library calls there instead."""
GONE = {"iopl", "ioperm", "get_kernel_syms", "query_module"}
"""Calls of x86-64 that later machines lack altogether."""


def interpret(program: bytes, architecture: int, call: int, argument: int = 0) -> int:
    """What a seccomp program of loads, jumps and returns says of one call."""
    data = struct.pack("<iIQ6Q", call, architecture, 0, argument, *[0] * 5)
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator = place = 0
    while True:
        operation, yes, no, value = code[place]
        place += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                place += yes if accumulator == value else no
            case 0x35:
                place += yes if accumulator >= value else no
            case 0x25:
                place += yes if accumulator > value else no
            case 0x06:
                return value
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


def numbers_of_x86_64() -> dict[str, int]:
    header = next(HEADERS.glob("**/asm/unistd_64.h"), None)
    if header is None:
        pytest.skip("the kernel's headers for x86-64 are not installed")
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}


def numbers_of_aarch64() -> dict[str, int]:
    """The numbers of asm-generic, all of which aarch64 uses."""
    header = HEADERS / "asm-generic" / "unistd.h"
    if not header.exists():
        pytest.skip("the kernel's generic headers are not installed")
    text = header.read_text()
    found = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    aliases = re.findall(r"#define __NR_(\w+) __NR3264_(\w+)", text)
    return found | {name: found[other] for name, other in aliases if other in found}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_lets_through_what_it_names_and_nothing_else(machine: str) -> None:
    known = MACHINES[machine]
    for program, allowed in (
        (limits.program_filter(machine), known.program),
        (limits.command_filter(machine), known.command),
    ):
        for call in range(700):
            if call == known.socket:
                continue
            wanted = ALLOW if call in allowed else NOT_PERMITTED if call <= limits.LAST_CALL else NOT_THERE
            assert interpret(program, known.architecture, call) == wanted, call
        for call in (limits.X32_CALLS, limits.X32_CALLS + 1, 0xFFFFFFFF - (1 << 31)):
            assert interpret(program, known.architecture, call) == NOT_PERMITTED
        for other in (0x40000003, 0x40000028, *(one.architecture for one in MACHINES.values() if one != known)):
            assert interpret(program, other, min(allowed)) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_opens_no_socket_and_a_command_those_of_its_network_namespace(machine: str) -> None:
    known = MACHINES[machine]
    for family in range(64):
        wanted = ALLOW if family in limits.COMMAND_SOCKETS else NOT_PERMITTED
        assert interpret(limits.command_filter(machine), known.architecture, known.socket, family) == wanted
        assert interpret(limits.program_filter(machine), known.architecture, known.socket, family) == NOT_PERMITTED


def test_both_machines_name_the_same_calls() -> None:
    first, second = MACHINES["x86_64"], MACHINES["aarch64"]
    names = {number: name for name, number in numbers_of_x86_64().items()}
    numbers = numbers_of_aarch64()
    assert (names[first.socket], numbers["socket"]) == ("socket", second.socket)
    program = {names[call] for call in first.program}
    assert {numbers[RENAMED.get(name, name)] for name in program} == second.program
    assert {name for name in program if name not in numbers} == RENAMED.keys()
    never = {names[call] for call in first.never}
    assert {numbers[name] for name in never - GONE} == second.never
    assert not GONE & numbers.keys()


def test_an_unknown_machine_has_no_filter_of_commands() -> None:
    assert limits.command_filter("riscv64") == b""
