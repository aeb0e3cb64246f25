# ruff: noqa: E501 - outputs, one a line
"""Boxes: equal commands give equal results, state is a value, and hostile commands get nothing and leave nothing."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import HOSTILE
from messages import says
from repositories import needs_boxes, small_repository

from halfway.curriculum import UserError
from halfway.curriculum.boxes import BOXES, trees
from halfway.curriculum.boxes import bubblewrap as module
from halfway.curriculum.boxes.box import Base, Box, BoxFullError, BoxLostError
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.boxes.determinism import normalise, pytest_options
from halfway.curriculum.boxes.starting_trees import store
from halfway.curriculum.boxes.trees import Changes, Entry
from halfway.curriculum.support.atomic import WriteError

SMALL = Bubblewrap(memory_mib=512, processes=32, disk_mib=16, files=500)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return small_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(params=["overlay", "copy"])
def box(request: pytest.FixtureRequest, base: Base) -> Iterator[Box]:
    opened = replace(SMALL, tree=request.param).open(base)
    yield opened
    opened.close()


def snapshot(folder: str) -> list[tuple[str, int, bytes]]:
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return [(str(path), path.stat().st_mtime_ns, path.read_bytes()) for path in files]


# State.

CHANGES = (
    "echo hi > new.txt; mkdir -p deep/er; echo x > deep/er/file; printf '\\377' > $'odd\\nname'",
    "rm tests/test_means.py; rm -r stats; mkdir stats; echo 'A = 1' > stats/other.py",
    "chmod 600 stats/means.py; chmod +x tests; ln -s /etc/passwd leak; ln -s stats also",
    "mv stats renamed; echo > /tmp/notes; mkfifo pipe; : > stats2; truncate -s 0 renamed/means.py",
    "ln stats/means.py hard; python -m compileall -q stats; mkdir empty",
)
LOOK = (
    "find . /tmp -name __pycache__ -prune -o -printf '%p %y %m %l\\n' | sort; "
    "find . /tmp -name __pycache__ -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"
)


@needs_boxes
@pytest.mark.parametrize("change", CHANGES)
def test_changes_by_commands_can_be_restored_in_another_box(box: Box, base: Base, change: str) -> None:
    """Contents, modes, links, deletions, replaced folders and /tmp are equal in another box."""
    before = snapshot(base.tree)
    assert box.exec(change, 20).status == 0
    saved, seen = box.save(), box.exec(LOOK, 20).output
    other = SMALL.open(base)
    other.restore(saved)
    assert other.exec(LOOK, 20).output == seen
    other.restore(saved)
    assert other.save() == saved and trees.digest(saved) != trees.digest(b"")
    other.close()
    assert snapshot(base.tree) == before  # the base never changes


@needs_boxes
def test_an_untouched_tree_has_no_changes_and_a_restored_one_forgets(box: Box) -> None:
    assert trees.unpack(box.save()) == Changes()
    box.exec("rm -r stats; echo > /tmp/x", 9)
    box.restore(b"")
    assert box.exec("ls; ls /tmp", 9).output == "stats\ntests\n"
    assert trees.unpack(box.save()).tree == ()


@needs_boxes
def test_files_are_read_and_written(box: Box) -> None:
    box.write("a/b c.txt", b"\x00\xff")
    assert box.read("a/b c.txt") == b"\x00\xff"
    with pytest.raises(FileNotFoundError, match="nothing"):
        box.read("nothing")
    with pytest.raises(BoxFullError):
        box.write("large", b"x" * (20 * 2**20))


FULL = {
    "a path too long": "d=$(printf 'd%.0s' $(seq 200)); for i in $(seq 30); do mkdir $d && cd $d; done",
    "holes": "for i in $(seq 30); do truncate -s 15M f$i; done",
    "hard links": "head -c 9000000 /dev/zero > f; ln f g",
    "too much in /tmp": "head -c 9000000 /dev/zero > /tmp/f; ln /tmp/f /tmp/g",
}


@needs_boxes
@pytest.mark.parametrize("what", sorted(FULL))
def test_a_change_too_large_to_keep_is_a_fault_of_the_command(box: Box, base: Base, what: str) -> None:
    """It neither ends the run nor is read into memory, and the box still works."""
    assert box.exec(FULL[what], 20).status == 0
    with pytest.raises(BoxFullError):
        box.save()
    box.restore(b"")
    assert box.exec("ls", 9).output == "stats\ntests\n"


@needs_boxes
def test_folders_nested_deeper_than_the_interpreter_allows(base: Base) -> None:
    opened = replace(SMALL, files=5000).open(base)
    nest = "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    assert opened.exec(f'python -c "{nest}"', 30).status == 0
    with pytest.raises(BoxFullError):
        opened.save()
    opened.close()


@needs_boxes
def test_a_late_answer_is_discarded(base: Base) -> None:
    """A box that was given up is not used again, since its late answer could pass for another command's."""
    opened = SMALL.open(base)
    worker = opened._worker  # type: ignore[attr-defined]
    with pytest.raises(BoxLostError):
        worker.ask({"do": "run", "argv": ["sleep", "9"], "seconds": 9}, b"", 0.1)
    with pytest.raises(BoxLostError):
        opened.exec("true", 9)
    opened.close()
    assert all(worker not in idle for idle in module._IDLE.values())


