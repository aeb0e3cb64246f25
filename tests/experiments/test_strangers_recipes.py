"""Recipes that a stranger wrote: by themselves they read data and models, and cost little; all else needs a word."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from messages import says
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.acceptance import VARIABLE
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.launch import commands
from halfway.trainers.engines.vllm_servers.start import CLAIM, PREFIX, own_folder, vllm_servers_engine
from halfway.trainers.policy import ModelOptions, load_policy

RUN = "problems: {source: running_sums}\ncontrollers: [uniform]\nbudget: {steps: 4}\n"
LETTERS = "abcdefghij"
RED = re.compile(r"\x1b\[(31|0)m")
DOUBLED = "".join(f"{upper}: &{upper} [{', '.join(['*' + lower] * 9)}]\n" for lower, upper in pairwise(LETTERS))
MERGED = "".join(f"{upper}: &{upper} {{<<: [{', '.join(['*' + lower] * 9)}]}}\n" for lower, upper in pairwise(LETTERS))


@pytest.fixture(autouse=True)
def nothing_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    yield


def line(text: str, *overrides: str) -> str:
    """The line with which `halfway validate` refuses a recipe, without the place; the first one of several."""
    path = Path("recipe.yaml")
    path.write_text(text)
    began = time.process_time()
    result = CliRunner().invoke(app, ["validate", str(path), *overrides], color=True)
    assert time.process_time() - began < 20
    assert result.exit_code == 2, f"{result.output}{result.exception!r}"
    lines = re.sub(RED, "", result.stderr).splitlines()
    starts = [re.match(r"error: recipe\.yaml(:\d+)?: ", one) for one in lines]
    assert all(starts) and all(map(str.isprintable, lines)), lines
    return re.sub(r"error: recipe\.yaml(:\d+)?: ", "", lines[0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"a: &a [{', '.join('xyz' * 3)}]\n{DOUBLED}", "has more than 50,000 values"),
        (f"a: &a {{x: 1}}\n{MERGED}", "has more than 50,000 values"),
        ("a: &a [*a]\n", "refers to itself"),
        ("a: &a {b: *a}\n", "refers to itself"),
        ("a: " + "[" * 3000, "nested more than 50 levels"),
        ("".join(" " * i + "a:\n" for i in range(600)), "nested more than 50 levels"),
        ("[1, 2]: 3\n", "a list or a mapping as a key"),
        ("? {a: 1}\n: 2\n", "a list or a mapping as a key"),
        ("seed: " + "9" * 5000, "an integer of more than 100 digits"),
        ("seed: 0x" + "f" * 5000, "an integer of more than 100 digits"),
        ("seed: " + "1:" * 5000 + "1", "an integer of more than 100 digits"),
        ("a: [" + "[]," * 60_000 + "]", "has more than 50,000 values"),
        ("a: " + "x" * 300_000, "has more than 256 KiB"),
        ("seed: !!bool x", "is not readable as YAML"),
        ("seed: !!timestamp 2001-99-99", "is not readable as YAML"),
        ("seed: !!python/object/apply:os.mkdir [made]", "is not readable as YAML"),
    ],
)
def test_a_small_file_that_expands_to_much_is_refused_in_one_line(text: str, complaint: str) -> None:
    assert complaint in line(text)
    assert not Path("made").exists()


def test_a_pipe_or_device_is_refused_without_waiting() -> None:
    os.mkfifo("pipe.yaml")
    assert "pipe.yaml: is not a regular file" in line("base: pipe.yaml\n")
    with pytest.raises(UserError, match=says("/dev/zero", "regular file")):
        yaml_bases.parse(Path("/dev/zero"))


def test_bases_in_a_row_are_counted() -> None:
    for i in range(40):
        Path(f"{i}.yaml").write_text(f"base: {i + 1}.yaml\n")
    assert "is the base of more than 20 files in a row" in line("base: 0.yaml\n")


def test_aliases_and_merges_of_a_usual_size_are_read() -> None:
    Path("usual.yaml").write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\n")
    both = {"x": 1, "y": [2, 3]}
    assert yaml_bases.parse(Path("usual.yaml")) == {"a": both, "b": both, "c": {"x": 4, "y": [2, 3]}}


@pytest.mark.parametrize("field", ["name", "tracking.uri", "tracking.experiment", "output"])
def test_an_environment_variable_is_read_only_with_the_users_word(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "open-sesame")
    option, _, below = field.partition(".")
    text = f"{RUN}{option}: {f'{{{below}: ' if below else ''}'${{oc.env:SECRET_TOKEN}}'{'}' if below else ''}\n"
    refusal = line(text)
    assert refusal.startswith(f"{field}: reads the environment variable SECRET_TOKEN, which needs your consent")
    assert f"{VARIABLE}=environment:SECRET_TOKEN" in refusal and "sesame" not in refusal
    monkeypatch.setenv(VARIABLE, "environment:ANOTHER environment:SECRET_TOKEN")
    config = load_run_config(Path("recipe.yaml"))
    assert "open-sesame" in (config.name, config.output, config.tracking.uri, config.tracking.experiment)


@pytest.mark.parametrize("held", ["report.html", "status.json", "samples.jsonl", "summary.md", "payloads"])
@pytest.mark.parametrize("kind", ["run", "compare"])
def test_an_output_in_a_folder_of_other_files_replaces_none_of_them(kind: str, held: str, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "site"
    folder.mkdir(parents=True)
    (folder / held).write_text("mine")
    arms = "seeds: [0]\narms: {a: {}}\nbudget: {steps: 1}\nbase:\n"
    lower = f"{RUN}output: {folder.parent}\n"
    text = lower if kind == "run" else arms + "".join(f"  {one}\n" for one in lower.splitlines() if "budget" not in one)
    Path("recipe.yaml").write_text(f"{text}name: site\n")
    result = CliRunner().invoke(app, [kind, "recipe.yaml"])
    assert result.exit_code == 2
    assert f"{folder} is not a run, but a run would replace its {held}" in result.stderr.replace("\n", " ")
    assert [path.name for path in folder.iterdir()] == [held] and (folder / held).read_text() == "mine"


@pytest.mark.parametrize(
    "written",
    [
        "${oc.env:HOME,x}",
        "${oc.${a}:HOME}",
        "${oc.decode:${oc.env:HOME}}",
        "${oc.create:{}}",
        "$${oc.env:HOME}",
        "${oc.env:HOME",
        "\\\\${oc.env:HOME}",
        "${b}{oc.env:HOME}",
    ],
)
def test_no_other_way_leads_to_the_environment(written: str) -> None:
    refusal = line(f'{RUN}a: env\nb: $\nname: "{written}"\n')
    assert refusal.startswith("name: ")
    assert os.environ["HOME"] not in refusal.replace(str(Path.cwd()), "")


def test_references_do_not_multiply() -> None:
    rows = "".join(f"a{i}: '${{a{i + 1}}}${{a{i + 1}}}'\n" for i in range(60))
    assert "holds a reference itself" in line(f"{RUN}{rows}a60: x\n")
    many = "".join(f"b{i}: '${{text}}'\n" for i in range(2000))
    assert "expand to too much text" in line(f"{RUN}text: {'x' * 5000}\n{many}")


@pytest.mark.parametrize("name", [".", "a/./b", "..", "a/../b", "-o/.."])
def test_a_run_has_a_folder_of_its_own(name: str) -> None:
    assert line(RUN, f"name={name}").startswith("name: ")


def test_nothing_in_a_recipe_controls_the_terminal() -> None:
    escape = "\\e]0;mine\\a\\e[2J"
    texts = (f'"{escape}": 1\n', f'problems: {{source: "{escape}"}}\n', f'{RUN}model: {{path: "./{escape}"}}\n')
    for text in (*texts, f'{RUN}controllers: [{{uniform: {{"{escape}": 1}}}}]\n', f'base: "{escape}"\n'):
        assert "\x1b" not in line(text)
    Path("log.csv").write_text("\x1b[2Jx,y\n1,2\n")
    calls = (
        ["validate", "recipe.yaml", "\x1b[2J=1"],
        ["validate", "\x1b[2J.yaml"],
        ["audit", "\x1b[2J"],
        ["audit", "log.csv"],
    )
    for words in calls:  # in color, as on a terminal; otherwise typer would leave all escapes out
        output = CliRunner().invoke(app, words, color=True).output
        assert "\x1b" not in re.sub(RED, "", output)


def recipe_of(**more: str) -> Path:
    Path("recipe.yaml").write_text(RUN + "".join(f"{name}: {value}\n" for name, value in more.items()))
    return Path("recipe.yaml")


def test_servers_elsewhere_get_weights_only_with_the_users_word(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = "{{engine: {{vllm_servers: {{addresses: ['{}:1'], max_length: 4096}}}}}}"
    refusal = line(RUN + f"rollouts: {servers.format('collector.example')}\n")
    assert refusal.startswith("rollouts.engine.vllm_servers.addresses: sends prompts and weights to collector.example")
    assert f"{VARIABLE}=server:collector.example" in refusal
    options = load_run_config(Path("recipe.yaml")).rollouts.engine.part
    with pytest.raises(UserError, match=says("collector")):
        vllm_servers_engine(options, cast(Any, SimpleNamespace(policy=SimpleNamespace(dtype="torch.float32"))))
    for host, word in (("collector.example", "server:collector.example"), ("127.0.0.1", ""), ("[::1]", "")):
        monkeypatch.setenv(VARIABLE, word)
        recipe_of(rollouts=servers.format(host))
        assert CliRunner().invoke(app, ["validate", "recipe.yaml", "problems.train=8"]).exit_code == 0


@pytest.mark.parametrize(
    "part", ["tracking: {uri: 'http://collector.example'}", "environment: {repository: {box: BOX}}"]
)
def test_validate_refuses_what_needs_a_word(part: str) -> None:
    box = "{swerex: {deployment: {type: local}}}"
    assert "needs your consent outside the file" in line(f"{RUN}{part.replace('BOX', box)}\n")


def test_launched_processes_have_the_users_words_and_those_of_their_own_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = "{train_nodes: 1, rollout_nodes: 1, devices_per_node: 1}"
    engine = "{engine: {vllm_servers: {max_length: 4096}}}"
    config = load_run_config(recipe_of(cluster=cluster, rollouts=engine))
    monkeypatch.setenv(VARIABLE, "tracking:x")
    server, rank = commands(config, Path("recipe.yaml"), ["a", "b"])
    assert f"{VARIABLE}=tracking:x " in server.line and f"{VARIABLE}=tracking:x,server:b " in rank.line


@pytest.mark.parametrize(
    "host",
    [
        "-oProxyCommand=id",
        "-X",
        "a;id",
        "$(id)",
        "a\nb",
        "",
        "user@-o",
        "-l@a",
        "a.-b",
        "a..b",
        "a" * 5000,
        "é",
        "a@b@c",
    ],
)
def test_a_host_cannot_be_an_option_of_ssh(host: str) -> None:
    config = load_run_config(recipe_of())
    with pytest.raises(UserError, match=says("--nodes", "names", "addresses")):
        commands(config, Path("recipe.yaml"), [host])
    for right in ("user@a-1.example", "a.example.", "node_7", "10.0.0.7", "::1", "fe80::1%eth0"):
        assert commands(config, Path("recipe.yaml"), [right], found=lambda hosts: {each: each for each in hosts})


def test_a_model_brings_no_code_and_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if somebody would say yes."""
    model = tmp_path / "model"
    shutil.copytree(REPOSITORY / "experiments" / "starting_models" / "sums", model)
    config = json.loads((model / "config.json").read_text())
    own = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    for written in ({**config, "model_type": "own", "auto_map": own}, {**config, "auto_map": own}):
        (model / "config.json").write_text(json.dumps(written))
        (model / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\nclass Own: pass\n")
        monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question"))
        monkeypatch.setattr("signal.alarm", lambda *_: pytest.fail("a question"))
        with suppress(UserError):
            load_policy(ModelOptions(path=str(model)), str(model))
    (model / "config.json").write_text(json.dumps(config))
    torch.save({"weight": torch.zeros(1)}, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    with pytest.raises(UserError, match=says("model.path", "loaded")):
        load_policy(ModelOptions(path=str(model)), str(model))
    assert not (tmp_path / "made").exists()


def test_folders_that_others_plant_in_shared_memory_are_left_alone(tmp_path: Path) -> None:
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    for folder in (victim, shared, shared / f"{PREFIX}left", shared / f"{PREFIX}piped", shared / f"{PREFIX}linked"):
        folder.mkdir()
    for folder in (victim, shared / f"{PREFIX}left"):
        (folder / CLAIM).touch()
    (shared / f"{PREFIX}link").symlink_to(victim)
    os.mkfifo(shared / f"{PREFIX}piped" / CLAIM)
    (shared / f"{PREFIX}linked" / CLAIM).symlink_to(victim / CLAIM)
    own = own_folder(str(shared))
    assert own.stat().st_mode & 0o777 == 0o700 and not (shared / f"{PREFIX}left").exists()
    assert (victim / CLAIM).exists() and (shared / f"{PREFIX}link").is_symlink()
    assert (shared / f"{PREFIX}linked").exists()
    theirs = shared / f"{PREFIX}theirs"
    theirs.mkdir()
    (theirs / CLAIM).touch()
    if os.geteuid() == 0:
        os.chown(theirs, 12345, 12345)
        own_folder(str(shared))
        assert theirs.exists()
