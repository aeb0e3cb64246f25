"""The process between Halfway and the commands of one box; it holds the work tree and starts bubblewrap.

`halfway.curriculum.boxes.bubblewrap` starts it as a script, so it imports only the standard library and `trees` beside
it. It is the first process of its own process table: when it ends, for whatever reason, everything in the box ends.
Mounts exist in its namespace only, so nothing has to be removed afterwards.

Messages in both directions: a header (lengths of two parts), a JSON object, bytes.
"""

import ctypes
import errno
import json
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import trees  # type: ignore[import-not-found]  # beside this script, which is not part of a package when it runs

HEADER = struct.Struct("<II")
KEPT = 1_048_576
"""Bytes of output to keep at its beginning, and at its end."""

WATCH_SECONDS = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")
SCAN_SECONDS = 2.0
"""Time limit on the search for shared memory, which a program that keeps changing its mappings can prolong."""

MAPPING_BYTES = 192
"""The kernel's bytes for a mapping; an address space may have one per page."""

DESCRIPTOR_BYTES = 2 * PAGE
"""Bytes counted for an open file: the smallest buffer of a pipe, for one of its ends."""

NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x40000000
"""User, mount, process, IPC, host name, network."""

MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x1000, 0x4000, 0x40000, 2, 4
MNT_DETACH = 2
NO_RANDOM_ADDRESSES = 0x0040000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


class RefusalError(Exception):
    """This machine does not allow something, which the message names."""


libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, status: int) -> None:
    """Raise RefusalError if a call of the C library failed."""
    if status != 0:
        raise RefusalError(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    arguments = (os.fsencode(text) if text else None for text in (source, target, kind))
    call(f"mount {kind or 'bind'} on {target}", libc.mount(*arguments, flags, os.fsencode(options) or None))


def unmount(target: str) -> None:
    libc.umount2(os.fsencode(target), MNT_DETACH)


class Worker:
    """Holds at most one work tree at a time."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.scratch: str = settings["scratch"]
        self.box = f"{self.scratch}/box"
        self.base = ""
        self.clock = 0
        self.overlay = True

    def see(self) -> None:
        """Mount the paths visible in boxes below one folder, as a user who may read them."""
        mount("", "/", flags=MS_REC | MS_PRIVATE)
        mount("tmpfs", self.scratch, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
        for i, path in enumerate([self.settings["bases"], *self.settings["visible"]]):
            target = f"{self.scratch}/{i}"
            if os.path.isdir(path):
                os.mkdir(target)
            else:
                open(target, "x").close()
            mount(path, target, flags=MS_BIND | MS_REC)
        os.mkdir(self.box)

    def enclose(self) -> None:
        """Enter our own namespaces. Drop root's rights first: root's processes cannot be limited."""
        uid, gid = os.geteuid(), os.getegid()
        root = uid != self.settings["uid"]
        if root:
            call("unshare", libc.unshare(0x00020000))
            self.see()
            uid = gid = self.settings["uid"]
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        call("user namespaces", libc.unshare(NEW_NAMESPACES))
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if not root:
            self.see()
        mount("proc", "/proc", "proc")

    def open(self, base: str) -> None:
        """Open an untouched work tree of this base."""
        self.base, self.clock = f"{self.scratch}/0/{base}", 0
        self.fresh(trees.Changes())

    def fresh(self, changes: Any) -> None:
        """Make a work tree with these changes, on its own file system."""
        self.drop()
        options = f"size={self.settings['disk']},nr_inodes={self.settings['files']},mode=755"
        mount("tmpfs", self.box, "tmpfs", MS_NOSUID | MS_NODEV, options)
        for name in ("tree", "upper", "work", "tmp", "shm"):
            os.mkdir(f"{self.box}/{name}")
        for name in ("tmp", "shm"):
            os.chmod(f"{self.box}/{name}", 0o777)
        self.overlay = self.settings["tree"] != "copy"
        if self.overlay:
            trees.lay(f"{self.box}/upper", changes.tree, self.base, overlay=True)
            layers = f"lowerdir={self.base},upperdir={self.box}/upper,workdir={self.box}/work,userxattr"
            try:
                mount("overlay", f"{self.box}/tree", "overlay", 0, layers)
            except RefusalError:
                if self.settings["tree"] == "overlay":
                    raise
                self.overlay = False
                shutil.rmtree(f"{self.box}/upper")
        if not self.overlay:
            shutil.copytree(self.base, f"{self.box}/tree", symlinks=True, dirs_exist_ok=True)
            trees.lay(f"{self.box}/tree", changes.tree, self.base, overlay=False)
        trees.lay(f"{self.box}/tmp", changes.scratch, "/nowhere", overlay=False)
        self.clock = changes.clock

    def drop(self) -> None:
        """Drop the work tree."""
        unmount(f"{self.box}/tree")
        unmount(self.box)

    def save(self) -> bytes:
        harvest, where = (trees.harvest, "upper") if self.overlay else (trees.harvest_copy, "tree")
        room = self.settings["disk"]
        tree = harvest(f"{self.box}/{where}", self.base, self.clock, room)
        scratch = trees.select_lasting(trees.harvest(f"{self.box}/tmp", "/nowhere", self.clock, room))
        packed: bytes = trees.pack(trees.Changes(self.clock, tree, scratch))
        return packed

    def execute(self, argv: list[str], seconds: float, stdin: bytes) -> tuple[dict[str, Any], bytes]:
        """Run a command inside the walls, and end all processes that it started."""
        self.clock += 1
        begun = time.monotonic()
        feed, code = os.memfd_create("input"), os.memfd_create("filter")
        os.write(code, bytes.fromhex(self.settings["filter"]))
        view = memoryview(stdin)
        while view:
            view = view[os.write(feed, view) :]
        os.lseek(feed, 0, 0)
        os.lseek(code, 0, 0)
        filtered = ["--seccomp", str(code)] if self.settings["filter"] else []
        try:
            process = subprocess.Popen(
                [*self.settings["walls"], *filtered, "--", *argv],
                stdin=feed,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(code,),
                preexec_fn=lambda: self.limit(seconds),
                env={},
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno != errno.E2BIG:
                raise
            # The command is too long, or contains a NUL; a shell would report that too.
            return {"status": 126, "ended": "exit", "left_out": 0, "seconds": 0.0}, f"bash: {error}\n".encode()
        finally:
            os.close(feed)
            os.close(code)
        output, ended = self.listen(process, begun + seconds)
        self.end_all(process)
        status = process.returncode if ended == "exit" else 124
        reply = {"status": status, "ended": ended, "left_out": output.left_out, "seconds": time.monotonic() - begun}
        return reply, bytes(output.head + output.tail)

    def listen(self, process: "subprocess.Popen[bytes]", deadline: float) -> tuple["Output", str]:
        """Collect output until the command ends, runs out of time or uses too much memory."""
        assert process.stdout is not None
        source, output = process.stdout.fileno(), Output()
        watched = time.monotonic() + WATCH_SECONDS
        while True:
            now = time.monotonic()
            if now >= deadline:
                return output, "time"
            if now >= watched:
                watched = now + WATCH_SECONDS
                if memory_used(self.settings["memory"]) > self.settings["memory"]:
                    return output, "memory"
            ready, _, _ = select.select([source, 0], [], [], max(min(deadline, watched) - now, 0))
            if 0 in ready:  # Halfway sends nothing while a command runs: its end has closed the pipe
                os._exit(1)
            if source in ready:
                part = os.read(source, 65_536)
                if not part:
                    process.wait()
                    return output, "exit"
                output.add(part)

    def end_all(self, process: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        process.wait()
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            pass

    def limit(self, seconds: float) -> None:
        libc.personality(NO_RANDOM_ADDRESSES)
        for number, value in [*self.settings["limits"], (resource.RLIMIT_CPU, int(seconds) + 2)]:
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


class Output:
    """The beginning and the end of a command's output, of any length."""

    def __init__(self) -> None:
        self.head, self.tail, self.left_out = bytearray(), bytearray(), 0

    def add(self, part: bytes) -> None:
        room = KEPT - len(self.head)
        self.head += part[:room]
        self.tail += part[room:]
        over = len(self.tail) - KEPT
        if over > 0:
            del self.tail[:over]
            self.left_out += over


def memory_used(enough: int) -> int:
    """Bytes of memory of all processes in this process table, private and shared.

    Private memory includes page tables (a process that touches scattered pages needs three pages for each), and the
    most that the kernel needs for mappings and open files, as far as the kernel counts them, from Linux 6.2.

    Args:
        enough: shared memory is counted only if the processes' address spaces together are larger than this.
    """
    own = reserved = 0
    processes = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    for name in processes:
        with suppress(OSError), open(f"/proc/{name}/statm") as file:
            fields = file.read().split()
            if len(fields) > 2:
                own += (int(fields[1]) - int(fields[2])) * PAGE + int(fields[0]) * MAPPING_BYTES
                reserved += int(fields[0]) * PAGE
        with suppress(OSError), open(f"/proc/{name}/status") as file:
            own += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("VmPTE:"))
        with suppress(OSError):
            own += os.stat(f"/proc/{name}/fd").st_size * DESCRIPTOR_BYTES
    return own if reserved <= enough or own > enough else own + shared_memory(processes)


