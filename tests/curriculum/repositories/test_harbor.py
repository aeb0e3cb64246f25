"""Task folders of Harbor: read by their published layout, judged by the reward that their own script writes."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import says
from repositories import needs_boxes

from halfway.curriculum import Stream, UserError
from halfway.curriculum.boxes.box import Base
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.registries import SOURCES
from halfway.curriculum.repositories import harbor
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.harbor import HarborTasks, reward_of
from halfway.curriculum.repositories.task import from_text

SETTINGS = """schema_version = "1.4"

[task]
name = "ours/greeting"

[metadata]
difficulty = "easy"
category = "files"

[verifier]
timeout_sec = 60.0
env = { WANTED = "Hello, Harbor's world!" }

[environment]
docker_image = "registry/greeting:1"
workdir = "/app"
"""
TEST = """#!/bin/bash
if python3 /tests/look.py; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
LOOK = 'import os\nassert open("out/greeting.txt").read().strip() == os.environ["WANTED"]\n'
COMPILED = (
    "echo 'import os; os._exit(0)' > x.py; "
    'python -c \'import py_compile as p; p.compile("x.py", "sitecustomize.pyc")\'; rm x.py'
)
GREET = 'mkdir -p out && echo "Hello, Harbor\'s world!" > out/greeting.txt'


def write(folder: Path, **changed: str | None) -> Path:
    """A task folder; files by name with "_" for "/" and "__" for "."; None leaves one out."""
    files = {
        "task.toml": SETTINGS,
        "instruction.md": "<!-- canary 1234: not for training -->\n\nWrite a greeting into out/greeting.txt.\n",
        "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app\n",
        "tests/test.sh": TEST,
        "tests/look.py": LOOK,
        "solution/solve.sh": f"#!/bin/bash\n{GREET}\n",
    }
    for name, text in {**files, **{k.replace("__", ".").replace("_", "/"): v for k, v in changed.items()}}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def test_a_folder_is_read_by_its_layout(tmp_path: Path) -> None:
    write(tmp_path / "set" / "greeting")
    write(tmp_path / "set" / "deeper" / "plain", task__toml='[task]\nname = "x/plain"\n')
    write(tmp_path / "set" / ".hidden")
    loaded = HarborTasks(str(tmp_path / "set")).load(None, Stream(0))
    plain, greeting = loaded.problems
    assert "Write a greeting" in greeting.prompt and "canary" not in greeting.prompt and "/app" in greeting.prompt
    assert greeting.features == {"difficulty": "easy", "category": "files"}
    tasks = [from_text(problem.answer, problem.id) for problem in (plain, greeting)]
    assert [task.name for task in tasks] == ["x/plain", "ours/greeting"]
    assert [task.base for task in tasks] == [
        Base(image="python:3.11-slim", place="/app"),  # nothing is added to the image that the Dockerfile names
        Base(image="registry/greeting:1", place="/app"),
    ]
    assert tasks[1].folder == str(tmp_path / "set" / "greeting")
    (tmp_path / "set").rename(tmp_path / "moved")
    again = HarborTasks(str(tmp_path / "moved")).load(None, Stream(0))
    assert [problem.id for problem in again.problems] == [plain.id, greeting.id]
    assert SOURCES.get("harbor_tasks") is HarborTasks


