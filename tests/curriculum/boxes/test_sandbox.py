"""The sandbox: hostile programs get nothing and leave nothing, and the next program's results do not change."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from messages import says
from sandboxes import needs_sandbox

from halfway.curriculum import UserError
from halfway.curriculum.boxes import sandbox as module
from halfway.curriculum.boxes.sandbox import (
    WITHOUT_SANDBOX,
    Failure,
    Job,
    Result,
    Sandbox,
    SandboxOptions,
    get_sandbox,
)
from halfway.curriculum.boxes.sandbox_worker import literal
from halfway.curriculum.support.acceptance import VARIABLE

OPTIONS = SandboxOptions(seconds=0.5, memory_mib=192)
SECRET = "results-of-an-earlier-program"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(OPTIONS, ("math",))) as started:
        yield started


def hostile(body: str) -> Job:
    return Job("def f(x):\n" + "\n".join(f"    {line}" for line in body.splitlines()), "f", ("(1,)",))


CTYPES = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
# Each returns a value that tells its success; "-" stands for any failure.
HOSTILE = {
    "network: loopback": "import socket\ns = socket.create_connection(('127.0.0.1', PORT), timeout=1)\nreturn 'won'",
    "network: raw call": CTYPES + "return 'won' if libc.socket(2, 1, 0) >= 0 else 'no'",
    "network: unix": "import socket\nsocket.socketpair()\nreturn 'won'",
    "files: write": "open('/worker.py', 'w')\nreturn 'won'",
    "files: create": "open('/new', 'w').write('x')\nreturn 'won'",
    "files: temporary": "import tempfile\ntempfile.TemporaryFile()\nreturn 'won'",
    "files: change rights": "import os\nos.chmod('/worker.py', 0o777)\nreturn 'won'",
    "files: remove": "import os\nos.unlink('/worker.py')\nreturn 'won'",
    "files: shared memory": "open('/dev/shm/x', 'w')\nreturn 'won'",
    "files: memory file": "import os\nos.memfd_create('x')\nreturn 'won'",
    "files: host passwords": "return open('/etc/passwd').read() and 'won'",
    "files: host folder": "return open(HERE).read() and 'won'",
    "files: other processes": "import os\nreturn os.listdir('/proc') and 'won'",
    "files: mount": CTYPES + "return 'won' if libc.mount(b'none', b'/dev', b'tmpfs', 0, None) == 0 else 'no'",
    "environment": "import os\nreturn 'won' if set(os.environ) - {'PYTHONHASHSEED', 'PWD', 'LC_CTYPE'} else 'no'",
    "process: fork": "import os\nos.fork()\nreturn 'won'",
    "process: fork bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "process: raw clone": CTYPES + "return 'won' if libc.syscall(56, 17, 0, 0, 0, 0) >= 0 else 'no'",
    "process: vfork": CTYPES + "return 'won' if libc.syscall(58) >= 0 else 'no'",
    "process: thread": "import _thread\n_thread.start_new_thread(print, ())\nreturn 'won'",
    "process: exec": "import os\nos.execv('/usr/bin/env', ['env'])",
    "process: shell": "import subprocess\nreturn subprocess.run(['id'], capture_output=True).returncode == 0 and 'won'",
    "process: kill parent": "import os\nos.kill(os.getppid(), 9)\nreturn 'won'",
    "process: kill all": "import os\nos.kill(-1, 9)\nreturn 'won'",
    "process: signal by file": "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())\nreturn 'won'",
    "process: trace parent": CTYPES + "import os\nreturn 'won' if libc.ptrace(16, os.getppid(), 0, 0) == 0 else 'no'",
    "process: read parent": CTYPES
    + "import os\nreturn 'won' if libc.syscall(310, os.getppid(), 0, 0, 0, 0, 0) >= 0 else 'no'",
    "process: new namespace": CTYPES + "return 'won' if libc.unshare(0x10000000) == 0 else 'no'",
    "process: 32-bit calls": CTYPES + "return 'won' if libc.syscall(0x40000000 + 39) >= 0 else 'no'",
    "calls: memory file": CTYPES + "return 'won' if libc.syscall(319, b'x', 0) >= 0 else 'no'",
    # Kernels without these calls fail with ENOSYS; it must be the filter that refuses, with EPERM.
    "calls: memory file by x32": CTYPES
    + "libc.syscall(0x40000000 + 319, b'x', 0)\nreturn 'no' if ctypes.get_errno() == 1 else 'won'",
    "calls: secret memory": CTYPES + "return 'won' if libc.syscall(447, 0) >= 0 else 'no'",
    "calls: System V memory": CTYPES + "return 'won' if libc.syscall(29, 0, 4096, 0o1600) >= 0 else 'no'",
    "calls: socket to the host": CTYPES + "return 'won' if libc.socket(40, 1, 0) >= 0 else 'no'",
    "calls: io_uring": CTYPES + "return 'won' if libc.syscall(425, 1, bytes(120)) >= 0 else 'no'",
    "calls: userfaultfd": CTYPES + "return 'won' if libc.syscall(323, 1) >= 0 else 'no'",
    "limit: open files": "import os\nfor _ in range(200):\n    os.open('/dev/null', 0)\nreturn 'won'",
    "limit: raise": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))\nreturn 'won'",
    "memory: one block": "return len(bytearray(4 << 30)) and 'won'",
    "memory: shared": "import mmap\nmmap.mmap(-1, 1 << 30)\nreturn 'won'",
    "memory: many blocks": "kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))",
    "time: loop": "while True:\n    pass",
    "time: loop that catches": "while True:\n    try:\n        while True:\n            pass\n"
    "    except BaseException:\n        pass",
    "time: sleep": "import time\ntime.sleep(60)\nreturn 'won'",
    "time: one long call": "return str(9 ** 9 ** 8) and 'won'",
    "time: ignore signals": "import signal\nfor s in range(1, 32):\n    try:\n"
    "        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True:\n    pass",
    "output: long result": "return 'x' * (1 << 20)",
    "output: standard output": "import os\nfor _ in range(10000):\n    os.write(1, b'x' * 65536)\nreturn 'no'",
    "output: flood of the pipe": "import os\nwhile True:\n    for fd in range(3, 64):\n        try:\n"
    "            os.write(fd, b'x' * 65536)\n        except OSError:\n            pass",
    "crash: segmentation fault": "import ctypes\nctypes.string_at(0)",
    "crash: exit": "import os\nos._exit(0)",
    "crash: system exit": "raise SystemExit(0)",
    "crash: interrupt": "raise KeyboardInterrupt",
    "crash: recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\nlimit = lambda n: str(limit(n + 1))\n"
    "class A:\n    def __repr__(self): return repr(self)\nreturn repr(A())",
    "forge: reply frame": "import os, struct\nfor fd in range(3, 64):\n    try:\n"
    "        os.write(fd, struct.pack('<8scI', bytes(8), b'k', 0))\n    except OSError:\n        pass\nos._exit(0)",
    "forge: half a result": "import os\nfor fd in range(3, 64):\n    try:\n"
    '        os.write(fd, b\'{"results": [["1"\')\n    except OSError:\n        pass\nos._exit(0)',
    "forge: nested result": "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'[' * 60000)\n"
    "    except OSError:\n        pass\nos._exit(0)",
    "forge: object": "class A(int):\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n"
    "    def __repr__(self): return 'won'\nreturn A(3)",
    "patch: builtins": "import builtins\nbuiltins.repr = lambda value: '7'\nbuiltins.isinstance = lambda a, b: True",
    "patch: worker": "import sys\nmain = sys.modules['__main__']\nmain.literal = lambda *a: ('7', '7')\n"
    "main.evaluate = lambda request: {'results': [['7', '7']]}\nmain.Worker._serve_one = None",
    "patch: json": 'import json\njson.dumps = lambda value: \'{"results": [["7", "7"]]}\'',
    "patch: comparison": "import operator, builtins\noperator.eq = lambda a, b: True\n"
    "for name in ('all', 'any', 'sorted'):\n    setattr(builtins, name, lambda *a: True)",
    # The halves of the secret are joined only here, so that this program does not find itself.
    "frames: earlier results": "import sys\nframe, found = sys._getframe(1), False\n"
    "secret = 'results-of-' + 'an-earlier'\n"
    "while frame:\n    names = {**frame.f_globals, **frame.f_locals}\n"
    "    found |= any(secret in str(v) for v in names.values() if v is not secret)\n    frame = frame.f_back\n"
    "return found and 'won'",
    "frames: patch the caller": "import sys\nframe = sys._getframe(1)\nwhile frame:\n"
    "    frame.f_globals['literal'] = None\n    frame = frame.f_back",
}
PATCHES = ("patch:", "frames: patch")


def neighbour(lane: int = 0) -> Job:
    return Job("def f(x):\n    return [repr(x), sorted({x, 2}), isinstance(x, int)]", "f", ("(3,)", "(1,)"), lane)


ORDER = Job("def f(x): return list({*'abcdef'})", "f", ("(1,)",))
EXPECTED = (Result("['3', [2, 3], True]", "['3', [2, 3], 1]"), Result("['1', [1, 2], True]", "['1', [1, 2], 1]"))


def workers() -> list[str]:
    """Command lines of this process's descendants that are sandboxes, or in one."""
    lines = subprocess.run(
        ["ps", "-eo", "ppid,pid,args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    parents = {int(p): (int(parent), line) for line in lines[1:] for parent, p, *_ in [line.split()]}

    def ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process][0]
        return process == os.getpid()

    return [line for process, (_, line) in parents.items() if ours(process) and "/worker.py" in line]


@needs_sandbox
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_contained(sandbox: Sandbox, name: str, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("x")
    sandbox.run([neighbour(), Job(f"def f(x): return '{SECRET}'", "f", ("(1,)",))])
    before = len(workers())
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = HOSTILE[name].replace("PORT", str(server.getsockname()[1])).replace("HERE", repr(str(tmp_path / "host")))
        started = time.monotonic()
        (outcome,) = sandbox.run([hostile(body)])
    assert time.monotonic() - started < OPTIONS.seconds + 3
    if name.startswith(PATCHES):
        assert outcome in {(Result("7", "7"),), (Result("None", "None"),)} or isinstance(outcome, Failure)
    else:
        assert isinstance(outcome, Failure) or outcome[0].shown in ("'no'", "False")
    assert sandbox.run([neighbour()]) == [EXPECTED]
    assert len(workers()) == before


@needs_sandbox
@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("process: fork", "error"),
        ("time: loop", "timeout"),
        ("time: sleep", "timeout"),
        ("output: long result", "output"),
        ("crash: segmentation fault", "crash"),
        ("crash: exit", "crash"),
        ("forge: half a result", "crash"),
        ("memory: one block", "error"),
    ],
)
def test_the_fault_of_each_program_is_reported(sandbox: Sandbox, name: str, failure: str) -> None:
    (outcome,) = sandbox.run([hostile(HOSTILE[name])])
    assert isinstance(outcome, Failure) and outcome.fault == failure


