"""The examples in docstrings are run."""

import doctest
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from halfway import controllers, curriculum, experiments


def modules() -> Iterator[str]:
    packages: list[ModuleType] = [curriculum, controllers, experiments]
    for package in packages:
        yield package.__name__
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))


def examples(name: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(import_module(name)) if test.examples]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    for test in examples(name):
        failures = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert failures.failed == 0, test.name


@pytest.mark.parametrize(
    "name", ["halfway.curriculum.streams", "halfway.curriculum.controller", "halfway.curriculum.support.yaml_bases"]
)
def test_examples_were_found(name: str) -> None:
    assert examples(name)