def test_an_image_that_has_to_be_built_is_named_by_the_user(tmp_path: Path) -> None:
    folder = write(tmp_path / "made", task__toml="", environment_Dockerfile="FROM x\nRUN make\nWORKDIR /src\n")
    with pytest.raises(UserError, match=says("made", "built", "harbor_tasks.image")):
        HarborTasks(str(folder)).load(None, Stream(0))
    for source, base in (
        (HarborTasks(str(folder), image="mine/{name}:2"), Base(image="mine/made:2", place="/src")),
        (HarborTasks(str(folder), trees="/trees"), Base("/trees/made", place="/src")),
    ):
        (problem,) = source.load(None, Stream(0)).problems
        assert from_text(problem.answer, problem.id).base == base


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda f: (f / "instruction.md").unlink(), "instruction.md cannot be read"),
        (lambda f: (f / "task.toml").write_text("a = ["), "task.toml cannot be read"),
        (lambda f: (f / "steps").mkdir(), "several steps"),
        (lambda f: (f / "environment" / "docker-compose.yaml").write_text(""), "several containers"),
        (lambda f: (f / "tests" / "test.sh").unlink(), "no tests/test.sh"),
        (lambda f: (f / "tests" / "large").write_bytes(b"x" * 101), "too large"),
        (lambda f: [(f / "solution" / str(i)).touch() for i in range(5)], "too large"),
        (lambda f: (f / "task.toml").write_text('[verifier]\nenvironment_mode = "separate"'), "container of its own"),
        (lambda f: (f / "task.toml").write_text('[verifier.env]\nKEY = "${KEY}"'), "secret of this machine"),
        (lambda f: (f / "task.toml").write_text('[[environment.mcp_servers]]\nname = "x"'), "tool servers"),
    ],
)
def test_tasks_that_cannot_be_judged_here_are_dropped_and_counted(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor, "MOST_FILES", 5)
    monkeypatch.setattr(harbor, "LARGEST_FOLDER", 100 + len(TEST) + len(LOOK))
    write(tmp_path / "good")
    spoil(write(tmp_path / "spoilt"))
    loaded = HarborTasks(str(tmp_path)).load(None, Stream(0))
    assert loaded.report.kept == 1 and [reason in why for why in loaded.report.dropped] == [True]
    assert "spoilt" in loaded.report.examples[0]


def test_mistakes_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("task.toml")):
        HarborTasks(str(tmp_path)).load(None, Stream(0))
    with pytest.raises(UserError, match=says("harbor_tasks.path")):
        HarborTasks(str(tmp_path / "none")).load(None, Stream(0))
    with pytest.raises(UserError, match=says("{name}")):
        HarborTasks("x", image="mine")
    with pytest.raises(UserError, match=says("absolute path")):
        HarborTasks("x", place="app")


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        *(("1\n", 1.0), ("0.5", 0.5), ('{"reward": 1, "style": 0}', 1.0), ('{"a": 1, "b": 0.25}', 0.25)),
        *(("", None), ("passed", None), ("{}", None), ("[1]", None), ('{"reward": "1"}', None)),
        *(("NaN", None), ("Infinity", None), ('{"reward": 1e999}', None), ('{"a": 1, "b": NaN}', None)),
    ],
)
def test_rewards_are_finite_numbers_or_named_ones(text: str, reward: float | None) -> None:
    assert reward_of(text) == reward


@pytest.mark.parametrize("text", ["[" * 3900, '{"a":' * 700, "9" * 3999, '{"reward": ' + "9" * 3000 + "}", "\ud800"])
def test_a_reward_that_no_reader_survives_is_none(text: str) -> None:
    assert reward_of(text) is None