@needs_sandbox
def test_a_child_finds_no_earlier_program_in_its_memory(sandbox: Sandbox) -> None:
    mark = "".join(["earlier-", "mark-", "82746"])
    sandbox.run([Job(f"def f(x): return '{mark}' + x", "f", ("('argument',)",))] * 3)
    look = (
        "import gc\nhalf = ['earlier-', 'mark-', '82746']\n"
        "found = [o for o in gc.get_objects() if isinstance(o, (list, dict, tuple)) and o is not half\n"
        "         and ''.join(half) in repr(o)[:10000]]\nreturn len(found)"
    )
    assert sandbox.run([hostile(look)]) == [(Result("0", "0"),)]


@needs_sandbox
def test_only_the_interpreters_parts_of_its_folder_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may be installed in somebody's home."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        (Path(home) / ".ssh").mkdir()
        (Path(home) / ".ssh" / "id_rsa").write_text("a secret")
        for part in ("bin", "lib"):
            (Path(home) / part).symlink_to(Path(sys.base_prefix) / part)
        monkeypatch.setattr(sys, "base_prefix", home)
        with closing(Sandbox(OPTIONS)) as sandbox:
            (seen,) = sandbox.run([hostile(f"import os\nreturn sorted(os.listdir({home!r}))")])
    assert seen == (Result("['bin', 'lib']", "['bin', 'lib']"),)