def test_a_packed_tree_that_stands_for_very_much_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = trees.pack(Changes(tree=(Entry("a", "file", 0o644, 0, b"x" * 1000),)))
    monkeypatch.setattr(trees, "MOST_BYTES", 500)
    for content in (packed, packed[:-8]):
        with pytest.raises(ValueError, match="very large"):
            trees.unpack(content)


def test_changes_survive_packing() -> None:
    changes = Changes(
        3, (Entry("a", "file", 0o644, 7, b"\n\x00"), Entry("b", "deleted")), (Entry("c", "folder", 0o755),)
    )
    assert trees.unpack(trees.pack(changes)) == changes
    with pytest.raises(ValueError, match="not a saved work tree"):
        trees.unpack(b"nonsense")


@needs_boxes
def test_times_of_files_count_commands(box: Box) -> None:
    """What is made later is newer, for tools that compare times; but not by the machine's clock."""
    box.exec("echo > one", 9)
    first = box.save()
    box.restore(first)
    box.exec("echo > two; [ two -nt one ]", 9)
    times = {entry.path: entry.time for entry in trees.unpack(box.save()).tree}
    assert trees.EPOCH < times["one"] < times["two"] < trees.CLOCK_END


# Determinism.

EQUAL = {
    "addresses": 'python -c \'print(object(), {None, print, 1.5}, id(int), {"a", "b", "c"})\'',
    "processes": "echo $$; (exit 3) & wait $!; echo $?; set -- /proc/[0-9]*; echo $#",
    "times": "date; date +%Y-%m-%dT%H:%M; ls -la; touch x; ls -l --full-time; python -m pytest -q | tail -1",
    "temporary names": "mktemp; python -c 'import tempfile; print(tempfile.mkdtemp())'",
    "failing test": "python -m pytest -q tests/nothing.py; python -m pytest -q --durations=3 -vv 2>&1 | tail -20",
    "stale bytecode": (
        "export PYTHONDONTWRITEBYTECODE=; echo 'X = 1' > m.py; python -c 'import m; print(m.X)'; "
        "echo 'X = 2' > m.py; python -c 'import sys; import m'"
    ),
}


@needs_boxes
@pytest.mark.parametrize("name", sorted(EQUAL))
def test_equal_commands_give_equal_outputs_and_trees(base: Base, name: str) -> None:
    found = []
    for _ in range(2):
        opened = SMALL.open(base)
        done = opened.exec(EQUAL[name], 60)
        found.append((normalise(done.output), opened.save()))
        opened.close()
        time.sleep(0.02)
    assert found[0] == found[1]


@pytest.mark.parametrize("text", ["\n" * 300_000, " \t\n" * 100_000, "in " + "1" * 300_000, "Jan " * 80_000])
def test_the_normaliser_takes_linear_time(text: str) -> None:
    """Quadratic, it would take many minutes, in which the whole run stands still."""
    began = time.process_time()
    assert normalise(text) == text
    assert time.process_time() - began < 20


