"""Settings from plain mappings: types, defaults, components by name, and one line for a mistake."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from halfway.curriculum.support.components import NONE, Component, at_most_one_of, one_of, plain
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.natural import natural
from halfway.curriculum.support.registry import Registry
from halfway.curriculum.support.validation import typed


@dataclass(frozen=True)
class Ring:
    """A registered component."""

    size: float = 1.0

    def __post_init__(self) -> None:
        require(self.size > 0, "ring.size", self.size, "give a positive number")


RINGS = Registry("ring", {}, _added={"ring": Ring, "function": len})


@dataclass(frozen=True)
class Bell:
    weight: float = 1.0
    tones: tuple[int, ...] = ()
    kind: Literal["large", "small"] = "small"


@dataclass(frozen=True)
class Tower:
    name: str
    height: int = 3
    bell: Bell = field(default_factory=lambda: Bell(weight=9.0))
    ring: Annotated[Component[Ring], one_of(RINGS)] = NONE
    spare: Annotated[Component[Ring], at_most_one_of(RINGS)] = NONE


def test_a_nested_default_is_kept_where_a_file_says_nothing() -> None:
    assert typed(Tower, {"name": "a", "bell": {"tones": [1, 2]}}).bell == Bell(9.0, (1, 2))


def test_a_number_is_accepted_as_text_and_text_as_a_number() -> None:
    tower = typed(Tower, {"name": 2026, "height": "7", "bell": {"weight": "3e-4"}})
    assert (tower.name, tower.height, tower.bell.weight) == ("2026", 7, 3e-4)


def test_a_component_is_an_object_and_is_written_back_with_every_option() -> None:
    tower = typed(Tower, {"name": "a", "ring": "ring", "spare": {"ring": {"size": 2}}})
    assert (tower.ring.part, tower.spare.part) == (Ring(), Ring(2.0))
    written: Any = plain(tower)
    assert (written["ring"], written["spare"]) == ({"ring": {"size": 1.0}}, {"ring": {"size": 2.0}})
    assert typed(Tower, written) == tower
    without = typed(Tower, {"name": "a", "ring": "ring", "spare": {}})
    assert not without.spare and plain(without.spare) == {}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "tower.name: missing; give text"),
        ({"name": True}, "tower.name: True is not acceptable; give text"),
        ({"name": "a", "hight": 1}, "tower.hight: unknown name 'hight'; did you mean 'height'?"),
        ({"name": "a", "height": 1.5}, "tower.height: 1.5 is not acceptable; give an integer"),
        ({"name": "a", "bell": 1}, "tower.bell: 1 is not acceptable; give a mapping of fields"),
        (
            {"name": "a", "bell": {"tones": [0.5]}},
            "tower.bell.tones: [0.5] is not acceptable; give a list, each an int",
        ),
        ({"name": "a", "bell": {"kind": "smal"}}, "tower.bell.kind: unknown name 'smal'; did you mean 'small'?"),
        ({"name": "a", "ring": "rign"}, "tower.ring: unknown name 'rign'; did you mean 'ring'?"),
        ({"name": "a", "ring": {}}, "tower.ring: {} is not acceptable; give one name, or one {name: options}"),
        ({"name": "a", "ring": {"ring": {"size": 0}}}, "tower.ring.ring.size: 0.0 is not acceptable; give a positive"),
        ({"name": "a", "ring": "function"}, "tower.ring: 'function' is not a dataclass of options; mend the package"),
    ],
)
def test_a_mistake_is_one_line_with_field_value_and_remedy(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        typed(Tower, fields, "tower")
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("path", ["ring", "a.ring"])
def test_an_error_of_the_settings_themselves_gets_the_path_in_front(path: str) -> None:
    with pytest.raises(UserError, match=rf"^{path}\.size: -1\.0 is not acceptable; give a positive number$"):
        typed(Ring, {"size": -1}, path)


# Names are ordered by the numbers in them.


def test_numbers_in_names_sort_by_value() -> None:
    assert sorted(["s10", "s9", "", "a", "7"], key=natural) == ["", "7", "a", "s9", "s10"]
