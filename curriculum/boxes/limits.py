"""Confines untrusted programs: bubblewrap's options, resource limits, and a filter of system calls.

They have two uses. A program of the `sandbox` only computes, in one process. A command in a work tree builds and tests,
so it may start processes, write files, and talk to itself over sockets.
"""

import os
import resource
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
INTERPRETER = ("bin", "lib", "lib64", "include", "pyvenv.cfg")
"""Visible parts of a Python environment; its folder may be a home folder with other content."""

USER = "1000"

LAST_CALL = 450
"""Later calls are refused as if the kernel did not have them. From 424 on, all machines have the same numbers."""


@dataclass(frozen=True)
class Machine:
    """The system calls of one kind of processor, by their numbers.

    Attributes:
        architecture: the kernel's number for it, so that no program enters by another table of calls.
        program: calls that Python needs to compute, to import from a read-only file system and to end. None of them
            makes a process or a thread, signals another, opens a socket, changes a limit or maps shared memory.
        never: calls forbidden to commands. Keys, tracing and measuring of processes, io_uring, userfaultfd, bpf,
            modules, clocks, mounts: parts of the kernel that namespaces do not divide, and that no build or test needs.
            Also memory that belongs to no process: segments of System V, and files without a file system.
        socket: the call that opens a socket.
    """

    architecture: int
    program: frozenset[int]
    never: frozenset[int]
    socket: int

    @property
    def command(self) -> frozenset[int]:
        """System calls that a command in a work tree may make with any arguments."""
        return frozenset(range(LAST_CALL + 1)) - self.never - {self.socket}


MACHINES = {
    "x86_64": Machine(
        architecture=0xC000003E,
        program=frozenset(
            {
                *(0, 1, 3, 8, 17, 20, 32),  # read write close lseek pread64 writev dup; fcntl can have signals sent
                *(2, 4, 5, 6, 7, 21, 79, 89, 217, 257, 262, 332),  # open, stats, poll access getcwd readlink getdents64
                *(9, 10, 11, 12, 25, 28),  # mmap mprotect munmap brk mremap madvise
                *(13, 14, 15, 131, 202, 219, 334),  # its own signal handlers, sigaltstack futex restart_syscall rseq
                *(24, 35, 39, 63, 96, 102, 104, 107, 108, 186, 201, 228, 229, 230),  # sched_yield, sleep, ids, clocks
                *(60, 231, 318),  # exit exit_group getrandom
            }
        ),
        never=frozenset(
            {
                *(101, 310, 311, 298, 321, 323, 425, 426, 427, 248, 249, 250, 153, 155, 161, 163, 164, 165, 166, 167),
                *(168, 169, 172, 173, 175, 176, 177, 178, 179, 180, 227, 246, 303, 304, 305, 308, 313, 320, 428, 429),
                *(430, 431, 432, 433, 434, 438, 440, 442, 443),
                *(29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71, 319, 447),
            }
        ),
        socket=41,
    ),
    # The same calls, or the successors of old ones that it lacks (open, stat, poll, access, readlink).
    "aarch64": Machine(
        architecture=0xC00000B7,
        program=frozenset(
            {
                *(63, 64, 57, 62, 67, 66, 23),
                *(56, 79, 80, 73, 48, 17, 78, 61, 291),
                *(222, 226, 215, 214, 216, 233),
                *(134, 135, 139, 132, 98, 128, 293),
                *(124, 101, 172, 160, 169, 174, 176, 175, 177, 178, 113, 114, 115),
                *(93, 94, 278),
            }
        ),
        never=frozenset(
            {
                *(117, 270, 271, 241, 280, 282, 425, 426, 427, 217, 218, 219, 58, 41, 51, 89, 170, 40, 39, 224, 225),
                *(142, 105, 106, 60, 42, 112, 104, 264, 265, 266, 268, 273, 294, 428, 429, 430, 431, 432, 433, 434),
                *(438, 440, 442, 443),
                *(194, 196, 195, 197, 190, 193, 191, 192, 186, 189, 188, 187, 279, 447),
            }
        ),
        socket=198,
    ),
}
"""Machines by `platform.machine()`."""