@needs_boxes
def test_stale_bytecode_does_not_outlive_its_command(base: Base) -> None:
    """Bytecode that is never compared with its source is gone when the source is read again."""
    compiled = "import py_compile as p; p.compile('m.py', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
    opened = SMALL.open(base)
    opened.exec(f"echo 'print(1)' > m.py; python -c \"{compiled}\"; echo 'print(2)' > m.py", 20)
    assert opened.exec("python -c 'import m'", 20).output == "1\n"  # it is stale indeed, within one box
    opened.restore(opened.save())
    assert opened.exec("python -c 'import m'", 20).output == "2\n"
    opened.close()


def test_the_normaliser_leaves_other_numbers_alone() -> None:
    for text in ("assert 3.5 == 4.2s", "line 2024-3", "in 12 files", "0x10", "/tmp/mine", "Jan 5", "10:30"):
        assert normalise(text) == text
    assert normalise("2 passed in 0.31s") == normalise("2 passed in 12.00s") == "2 passed in ...s"


def test_the_slowest_tests_of_a_run_are_left_out() -> None:
    head = "===== slowest 3 durations =====\n"
    one = f"{head}0.31s call     tests/test_a.py::test_b\n0.01s setup    tests/test_a.py::test_b\nend"
    other = f"{head}0.29s call     tests/test_a.py::test_c\n\n(2 durations < 0.005s hidden.  Use -vv to show these durations.)\nend"
    assert normalise(one) == normalise(other) == f"{head}end"


@needs_boxes
def test_a_list_of_slow_tests_has_the_same_length_however_fast_they_are(base: Base) -> None:
    """Otherwise `tail` would show other lines of the output."""
    slow = "def test_s():\n    import time, os\n    time.sleep(float(os.environ['NAP']))\n"
    opened = SMALL.open(base)
    opened.write("test_slow.py", slow.encode())
    seen = [opened.exec(f"NAP={nap} python -m pytest -q --durations=3 test_slow.py", 60).output for nap in (0, 0.1)]
    opened.close()
    assert seen[0].count("test_slow.py::test_s") == 3 and normalise(seen[0]) == normalise(seen[1])


def test_an_old_pytest_is_not_given_what_it_does_not_know(tmp_path: Path) -> None:
    plain = "-p no:cacheprovider"
    for version, options in (("6.1.2", plain), ("6.2.0", f"{plain} --durations-min=-1"), ("10.0", f"{plain} --dur")):
        folder = tmp_path / version / "lib" / "python3.11" / "site-packages" / f"pytest-{version}.dist-info"
        folder.mkdir(parents=True)
        assert pytest_options(str(tmp_path / version)).startswith(options)
        assert (pytest_options(str(tmp_path / version)) == plain) == (version == "6.1.2")
    assert pytest_options(str(tmp_path)) == plain


def test_addresses_are_numbered_as_they_appear() -> None:
    seen = normalise("<f at 0x7ffff60813a0> <g at 0x7ffff6081300> <f at 0x7ffff60813a0> 0xdeadbeef 0x10")
    assert seen == "<f at 0x000000000001> <g at 0x000000000002> <f at 0x000000000001> 0xdeadbeef 0x10"


# Hostility.


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder outside /tmp, since a box has its own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def environment_in(folder: Path) -> str:
    """A Python environment without packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    return str(folder)


@needs_boxes
def test_only_the_interpreters_parts_of_its_folder_are_visible(base: Base, elsewhere: Path) -> None:
    """Python may be installed in somebody's home."""
    home = environment_in(elsewhere)
    (elsewhere / ".ssh").mkdir()
    (elsewhere / ".ssh" / "id_rsa").write_text("a secret")
    opened = replace(SMALL, python=home).open(base)
    assert opened.exec("python3 -c 'import sys; print(sys.prefix)'", 20).output == f"{home}\n"
    assert "secret" not in opened.exec(f"ls -a {home}; cat {home}/.ssh/id_rsa", 9).output
    opened.close()


@needs_boxes
def test_a_python_environment_that_a_box_would_hide_is_refused(base: Base) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        hidden = replace(SMALL, python=environment_in(Path(folder)))
        for ask in (hidden.check, lambda: hidden.open(base)):
            with pytest.raises(UserError, match=says("bubblewrap.python", "below /tmp", "another folder")):
                ask()


