"""Names are ordered by the numbers in them."""

from halfway.curriculum.support.natural import natural


def test_numbers_in_names_sort_by_value() -> None:
    assert sorted(["s10", "s9", "", "a", "7"], key=natural) == ["", "7", "a", "s9", "s10"]