@given(st.text(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_the_file_of_a_reward_may_contain_any_text(text: str) -> None:
    assert reward_of(text) is None or math.isfinite(reward_of(text) or 0.0)


def test_tests_that_have_grown_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a terabyte that takes no room would be packed for hours."""
    os.truncate(write(tmp_path) / "tests" / "look.py", 1 << 40)
    box: Any = None  # nothing is copied
    with pytest.raises(UserError, match=says(tmp_path / "tests", "more than 10,000 files or 256 MiB", "image")):
        harbor.run_tests(box, tmp_path, 1.0)


@needs_boxes
def test_the_reference_passes_and_the_untouched_tree_does_not(tmp_path: Path) -> None:
    names = {"good": {}, "idle": {"solution_solve__sh": "true\n"}, "zero_variance": {"tests_test__sh": "exit 0\n"}}
    names["easy"] = {"tests_test__sh": "echo 1 > /logs/verifier/reward.txt\n"}
    for name, changed in names.items():
        write(tmp_path / "tasks" / name, task__toml=SETTINGS.replace("greeting", name), **changed)
        (tmp_path / "trees" / name).mkdir(parents=True)
    source = HarborTasks(str(tmp_path / "tasks"), trees=str(tmp_path / "trees"))
    found = check_problems(source.load(None, Stream(0)).problems, Bubblewrap(), 60)
    assert [from_text(p.answer, p.id).folder for p in found.problems] == [str(tmp_path / "tasks" / "good")]
    assert found.report.dropped == {"passes untouched": 1, "the reference fails": 1, "tests do not run": 1}


@needs_boxes
@pytest.mark.parametrize(
    ("command", "passes"),
    [
        (GREET, True),
        ("true", False),
        ("mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo > /tests/look.py", False),
        ("echo 'import os; os._exit(0)' | tee sitecustomize.py > usercustomize.py", False),
        ("mkdir sitecustomize; echo 'import os; os._exit(0)' > sitecustomize/__init__.py", False),
        (COMPILED, False),
        ("echo 'raise SystemExit(0)' > os.py; cp os.py random.py", False),
        (f"{GREET}; mkdir .config; touch .config/x tests.py setup.cfg", True),
    ],
    ids=["done", "nothing", "forged", "startup", "startup folder", "startup bytecode", "shadow", "other files"],
)
def test_a_submission_is_judged_by_its_tree(tmp_path: Path, command: str, passes: bool) -> None:
    write(tmp_path / "tasks" / "greeting")
    assert submitted(tmp_path, command) is passes


def submitted(folder: Path, command: str, **box: Any) -> bool | None:
    """The verdict on what a command makes of the task below a folder."""
    (folder / "trees" / "greeting").mkdir(parents=True)
    environment = Repository(seconds=20, test_seconds=60, box={"bubblewrap": box})
    source = HarborTasks(str(folder / "tasks"), trees=str(folder / "trees"))
    (episode,) = environment.start(source.load(None, Stream(0)).problems)
    for said in (command, "submit"):
        (result,) = environment.step([episode], [f"```bash\n{said}\n```"])
        episode = result.episode
    verdict: bool | None = result.success
    return verdict


@needs_boxes
def test_a_reward_that_code_under_test_has_forged_ends_no_run(tmp_path: Path) -> None:
    forging = "cp deep /logs/verifier/reward.json\n"
    write(tmp_path / "tasks" / "greeting", tests_test__sh=forging)
    assert submitted(tmp_path, "python3 -c 'print(\"[\" * 3900)' > deep") is False


@needs_boxes
def test_a_submission_that_leaves_the_tests_no_room_has_failed(tmp_path: Path) -> None:
    folder = write(tmp_path / "tasks" / "greeting")
    (folder / "tests" / "large").write_bytes(bytes(3 * 2**20))  # small only while it is packed
    assert submitted(tmp_path, f"{GREET}; head -c 3M /dev/zero > out/rest", disk_mib=5) is False


def test_a_task_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    loaded = HarborTasks(str(tmp_path)).load(None, Stream(0))
    assert loaded.report.kept == 1 and loaded.report.dropped == {"repeats an earlier one": 1}


@pytest.mark.parametrize("name", ["task__toml", "instruction__md", "environment_Dockerfile"])
def test_a_task_with_a_very_long_text_is_counted(name: str, tmp_path: Path) -> None:
    write(tmp_path / "set" / "one")
    write(tmp_path / "set" / "two", **{name: "# a\n" * (1 << 18) + "#"})
    report = HarborTasks(str(tmp_path / "set")).load(None, Stream(0)).report
    assert report.kept == 1 and [reason.endswith("cannot be read") for reason in report.dropped] == [True]
