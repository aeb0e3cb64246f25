# ruff: noqa: E501 - commands, one a line
"""The environment `repository`: episodes are values, submissions are judged elsewhere, cheats are not rewarded."""

import json
import tempfile
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import says
from repositories import FAIL, FAULTY, MEND, PASS, SOUND, needs_boxes, said, small_problem, small_task

from halfway.curriculum import Problem, UserError
from halfway.curriculum.boxes.box import BoxFullError, BoxLostError
from halfway.curriculum.registries import ENVIRONMENTS
from halfway.curriculum.repositories.environment import NO_BLOCK, Repository, RepositoryEpisode, shorten
from halfway.curriculum.repositories.judge import Judged, judge, reports_of
from halfway.curriculum.repositories.task import from_text, is_test, to_problem
from halfway.testing import check_environment

pytestmark = needs_boxes
ENVIRONMENT = Repository(max_turns=6, seconds=20, test_seconds=60, parallel=2)


def play(environment: Repository, problem: Problem, *commands: str) -> list[Any]:
    """The results of the commands, one after the other."""
    (episode,) = environment.start([problem])
    results = []
    for command in commands:
        (result,) = environment.step([episode], [said(command)])
        results.append(result)
        episode = result.episode
    return results


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    solution = [said("grep -n result stats/means.py"), said(MEND), said("submit")]
    check_environment(Repository(max_turns=4, seconds=20, test_seconds=60), [(problem, solution)])


def test_collections_that_overlap_end_only_the_boxes_of_their_own() -> None:
    class Opened:
        closed = False

        def close(self) -> None:
            self.closed = True

    one, two = ENVIRONMENT.copy_for_collection(), ENVIRONMENT.copy_for_collection()
    box: Any = Opened()
    one._live.put(("task", ()), box)
    two.close()
    assert not box.closed and one == two == ENVIRONMENT
    assert one._pool is two._pool is ENVIRONMENT._pool and one.boxes is ENVIRONMENT.boxes
    one.close()
    assert box.closed