@needs_sandbox
def test_the_lanes_differ_in_hash_order_and_agree_otherwise(sandbox: Sandbox) -> None:
    first, second = sandbox.run([ORDER, replace(ORDER, lane=1)])
    assert not isinstance(first, Failure) and first != second
    assert sandbox.run([neighbour(0), neighbour(1)]) == [EXPECTED, EXPECTED]


@needs_sandbox
def test_a_worker_that_was_killed_is_replaced() -> None:
    with closing(Sandbox(OPTIONS)) as sandbox:
        assert sandbox.run([neighbour()]) == [EXPECTED]
        for line in workers():
            if "bwrap" in line:
                os.kill(int(line.split()[1]), 9)
        time.sleep(0.2)
        assert sandbox.run([neighbour()]) == [EXPECTED]


@needs_sandbox
def test_an_answer_that_comes_late_reaches_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(workers())
    with closing(Sandbox(OPTIONS)) as sandbox:
        sandbox.run([neighbour()])
        processes = [int(line.split()[1]) for line in set(workers()) - before]
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.2)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        sandbox.run([Job("def f(x): return 'late'", "f", ("(1,)", "(2,)"))])
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        monkeypatch.setattr(module, "GRACE_SECONDS", 2.0)
        time.sleep(0.2)
        assert sandbox.run([neighbour()]) == [EXPECTED]


