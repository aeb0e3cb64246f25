"""Recipes as files: the schema accepts each, and its page and its first line say what it is."""

import re

import pytest
from recipe_files import FILES, FOLDER, recipe_command

from halfway.curriculum.support import yaml_bases
from halfway.experiments.schema import schema


def test_the_folder_holds_what_its_page_lists() -> None:
    page = (FOLDER / "README.md").read_text()
    listed = set(re.findall(r"^\| `([a-z0-9_/]+)\.yaml`", page, re.MULTILINE))
    assert listed == set(FILES)


def test_the_first_line_says_what_it_is_and_gives_its_command() -> None:
    first = {name: path.read_text().splitlines()[0] for name, path in FILES.items()}
    wrong = [
        name
        for name, line in first.items()
        if not (line.startswith("# ") and f":  halfway {recipe_command(name)} experiments/recipes/{name}.yaml" in line)
    ]
    assert wrong == []


def test_the_schema_accepts_every_recipe() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the schema")
    validator = jsonschema.Draft202012Validator(schema())
    assert len(FILES) > 30
    refused = {name: [e.message for e in validator.iter_errors(yaml_bases.parse(path))] for name, path in FILES.items()}
    assert not any(refused.values()), {name: errors for name, errors in refused.items() if errors}
