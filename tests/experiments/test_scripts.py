"""Scripts of the repository, and the reference of the documentation's site."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import yaml
from learner_harness import make_group, make_turn
from msgspec import structs
from paths import REPOSITORY
from typer.main import get_command

import halfway
from halfway.controllers import CONTROLLERS
from halfway.curriculum import Hint, Rollout, UserError
from halfway.curriculum.decision_log import group_record, skip_records
from halfway.curriculum.groups import ReplayCost
from halfway.curriculum.plan import Skip
from halfway.experiments.catalogue import catalogue
from halfway.experiments.cli import app
from halfway.experiments.results import site_pages
from halfway.experiments.scripts import script, script_parser


def failing(error: Exception) -> Callable[[], int]:
    @script
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("seeds: none is given"), "error: seeds: none is given"),
        (
            ModuleNotFoundError("no", name="pyro.infer"),
            "error: tool: needs the package pyro; pip install 'halfway[bayes]'",
        ),
        (
            OSError(errno.ENOSPC, "No space left", "/data"),
            "error: /data: No space left; check disk space, permissions and the path",
        ),
    ],
)
def test_a_mistake_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["results/tool.py"])
    monkeypatch.setattr("halfway.curriculum.support.extras.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        failing(error)()
    assert stopped.value.code == 2 and capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize("error", [ValueError("ours"), ModuleNotFoundError("no", name="ours")])
def test_an_error_of_our_own_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        failing(error)()
    assert caught.value is error


def test_a_reader_that_leaves_ends_a_script_without_a_word() -> None:
    lines = "from halfway.experiments.scripts import script; script(lambda: [print(i) for i in range(100000)])()"
    words = [sys.executable, "-c", lines]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None and started.stderr is not None
        assert started.stdout.readline() == "0\n"
        started.stdout.close()
        assert started.stderr.read() == ""
    assert started.returncode == 1


def test_a_script_that_ends_well_returns_its_value() -> None:
    @script
    def main(value: int) -> int:
        return value

    assert main(7) == 7


def test_wrong_words_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = script_parser("What it does.\n\n    how to call it\n")
    parser.add_argument("--seed", type=int)
    assert "What it does.\n\n    how to call it\n" in parser.format_help()
    for words, complaint in (
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--sede", "1"], "unrecognized arguments: --sede 1"),
    ):
        with pytest.raises(SystemExit) as stopped:
            parser.parse_args(words)
        assert stopped.value.code == 2
        assert capsys.readouterr().err == f"error: {complaint}; --help lists the options\n"


@pytest.fixture(scope="module")
def reference() -> Mapping[str, str]:
    return dict(site_pages.reference())


def test_the_reference_has_every_command_controller_and_function(reference: Mapping[str, str]) -> None:
    commands, parts, python = (reference[f"reference/{name}.md"] for name in ("commands", "parts", "python"))
    assert all(f"## halfway {name}\n" in commands for name in get_command(app).commands)  # type: ignore[attr-defined]
    assert "Usage: halfway run " in commands and "--jobs" in commands
    assert all(f"### {name}\n" in parts for name in ("learner", "comparison", "file", "vllm"))
    assert all(f".{name}\n" in python for name in halfway.__all__)
    assert "then" in json.loads(reference["reference/halfway.json"])
    papers = reference["reference/papers.md"]
    assert (
        "[`greso`](../controllers/greso.md), [`fill`](parts.md#fill)" in papers
        and "Rollout Prefix Reuse, openreview.net" in papers
    )
    assert all(f"arXiv {number}]" in papers for number in ("1707.06347", "2503.14476", "2606.18284"))
    named = set(re.findall(r"`(experiments/recipes/\S+\.yaml)`", papers))
    assert len(named) == 6 and [name for name in named if not (REPOSITORY / name).exists()] == []


def test_every_controller_has_a_page_with_options_papers_and_arms(
    reference: Mapping[str, str],
) -> None:
    pages = {name: reference[f"controllers/{name}.md"] for name in CONTROLLERS.names()}
    assert all(part.about in pages[part.name] for kind in ("controllers", "contrib") for part in catalogue()[kind])
    assert all(f"\n# {name}" in page and f"`halfway list {name}`" in page for name, page in pages.items())
    servo, greso, knapsack = (pages[name] for name in ("servo", "greso", "knapsack"))
    assert "\n# servo: AdaRFT, E2H\n" in servo and servo.count("\nservo_") == 3 and "arXiv 2504.05520]" in servo
    assert "| `floor=0.01` | lowest probability of rolling out a problem. |" in greso and "Measured here" not in greso
    assert "## Measured here\n" in knapsack and "Within 0.005 in all three" in knapsack
    arms = yaml.safe_load("".join(re.findall(r"```yaml\n(\w+: #.*?)```", "\n".join(pages.values()), re.DOTALL)[:1]))
    assert arms and set(arms) <= set(yaml.safe_load((REPOSITORY / site_pages.ARMS).read_text())["arms"])


@pytest.mark.parametrize("rows", [site_pages.MOST_ROWS, site_pages.MOST_ROWS + 1])
def test_a_long_table_of_results_is_folded_under_its_title(rows: int) -> None:
    table = "**Every arm**\n\n| arm | gain |\n|---|---:|\n" + "| a | 1 |\n" * rows
    folded = site_pages.TABLE.sub(site_pages._folded, f"Before.\n\n{table}\nAfter.\n")
    if rows <= site_pages.MOST_ROWS:
        assert folded == f"Before.\n\n{table}\nAfter.\n"
    else:
        head = f'Before.\n\n??? note "Every arm ({rows} rows)"\n\n    | arm | gain |\n'
        assert folded.startswith(head) and folded.endswith("    | a | 1 |\n\nAfter.\n")


def test_the_page_about_the_decision_log_has_every_field_that_is_written(reference: Mapping[str, str]) -> None:
    page = reference["reference/decision_log.md"]
    listed = {name for row in re.findall(r"^\| (.+?) \| .+ \| .+ \|$", page, re.M) for name in row.split(", ")}
    turn = replace(make_turn([1, 2]), spans=((1, 1), (2, 1)))
    group = make_group([1], [Rollout((turn,), False, late=True), Rollout((make_turn([1]),), True)])
    request = structs.replace(group.request, hint=Hint("x", 0.5))
    group = replace(group.with_weights([1.0, 1.0]), request=request, lag=1, replay_cost=ReplayCost(1, 1.0, 1.0))
    written = set(group_record(group, 0, 0, "trained")) | set(skip_records([(0, Skip("a", "greso", "hard"))], 0)[0])
    written |= {"earlier_k", "earlier_n"}  # of groups that waited
    assert len(written) > 20 and listed - {"field"} == written
    types = json.loads(page.split("```json\n")[1].split("```")[0])["$defs"]["GroupRecord"]["properties"]
    assert set(types) <= written and types["step"] == {"type": "integer"}
