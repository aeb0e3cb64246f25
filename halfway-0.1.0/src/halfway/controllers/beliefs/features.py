"""Columns of a problem set as arrays: numbers, and categories of problems."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.curriculum import ProblemSet, UserError

ColumnIs = Literal["difficulty", "pass_rate"]


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """The problems of a set, divided into C categories.

    Attributes:
        names: names of the categories, in ascending order of the column's values.
        category_P: each problem's category.
        order_P: indices of all problems, category by category.
        first_C: start of each category in `order_P`, and the end of the last one.
    """

    names: tuple[str, ...]
    category_P: Positions
    order_P: Positions
    first_C: Positions

    def __len__(self) -> int:
        return len(self.names)

    def members(self, category: int) -> Positions:
        """Indices of a category's problems, in ascending order."""
        return self.order_P[self.first_C[category] : self.first_C[category + 1]]


@lru_cache(maxsize=8)
def numbers(problems: ProblemSet, feature: str, field: str) -> Floats:
    """Read a feature of all problems as numbers, (P,).

    Args:
        field: the configuration field that names the feature, for error messages.

    Raises:
        UserError: if a problem lacks the feature, or its value is not a finite number.
    """
    column = _column(problems, feature, field)
    if column.dtype.kind not in "fiu" or not np.isfinite(column).all():
        raise UserError(f"{field}: {feature!r} is not a finite number for every problem; name a column of numbers")
    values_P = column.astype(np.float64)
    values_P.setflags(write=False)
    return values_P


@lru_cache(maxsize=8)
def categories(problems: ProblemSet, feature: str, field: str) -> Categories:
    """Divide the problems by the values of a feature.

    Args:
        field: the configuration field that names the feature, for error messages.

    Raises:
        UserError: if a problem lacks the feature, if it is a vector, if there is only one category, or if a category
            has only one problem, which cannot fill two slots of a plan. A set of one problem may have one category.
    """
    values, category_P = np.unique(_column(problems, feature, field), return_inverse=True)
    return _check(tuple(map(str, values.tolist())), category_P, f"{field}: the feature {feature!r}")


@lru_cache(maxsize=8)
def difficulties(problems: ProblemSet, feature: str, column_is: ColumnIs, field: str) -> Floats:
    """Difficulty of each problem: a column of numbers unchanged, or 100 (1 - rate) of a column of pass rates.

    Raises:
        UserError: as for `numbers`, and if a pass rate is not between 0 and 1.
    """
    values_P = numbers(problems, feature, field)
    if column_is == "difficulty":
        return values_P
    if values_P.min() < 0 or values_P.max() > 1:
        raise UserError(
            f"{field}: {feature!r} goes from {values_P.min():g} to {values_P.max():g}, which are not pass rates; "
            "set column_is: difficulty"
        )
    return 100 * (1 - values_P)


@lru_cache(maxsize=8)
def levels(problems: ProblemSet, feature: str, number: int | None, column_is: ColumnIs, field: str) -> Categories:
    """Divide the problems into levels of difficulty, easiest first.

    Args:
        number: number of levels of about equal size; equal difficulties stay together, so there may be fewer. None =
            each value of the column is a level, with words in alphabetical order.

    Raises:
        UserError: as for `difficulties` and `categories`.
    """
    if number is None and column_is == "difficulty":
        return categories(problems, feature, field)
    values_P = difficulties(problems, feature, column_is, field)
    if number is not None:
        edges = np.quantile(values_P, np.arange(1, number) / number, method="inverted_cdf")
        values_P = np.searchsorted(edges, values_P, side="left").astype(np.float64)
    level_values, level_P = np.unique(values_P, return_inverse=True)
    return _check(tuple(f"{value:g}" for value in level_values.tolist()), level_P, f"{field}: the feature {feature!r}")


def _column(problems: ProblemSet, feature: str, field: str) -> NDArray[Any]:
    column = problems.column(feature)
    if column.ndim > 1:
        raise UserError(f"{field}: {feature!r} is a vector; name a column with one value for each problem")
    return column


def _check(names: tuple[str, ...], category_P: Positions, what: str) -> Categories:
    sizes_C = np.bincount(category_P, minlength=len(names))
    if len(category_P) > 1 and len(names) == 1:
        raise UserError(f"{what} is {names[0]!r} for all problems, which leaves nothing to choose; name another column")
    if len(category_P) > 1 and sizes_C.min() == 1:
        single = names[int(np.argmin(sizes_C))]
        raise UserError(
            f"{what} has the value {single!r} for one problem only; merge small categories, or name a coarser column"
        )
    order_P = np.argsort(category_P, kind="stable")
    for array in (category_P, order_P):
        array.setflags(write=False)
    return Categories(names, category_P, order_P, np.concatenate([[0], np.cumsum(sizes_C)]))