def shared_memory(processes: list[str]) -> int:
    """Bytes of memory that processes share without a file; each piece counts once and in full.

    The processes that map a piece do not show its used part. A piece that cannot be read within
    `SCAN_SECONDS` counts as far too much.
    """
    pieces: dict[str, int] = {}
    until = time.monotonic() + SCAN_SECONDS
    for name in processes:
        with suppress(OSError), open(f"/proc/{name}/maps") as file:
            for line in file:
                if time.monotonic() > until:
                    return sys.maxsize
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[1].endswith("s") and fields[5].startswith("/dev/zero"):
                    start, end = (int(address, 16) for address in fields[0].split("-"))
                    pieces[fields[4]] = max(pieces.get(fields[4], 0), int(fields[2], 16) + end - start)
    return sum(pieces.values())


def read(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return bytes(data)


def answer(facts: dict[str, Any], data: bytes = b"") -> None:
    head = json.dumps(facts).encode()
    message = memoryview(HEADER.pack(len(head), len(data)) + head + data)
    while message:
        message = message[os.write(1, message) :]


def serve(worker: Worker) -> None:
    """Serve one request after the other, until standard input closes."""
    while True:
        sizes = HEADER.unpack(read(HEADER.size))
        request, data = json.loads(read(sizes[0])), read(sizes[1])
        try:
            match request["do"]:
                case "open":
                    worker.open(request["base"])
                    answer({"overlay": worker.overlay})
                case "restore":
                    worker.fresh(trees.unpack(data))
                    answer({})
                case "run":
                    answer(*worker.execute(request["argv"], request["seconds"], data))
                case "save":
                    answer({}, worker.save())
                case "close":
                    worker.drop()
                    answer({})
        except (RefusalError, OSError, ValueError, OverflowError, RecursionError) as error:
            # A tree that cannot be saved or restored is the commands' fault: too large, or nested too deeply.
            full = request["do"] in ("save", "restore") or getattr(error, "errno", None) == errno.ENOSPC
            answer({"error": str(error)[:500], "full": full, "lost": request["do"] == "run"})


def main() -> None:
    worker = Worker(json.loads(sys.argv[1]))
    try:
        worker.enclose()
    except (RefusalError, OSError) as error:
        answer({"error": str(error)})
        raise SystemExit(1) from None
    answer({"ready": True})
    serve(worker)


if __name__ == "__main__":
    main()