@needs_boxes
def test_a_python_that_does_not_run_in_a_box_is_found_before_the_first_task(elsewhere: Path) -> None:
    (elsewhere / "bin").mkdir()
    (elsewhere / "bin" / "python3").write_text("#!/bin/sh\necho it is broken; exit 3\n")
    (elsewhere / "bin" / "python3").chmod(0o755)
    with pytest.raises(UserError, match=says("python3", "it is broken")):
        replace(SMALL, python=str(elsewhere)).check()


@needs_boxes
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_command_gets_nothing_and_leaves_nothing(base: Base, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = HOSTILE[name].replace("PORT", str(server.getsockname()[1])).replace("HERE", str(Path.cwd()))
        before = snapshot(base.tree)
        opened = SMALL.open(base)
        try:
            began = time.monotonic()
            done = opened.exec(command, 4)
            assert "WON" not in done.output.split(), done.output[-500:]
            assert time.monotonic() - began < 15 and len(done.output) < 3 * 2**20
            opened.restore(b"")
            assert opened.exec("ls; ls -A /tmp /dev/shm", 9).output.split() == ["stats", "tests", "/dev/shm:", "/tmp:"]
        finally:
            opened.close()
        assert snapshot(base.tree) == before
    assert not subprocess.run(["pgrep", "-f", "sleep 4321"], capture_output=True).stdout


MAPPINGS = """
import ctypes, mmap, os, time
c = ctypes.CDLL(None)
for _ in range(40):
    if os.fork() == 0:
        m = mmap.mmap(-1, 50_000 * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(m))
        while True:
            for i in range(0, 50_000, 2):
                c.mprotect(ctypes.c_void_p(start + 4096 * i), 4096, 1)
time.sleep(30)
"""
PIPES = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        try:
            while True:
                end = os.pipe()[1]
                os.set_blocking(end, False)
                os.write(end, bytes(65_536))
        except OSError:
            time.sleep(30)
time.sleep(30)
"""


@needs_boxes
@pytest.mark.parametrize("program", [MAPPINGS, PIPES], ids=["mappings", "pipes"])
def test_the_kernels_memory_counts_and_hides_nothing(program: str) -> None:
    opened = replace(SMALL, memory_mib=256, processes=64).open(Base(str(Path(__file__).parent)))
    began = time.monotonic()
    assert opened.exec("python -", 10, program.encode()).ended == "memory"
    assert time.monotonic() - began < 9
    opened.close()


@needs_boxes
def test_limits_are_named() -> None:
    here = Base(str(Path(__file__).parent))
    opened = replace(SMALL, memory_mib=128).open(here)
    assert opened.exec("sleep 9", 0.3).ended == "time"
    eater = "import time\nx = []\nwhile True: x.append(bytearray(2**20)); time.sleep(0.001)"
    many = f"for i in 1 2 3 4; do python -c '{eater}' & done; wait"
    assert opened.exec(many, 30).ended == "memory"
    shared = "import mmap\nx = []\nwhile True:\n    x.append(mmap.mmap(-1, 2**23))\n    x[-1].write(bytes(2**23))"
    assert opened.exec(f"for i in 1 2 3; do python -c '{shared}' & done; wait", 30).ended == "memory"
    # 16,000 pages, 62 MiB, each so far from the others that it needs page tables of its own, 8 KiB.
    scattered = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\n"
        "for i in range(16000):\n"
        "    address = ctypes.c_void_p((1 << 44) + (i << 30))\n"
        "    libc.mmap(address, ctypes.c_size_t(4096), 3, 0x32, -1, ctypes.c_long(0))\n"
        "    ctypes.memset(address, 1, 1)\n"
        "time.sleep(5)"
    )
    assert opened.exec(f"python -c '{scattered}'", 30).ended == "memory"
    assert opened.exec("ulimit -Hn; echo fine", 9).output == "4096\nfine\n"
    opened.close()


@needs_boxes
def test_nothing_survives_a_killed_host(base: Base) -> None:
    """The host is killed while a command runs: all processes that it started end."""
    script = (
        "import sys; from halfway.curriculum.boxes.bubblewrap import Bubblewrap\n"
        "from halfway.curriculum.boxes.box import Base\n"
        f"box = Bubblewrap().open(Base({base.tree!r})); print('open', flush=True); box.exec('sleep 8765', 60)"
    )
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None and host.stdout.readline() == "open\n"
    deadline = time.monotonic() + 30
    while not subprocess.run(["pgrep", "-f", "sleep 8765"], capture_output=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    host.kill()
    host.communicate()
    while subprocess.run(["pgrep", "-xf", "sleep 8765"], capture_output=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Bad input.


def test_a_missing_bubblewrap_is_one_line(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    boxes = Bubblewrap(python=sys.base_prefix)  # the tests' own environment may be below /tmp
    for ask in (boxes.check, lambda: boxes.open(base)):
        with pytest.raises(UserError, match=says("apt-get install bubblewrap")):
            ask()


@pytest.mark.parametrize(
    "why", ["user namespaces: Operation not permitted", "mount proc on /proc: Operation not permitted"]
)
def test_forbidden_namespaces_are_one_line(why: str) -> None:
    line = module._not_here(why)
    assert why in line and "sysctl kernel.unprivileged_userns_clone=1" in line and "\n" not in line


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path, **_: object) -> None:
        target.mkdir()
        (target / "half").write_text("x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree = small_repository(tmp_path / "repository").tree
    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(WriteError, match=says("bases/", "No space left on device")):
        store(tree, tmp_path / "cache", os.geteuid())
    assert not list((tmp_path / "cache").rglob("*half")) and not list((tmp_path / "cache" / "bases").iterdir())


@needs_boxes
@pytest.mark.skipif(os.geteuid() != 0, reason="takes a right away that only root has")
@pytest.mark.parametrize("asked", ["check()", "open(Base({tree!r}))"])
def test_namespaces_that_the_kernel_refuses(base: Base, asked: str) -> None:
    """A limit of no user namespaces, as administrators set it, in a namespace of our own."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    script = (
        "from halfway.curriculum.boxes.bubblewrap import Bubblewrap\nfrom halfway.curriculum.boxes.box import Base\n"
        f"Bubblewrap().{asked.format(tree=base.tree)}"
    )
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", f'{limit} && exec "$@"', "sh", sys.executable, "-c", script],
        capture_output=True,
        text=True,
    )
    assert "this machine forbids what it needs (user namespaces" in done.stderr.splitlines()[-1]