@pytest.mark.parametrize(("numbered", "answers"), [("number", True), ("bytes(8)", False)])
def test_an_answer_to_another_request_is_not_taken(numbered: str, answers: bool) -> None:
    code = f"""
import os, struct
for numbered in (lambda number: number, lambda number: {numbered}):
    _, number, length, _ = struct.unpack("<4s8sII", os.read(0, 20))
    os.read(0, length)
    reply = b'{{"results": [["1", "1"]]}}'
    os.write(1, struct.pack("<8scI", numbered(number), b"k", len(reply)) + reply)
"""
    worker = module._Worker([sys.executable, "-c", code], hash_seed=1, output=1024)
    try:
        reply = worker.ask(b"{}", 20.0)
        assert reply == ((b"k", b'{"results": [["1", "1"]]}') if answers else None)
    finally:
        worker.stop()


@needs_sandbox
def test_closing_leaves_no_process() -> None:
    before = set(workers())
    with closing(Sandbox(OPTIONS)) as sandbox:
        sandbox.run([neighbour(), neighbour(1)])
        assert len(set(workers()) - before) >= 2
    deadline = time.monotonic() + 5
    while set(workers()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(workers()) - before


@needs_sandbox
def test_a_request_that_does_not_fit_is_refused(sandbox: Sandbox) -> None:
    (outcome,) = sandbox.run([Job("def f(x): return 1" + " " * 40_000, "f", ("(1,)",))])
    assert isinstance(outcome, Failure) and outcome.fault == "too long"


@needs_sandbox
def test_inputs_are_fresh_for_each_call(sandbox: Sandbox) -> None:
    (outcome,) = sandbox.run([Job("def f(x):\n    x.append(1)\n    return x", "f", ("([],)", "([],)"))])
    assert outcome == (Result("[1]", "[1]"), Result("[1]", "[1]"))


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for make in (Sandbox, get_sandbox):
        with pytest.raises(UserError) as error:
            make(SandboxOptions(seconds=1.25))
        assert "bubblewrap is not installed" in str(error.value) and f"{VARIABLE}={WITHOUT_SANDBOX}" in str(error.value)
        assert "\n" not in str(error.value)


def test_on_another_kind_of_machine_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module.platform, "machine", lambda: "riscv")
    with pytest.raises(UserError, match=says("x86_64", "aarch64", "Linux riscv")):
        Sandbox(OPTIONS)


def test_a_sandbox_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with closing(Sandbox(OPTIONS)) as sandbox, pytest.raises(UserError, match=says("no namespaces here")):
        sandbox.run([neighbour()])


@pytest.mark.parametrize("words", ["1", "yes", "No-Sandbox", "no-sandbox-please", "environment:no-sandbox"])
def test_anything_but_the_word_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str) -> None:
    monkeypatch.setenv(VARIABLE, words)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=says("bubblewrap", "install")):
        Sandbox(OPTIONS)


def test_with_the_word_it_runs_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, f"environment:A,{WITHOUT_SANDBOX}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with closing(Sandbox(OPTIONS)) as sandbox:
        assert sandbox.run([neighbour(0), neighbour(1)]) == [EXPECTED, EXPECTED]
        (endless,) = sandbox.run([hostile("while True:\n    pass")])
        assert endless == Failure("timeout")
        first, second = sandbox.run(
            [Job("def f(x): return list({*'abcdef'})", "f", ("(1,)",), lane) for lane in (0, 1)]
        )
        assert first != second


def test_the_worker_imports_the_standard_library_only() -> None:
    code = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import runpy"
    run = f"{code}; runpy.run_path({str(module.WORKER)!r}, run_name='imported')"
    subprocess.run([sys.executable, "-I", "-S", "-c", run], check=True)


@pytest.mark.parametrize(
    ("value", "shown", "key"),
    [
        (True, "True", "1"),
        (1.0, "1.0", "1"),
        (-0.0, "-0.0", "0"),
        (0.5, "0.5", "0.5"),
        ((1,), "(1,)", "(1,)"),
        ((), "()", "()"),
        (set(), "set()", "set()"),
        ({True, 2}, "{2, True}", "{1, 2}"),
        ({"b": 1, "a": 2.0}, "{'b': 1, 'a': 2.0}", "{'a': 2, 'b': 1}"),
        ([None, "1"], "[None, '1']", "[None, '1']"),
    ],
)
def test_equal_values_share_a_key(value: object, shown: str, key: str) -> None:
    assert literal(value) == (shown, key)


@pytest.mark.parametrize("value", [1j, b"a", float("nan"), float("inf"), object(), frozenset(), range(3), [[1j]]])
def test_a_value_that_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="plain value"):
        literal(value)