COMMAND_SOCKETS = (1, 2, 10, 16)
"""Unix, IPv4, IPv6, netlink: the socket families that a network namespace divides. Others, such as those of virtual
machines, would reach the host."""

X32_CALLS = 0x40000000
"""On x86-64, numbers from here on are the same calls for programs with 32-bit pointers."""

ALLOW, KILL = 0x7FFF0000, 0x80000000
NOT_PERMITTED, NOT_THERE = 0x00050001, 0x00050026


def program_filter(machine: str) -> bytes:
    """Build the seccomp filter for a program of the `sandbox`."""
    return system_call_filter(MACHINES[machine], MACHINES[machine].program)


def command_filter(machine: str) -> bytes:
    """Build the seccomp filter for a command in a work tree; empty for a machine with unknown calls."""
    known = MACHINES.get(machine)
    return system_call_filter(known, known.command, COMMAND_SOCKETS) if known else b""


def system_call_filter(machine: Machine, allowed: Collection[int], families: Sequence[int] = ()) -> bytes:
    """Build a seccomp filter that allows these calls, and sockets of these families; all others fail."""
    load, equal, at_least, above, end = 0x20, 0x15, 0x35, 0x25, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, machine.architecture), (end, 0, 0, KILL), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, X32_CALLS), (end, 0, 0, NOT_PERMITTED)]
    program += [(above, 0, 1, LAST_CALL), (end, 0, 0, NOT_THERE)]
    for first, last in _ranges(allowed):
        program += [(at_least, 0, 2, first), (above, 1, 0, last), (end, 0, 0, ALLOW)]
    program += [(equal, 1, 0, machine.socket), (end, 0, 0, NOT_PERMITTED), (load, 0, 0, 16)]
    for family in families:
        program += [(equal, 0, 1, family), (end, 0, 0, ALLOW)]
    program.append((end, 0, 0, NOT_PERMITTED))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _ranges(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of successive numbers, each as its first and last."""
    for first in sorted(number for number in numbers if number - 1 not in numbers):
        last = first
        while last + 1 in numbers:
            last += 1
        yield first, last


def limits(memory: int, processes: int, file_bytes: int, descriptors: int) -> list[tuple[int, int]]:
    """Limits on one process, by the numbers of `resource`, without processor time.

    Args:
        memory: bytes of address space.
        processes: processes and threads of the user.
        file_bytes: bytes of a written file.
        descriptors: open files; the kernel's memory for them is not part of the address space.
    """
    wanted = {"AS": memory, "NPROC": processes, "FSIZE": file_bytes, "NOFILE": descriptors}
    wanted |= {"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}
    numbers = {name: getattr(resource, f"RLIMIT_{name}", None) for name in wanted}
    return [(number, wanted[name]) for name, number in numbers.items() if number is not None]


def visible_paths(prefix: str) -> list[str]:
    """Paths of this machine visible inside, read-only: system folders, a Python environment and its interpreter."""
    paths = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    python = os.path.realpath(os.path.join(prefix, "bin", "python3"))
    for folder in dict.fromkeys((os.path.dirname(os.path.dirname(python)), prefix)):
        if folder not in ("/", "/usr") and not folder.startswith("/usr/"):
            paths += [path for part in INTERPRETER if os.path.exists(path := os.path.join(folder, part))]
    return paths


def bubblewrap_options(
    visible: Mapping[str, str], mounts: Sequence[str], variables: Mapping[str, str], *, forks: bool, folder: str = "/"
) -> list[str]:
    """Options for a separate, read-only root with no network, no capabilities, and its own processes and users.

    Args:
        visible: path inside -> path to mount there, read-only.
        mounts: further options, for writable mounts.
        variables: environment variables, in addition to bubblewrap's own environment.
        forks: whether programs inside may start processes; these then cannot make another user namespace.
        folder: working folder inside.
    """
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--unshare-user", "--disable-userns"] if forks else []
    options += ["--uid", USER, "--gid", USER, "--hostname", "sandbox"]
    for name, value in variables.items():
        options += ["--setenv", name, value]
    for path, source in visible.items():
        options += ["--ro-bind", source, path]
    for path in SYSTEM:
        options += ["--symlink", os.readlink(path), path] if os.path.islink(path) else []
    return [*options, *mounts, "--remount-ro", "/", "--chdir", folder]