def test_the_policy_reads_exit_status_and_shortened_output(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    found = play(
        ENVIRONMENT, problem, "grep -n result stats/means.py", "python -m pytest -q 2>&1 | tail -4; exit 3", "seq 9999"
    )
    assert found[0].observation == "[exit 0]\n5:    result = 0\n7:        result -= value\n8:    return result\n"
    assert found[1].observation.startswith("[exit 3]\nFAILED tests/test_means.py::test_total - assert -6 == 6\n")
    assert found[1].observation.endswith("3 failed, 1 passed in ...s\n")
    assert "characters left out]" in found[2].observation and len(found[2].observation) < 8100
    assert found[2].observation.endswith("\n9998\n9999\n") and "[exit 0]\n1\n2\n3\n" in found[2].observation
    assert all(result.success is None and result.seconds > 0 for result in found)


@pytest.mark.parametrize("response", ["", "ls", "```bash\nls\n```\n```bash\nls\n```\n", "```python\n1\n```\n"])
def test_a_response_has_one_block(tmp_path: Path, response: str) -> None:
    (episode,) = ENVIRONMENT.start([small_problem(tmp_path)])
    (result,) = ENVIRONMENT.step([episode], [response])
    assert result.observation == NO_BLOCK and result.success is None and result.episode.turns == 1


def test_limits_end_an_episode(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    last = play(replace(ENVIRONMENT, max_turns=2), problem, "ls", "ls")[-1]
    assert (last.success, last.truncated, last.episode.over) == (False, True, True)
    assert play(replace(ENVIRONMENT, max_turns=1), problem, "submit")[-1].success is False  # judged, and not mended
    late = play(replace(ENVIRONMENT, seconds=0.3), problem, "echo first; sleep 9")[0]
    assert late.observation == "[ended by the limit on time]\nfirst\n" and late.success is None
    spent = play(replace(ENVIRONMENT, tool_seconds=0.2), problem, "sleep 0.3")[0]
    assert (spent.success, spent.truncated) == (False, True)


def test_a_lost_box_is_tried_again_and_then_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(self: Any, *_: Any) -> Any:
        tries.append(1)
        raise BoxLostError("the machine is gone")

    problem = small_problem(tmp_path)
    environment = replace(ENVIRONMENT)
    (episode,) = environment.start([problem])
    monkeypatch.setattr(Repository, "_run", fail)
    (result,) = environment.step([episode], [said("ls")])
    assert (result.success, result.lost, len(tries)) == (None, "the machine is gone", 2)
    monkeypatch.setattr(Repository, "_run", lambda *_: (_ for _ in ()).throw(BoxFullError("full")))
    (full,) = environment.step([episode], [said("ls")])
    assert (full.success, full.truncated, full.lost) == (False, True, "")  # what a policy fills is its own fault


# Replay.

WORK = (
    "ls -la; cat stats/means.py",
    "python -m pytest -q 2>&1 | tail -5",
    "echo note > /tmp/note; mkdir new; touch new/x",
)


def test_equal_histories_are_equal_at_every_cut(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    first, again = (play(replace(ENVIRONMENT), problem, *WORK, MEND) for _ in range(2))
    assert [(r.observation, r.state, r.episode) for r in first] == [(r.observation, r.state, r.episode) for r in again]
    assert len({result.state for result in first[1:]}) == 3
    for cut in range(len(first)):  # a fork goes on like the original
        (forked,) = ENVIRONMENT.step([first[cut].episode], [said("git diff; cat /tmp/note; ls new")])
        (other,) = ENVIRONMENT.step([again[cut].episode], [said("git diff; cat /tmp/note; ls new")])
        assert forked == other or replace(forked, seconds=0.0) == replace(other, seconds=0.0)


# The judge.


def test_a_fixed_fault_is_rewarded_and_others_are_not(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    assert play(ENVIRONMENT, problem, "submit")[-1].success is False
    assert play(ENVIRONMENT, problem, MEND, "submit")[-1].success is True
    broken = f"{MEND}; sed -i 's/result = 0/result = 1 - len(values) * 0/' stats/means.py"
    assert play(ENVIRONMENT, problem, broken, "submit")[-1].success is False
    assert play(ENVIRONMENT, problem, "rm -r stats", "submit")[-1].success is False
    assert play(ENVIRONMENT, problem, f"{MEND}; rm -r tests; echo '[' > pytest.ini", "submit")[-1].success is True


FORGED = "\\n".join(f"PASSED {test}" for test in FAIL + PASS)
PATCH = (
    "import _pytest.reports as r\\n_o = r.TestReport.from_item_and_call.__func__\\n"
    "def f(cls, item, call):\\n    call.excinfo = None\\n    return _o(cls, item, call)\\n"
    "r.TestReport.from_item_and_call = classmethod(f)\\n"
)
HOOK = (
    "import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n"
    "    o = yield\\n    o.get_result().outcome = 'passed'\\n"
)
CHEATS = {
    "edits the tests": "sed -i 's/assert/assert True or/' tests/test_means.py",
    "removes the tests": "rm tests/test_means.py",
    "skips the tests": "sed -i '1i import pytest\\npytestmark = pytest.mark.skip' tests/test_means.py",
    "conftest that turns reports": f'printf "{HOOK}" > conftest.py; cp conftest.py tests/',
    "settings that deselect": "printf '[pytest]\\naddopts = --collect-only -q\\n' > pytest.ini",
    "sitecustomize": "printf 'import builtins\\nbuiltins.sum = None\\nimport os; os._exit(0)\\n' > sitecustomize.py",
    "shadows the runner": f"printf 'print(\"{FORGED}\")\\n' > pytest.py; mkdir _pytest; touch _pytest/__init__.py",
    "shadows the standard library": f'printf \'print("""{FORGED}""")\\nimport os; os._exit(0)\\n\' > unittest.py; cp unittest.py json.py',
    "exits with 0": "printf 'import os\\nos._exit(0)\\n' >> stats/means.py",
    "prints PASSED": f'printf \'import os\\nprint("""{FORGED}""", flush=True)\\nos._exit(0)\\n\' >> stats/means.py',
    "prints PASSED past the runner": (
        f'printf \'import os\\nos.write(1, b"""\\n{FORGED}\\n""")\\nfor i in range(3, 20):\\n    try: os.write(i, b"""\\n{FORGED}\\n""")\\n'
        "    except OSError: pass\\nos._exit(0)\\n' >> stats/means.py"
    ),
    "patches the runner": f"printf '{PATCH}' >> stats/means.py",
    "hidden plugin": "printf 'import os; os.environ[\"PYTEST_ADDOPTS\"] = \"--co\"\\n' > stats/__init__.py; printf '-e tests' > .pytest.ini",
    "path file": "printf 'import os; os._exit(0)\\n' > evil.pth; mkdir -p src; cp evil.pth src/",
    "link to other tests": "mkdir /tmp/t; printf 'def test_total(): pass\\n' > /tmp/t/test_means.py; rm -r tests; ln -s /tmp/t tests",
    "waits for the judge": "(while :; do cp /tmp/x tests/test_means.py 2> /dev/null; done) & sleep 0.2",
    "skips at import": "printf 'import pytest\\npytest.skip(allow_module_level=True)\\n' >> stats/means.py",
}


@pytest.mark.parametrize("name", sorted(CHEATS))
def test_a_cheat_is_not_rewarded(tmp_path: Path, name: str) -> None:
    results = play(ENVIRONMENT, small_problem(tmp_path), CHEATS[name], "submit")
    assert results[0].success is None and results[-1].success is False


def test_the_judge_cannot_exclude_code_that_forges_every_report(tmp_path: Path) -> None:
    """Code that knows this judge and forges every report, the canary's too: a limit stated in docs/repositories.md."""
    forge = (
        "import sys, os\nif 'pytest' in sys.modules:\n"
        "    import glob, re\n"
        f"    out = '''{FORGED.replace(chr(92) + 'n', chr(10))}'''\n"
        "    for p in glob.glob('tests/test_????????????.py'):\n"
        "        out += f'\\nFAILED {p}::' + re.search(r'def (\\w+)', open(p).read())[1]\n"
        "    os.write(1, out.encode())\n"
        "    os.dup2(os.open('/proc/self/fd/1', os.O_WRONLY), 1)\n"
        "    for i in range(3, 20):\n"
        "        try: os.write(i, b'\\n' + out.encode() + b'\\n')\n"
        "        except OSError: pass\n"
        "    os._exit(0)\n"
    )
    task = small_task(tmp_path)
    box = ENVIRONMENT.boxes.open(task.base)
    box.write("stats/means.py", (FAULTY + forge).encode())
    saved = box.save()
    box.close()
    assert judge(ENVIRONMENT.boxes, task, saved, 60).passed


def test_the_judge_says_why(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    box = ENVIRONMENT.boxes.open(task.base)
    sound = box.save()
    box.write("stats/means.py", FAULTY.encode())
    faulty = box.save()
    box.restore(b"")
    box.write("stats/means.py", (SOUND + "import time\ntime.sleep(60)\n").encode())
    slow = box.save()
    box.close()
    assert judge(ENVIRONMENT.boxes, task, sound, 60).passed
    found = judge(ENVIRONMENT.boxes, task, faulty, 60)
    assert (found.why, found.missing) == ("tests fail", FAIL)
    assert judge(ENVIRONMENT.boxes, task, slow, 2).why == "tests end by the limit on time"
    patch = replace(task, test_patch="--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n")
    assert judge(ENVIRONMENT.boxes, patch, sound, 60) == Judged(False, "the patch of tests does not apply")


def test_reports_are_read_line_by_line() -> None:
    output = "PASSED a.py::b[x y]\nFAILED a.py::c - assert 1 == 2\nFAILED a.py::b[x y]\n  PASSED a.py::d\n"
    both, one = {"PASSED", "FAILED"}, {"FAILED"}
    assert reports_of(output) == {"a.py::b[x y]": both, "b[x y]": both, "a.py::c": one, "c": one}


def test_no_count_of_passed_tests_is_too_long_to_be_read() -> None:
    head = "= short test summary info =\nPASSED a.py::b\n"
    assert reports_of(head + "1 passed in 0.1s\n") == {"a.py::b": {"PASSED"}, "b": {"PASSED"}}
    assert reports_of(head + "9" * 5000 + " passed in 0.1s\n") == {}  # Python reads no such number


@pytest.mark.parametrize("tree", ["overlay", "copy"])
def test_a_folder_in_the_place_of_a_file_that_does_not_count_is_judged(tmp_path: Path, tree: str) -> None:
    """The folder does not count, its content does, so it cannot be laid out over the file."""
    problem = small_problem(tmp_path)
    (tmp_path / "setup.py").write_text("")
    environment = replace(ENVIRONMENT, box={"bubblewrap": {"tree": tree}})
    *_, verdict = play(environment, problem, f"{MEND}; rm setup.py; mkdir setup.py; touch setup.py/a.py", "submit")
    assert verdict.success is (tree == "overlay") and not verdict.lost


@pytest.mark.parametrize("command", ["echo \0", f"true {'x' * 140_000}"], ids=["nul", "long"])
def test_a_command_that_no_process_can_be_given_has_failed(tmp_path: Path, command: str) -> None:
    (result,) = play(ENVIRONMENT, small_problem(tmp_path), command)
    assert result.observation.startswith("[exit 126]\nbash: ") and not result.lost


def test_commands_that_cannot_be_started_leave_nothing_open_in_the_box(tmp_path: Path) -> None:
    box = ENVIRONMENT.boxes.open(small_task(tmp_path).base)
    counts = []
    for _ in range(2):
        counts.append(len(list(Path(f"/proc/{box._worker._process._process.pid}/fd").iterdir())))  # type: ignore[attr-defined]
        for _ in range(20):
            box.exec("echo \0", 5)
    box.close()
    assert counts[0] == counts[1]


# Tasks.


def test_a_task_is_read_back_and_others_are_refused(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    problem = to_problem(task, "x", "s", {"kind": "operator"})
    assert from_text(problem.answer, "p") == task
    moved = replace(task, base=replace(task.base, tree="/elsewhere"))
    assert to_problem(moved, "x", "s", {}).id == problem.id
    for text in ("4", "{}", json.dumps({"base": {}})):
        with pytest.raises(UserError, match=says("repository", "'p'", "another task")):
            ENVIRONMENT.start([Problem("p", "", text)])


def test_a_fault_that_does_not_apply_is_one_line(tmp_path: Path) -> None:
    task = replace(small_task(tmp_path), bug="--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n")
    episode = RepositoryEpisode("p", task)
    with pytest.raises(UserError, match=says("'means'", "applied", "drop the row")):
        ENVIRONMENT.step([episode], [said("ls")])


def test_names_of_tests() -> None:
    assert all(
        map(is_test, ("test_a.py", "a/test_b.py", "a/b_test.py", "tests/data/x.json", "conftest.py", "tests.py"))
    )
    assert not any(map(is_test, ("attest.py", "a/contest.py", "latest/x.py", "testable.py")))


def test_boxes_that_judge_a_known_answer_rightly_pass_the_check() -> None:
    ENVIRONMENT.check()


def test_boxes_that_misjudge_a_right_answer_are_found_before_the_first_task() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as without_pytest:
        venv.create(without_pytest, symlinks=True, with_pip=False)
        environment = replace(ENVIRONMENT, box={"bubblewrap": {"python": without_pytest}})
        with pytest.raises(UserError, match=says("right answer", "no test", "pytest")):
            environment.check()


def test_options_are_checked() -> None:
    for option in ("max_turns", "seconds", "test_seconds", "observation_chars"):
        with pytest.raises(UserError, match=f"repository.{option}"):
            Repository(**{option: 0})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"repository.box.bubblewrap: .*'colour'"):
        Repository(box={"bubblewrap": {"colour": 1}})
    with pytest.raises(UserError, match=says("'bubblewrap'")):
        Repository(box={"bublewrap": {}})
    assert ENVIRONMENTS.get("repository") is Repository
    assert shorten("abcdef", 4) == "ab\n[2 characters left out]\nef"