@needs_boxes
def test_a_machine_that_can_run_boxes_is_found_so_before_the_first_task() -> None:
    before = set(module._IDLE)
    Bubblewrap().check()
    assert set(module._IDLE) >= before  # its worker waits for the first task


def test_options_are_checked() -> None:
    for options in ({"memory_mib": 1}, {"processes": 1}, {"disk_mib": 0}, {"files": 1}, {"python": "/nowhere"}):
        with pytest.raises(UserError, match=f"bubblewrap.{next(iter(options))}"):
            Bubblewrap(**options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=says("'x'", "container", "swerex")):
        Bubblewrap().open(Base(image="x"))
    with pytest.raises(UserError, match=says("'/nowhere'", "folder")):
        Bubblewrap().open(Base("/nowhere"))
    assert {"bubblewrap", "swerex"} <= set(BOXES.names())


def test_history_and_caches_are_left_out_of_a_base(tmp_path: Path) -> None:
    base = small_repository(tmp_path / "repository")
    for name in (".git/objects/secret", "stats/__pycache__/means.pyc"):
        (tmp_path / "repository" / name).parent.mkdir(parents=True)
        (tmp_path / "repository" / name).write_text("x")
    folder = tmp_path / "bases" / store(base.tree, tmp_path, os.geteuid())
    assert sorted(path.name for path in folder.rglob("*")) == [
        "__init__.py",
        "means.py",
        "stats",
        "test_means.py",
        "tests",
    ]
    assert {path.stat().st_mtime for path in folder.rglob("*")} == {trees.EPOCH}


@needs_boxes
def test_a_box_whose_process_is_gone_is_lost(base: Base) -> None:
    opened = SMALL.open(base)
    worker = opened._worker  # type: ignore[attr-defined]
    ending = threading.Timer(0.3, worker._process._process.kill)
    ending.start()
    with pytest.raises(BoxLostError):
        opened.exec("sleep 9", 20)
    with pytest.raises(BoxLostError):
        opened.save()
    opened.close()
