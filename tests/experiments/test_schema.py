"""The JSON schema accepts what the commands accept, and refuses wrong names; `halfway init` writes what both accept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import Stream, UserError
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.tasks.files import File
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.starter import HOSTS, source_of, write_starter
from halfway.experiments.schema import schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the schema")


@pytest.fixture(scope="module")
def validator() -> Any:
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"learner": {"lrr": 1}}, "lrr"),
        ({"learner": {"lr": "fast"}}, "fast"),
        ({"controllers": ["gresso"]}, "gresso"),
        ({"controllers": [{"greso": {"flor": 1}}]}, "flor"),
        ({"controllers": [{"mine": {"use": "greso", "flor": 1}}]}, "flor"),
        ({"arms": {"a": {"learner": {"lrr": 1}}}}, "lrr"),
        ({"problems": {"source": {"file": {"pth": "x"}}}}, "pth"),
        ({"domain": "sums", "solver": {"modl": {}}}, "modl"),
    ],
)
def test_a_wrong_name_or_type_is_refused(validator: Any, change: dict[str, Any], word: str) -> None:
    errors = list(validator.iter_errors(change))
    assert errors and word in str(errors), errors


@pytest.mark.parametrize(
    "right",
    [
        {"learner": {"lr": "${learner.eps}"}},
        {"controllers": {"greso": {"floor": 0.1}}},
        {"controllers": ["uniform", {"again": {"use": "greso", "floor": 0.1}}]},
        {"arms": {"a": None, "b": {"tune": {"grid": {"learner.lr": [1e-4]}}}}},
    ],
)
def test_other_ways_to_write_are_accepted(validator: Any, right: dict[str, Any]) -> None:
    assert not list(validator.iter_errors(right))


@pytest.fixture
def plugin() -> Iterator[None]:
    from halfway.controllers import CONTROLLERS
    from halfway.controllers.uniform import Uniform

    CONTROLLERS.add("mine", Uniform)
    yield
    del CONTROLLERS._added["mine"]


def test_the_command_writes_the_file_with_plugins(plugin: None, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["schema", str(tmp_path / "s.json")]).exit_code == 0
    written = json.loads((tmp_path / "s.json").read_text())
    assert written == json.loads(CliRunner().invoke(app, ["schema"]).stdout)
    assert "controllers.mine" in written["$defs"]


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_a_starter_is_accepted_by_the_schema_and_by_the_loader(
    validator: Any, gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["init", "my.yaml", "--data", "rows.jsonl", "--model", "owner/name", "--gpus", str(gpus)]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert made.stdout == Path("my.yaml").read_text()
    assert not list(validator.iter_errors(yaml_bases.parse(Path("my.yaml"))))
    config = load_run_config(Path("my.yaml"))
    assert (config.model.path, config.cluster.devices_per_node) == ("owner/name", max(1, gpus))
    assert CliRunner().invoke(app, words).exit_code == 2, "an existing file is left alone"


def test_a_file_of_problems_instead_of_a_recipe_is_told_what_writes_one() -> None:
    for command in ("validate", "run"):
        done = CliRunner().invoke(app, [command, "rows.jsonl"])
        assert done.exit_code == 2 and "`halfway init own.yaml --data rows.jsonl` writes a recipe" in done.stderr


@pytest.mark.parametrize("scheme", ["", "https://huggingface.co/datasets/", "hf://datasets/"])
def test_a_data_set_of_the_hub_may_be_named_by_its_address(scheme: str) -> None:
    assert source_of(f"{scheme}openai/gsm8k") == {"hub": {"name": "openai/gsm8k", "verifier": "symbolic"}}
    with pytest.raises(UserError, match="is an address; download the file"):
        File("https://x.org/train.jsonl").load(None, Stream(0))


@pytest.mark.parametrize("host", HOSTS[1:])
def test_a_starter_for_a_host_is_a_chain_and_names_the_hosts_page(host: str, tmp_path: Path) -> None:
    import halfway

    file = tmp_path / "chain.yaml"
    assert CliRunner().invoke(app, ["init", str(file), "--host", host]).exit_code == 0
    assert list(halfway.from_yaml(file).members) == ["uniform", "greso"]
    assert (REPOSITORY / "docs/hosts" / f"{host}.md").exists() and f"docs/hosts/{host}.md" in file.read_text()


def test_a_first_recipe_fits_a_model_that_is_here(tmp_path: Path) -> None:
    """Its tokens, and whether its tokenizer has a chat template."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 256}))
    (model / "tokenizer_config.json").write_text("{}")
    plain = write_starter(tmp_path / "plain.yaml", "rows.jsonl", str(model), gpus=0, host="halfway")
    assert "  chat: messages #" in plain and "  max_response_tokens: 128\n" in plain
    (model / "chat_template.jinja").write_text("{{ messages }}")
    spoken = write_starter(tmp_path / "spoken.yaml", "rows.jsonl", str(model), gpus=0, host="halfway")
    assert "  chat: all #" in spoken
    (model / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json"):
        write_starter(tmp_path / "damaged.yaml", "rows.jsonl", str(model), gpus=0, host="halfway")


@pytest.mark.parametrize(("rows", "held_out", "groups"), [(2, 1, 1), (20, 4, 16), (3000, 256, 64)])
def test_a_first_recipe_holds_out_a_fifth_of_few_rows(
    rows: int, held_out: int, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("".join(f'{{"prompt": "{i}?", "answer": "{i}"}}\n' for i in range(rows)))
    write_starter(Path("own.yaml"), "rows.jsonl", "owner/name", gpus=0, host="halfway")
    config = load_run_config(Path("own.yaml"))
    assert (config.evaluation.problems, config.fill.groups) == (held_out, groups)
