"""The published results of each paper as data: the claim, how it is measured here, and the rule that judges it.

A file of `experiments/reproduction` holds one paper. Its rules were written before the runs that they judge;
`late` marks the exceptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from halfway.curriculum import UserError, require, unknown
from halfway.curriculum.support.validation import Reader, construct
from halfway.experiments.config import yaml_files
from halfway.experiments.papers import find_papers, plainly
from halfway.experiments.reproduction.run_measures import MEASURES

HERE = Path(__file__).parent
NAMES = ("prefix_sampling", "pros", "propel", "greso")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published result, and the rule that decides whether ours agrees.

    Attributes:
        place: its figure, table or section; all places with the same claim.
        claim: the claim in one sentence.
        published: the published numbers, with model and data.
        measure: the measure for judging (see `run_measures.MEASURES`).
        arm, against: the arm, and the arm by whose measure it is divided; without `against`, the arm's own value
            counts.
        effects: all published effects at the place, as multiples of `against` or as values of `arm`.
        size: the required effect if the source gives no number; otherwise see `least`.
        null: the value of no effect.
        within: bounds of the interval, for a claim that a value hardly changes or stays constant; in a multiple, null
            as the upper bound means none.
        ours: whether the size or the bounds are our choice, since the source gives no number.
        recipe: the comparison or study, if it is not the paper's.
        overrides: overrides of the recipe for this row's runs.
        seeds: seeds, if they are not the recipe's.
        shown_by: the test that shows a claim without runs.
        cannot: why it cannot be tested here.
        late: whether its rule was written after its runs.
        rests_on: the row whose measurement also decides this one; the two count as one claim.
        scale_recipe: recipe of the paper's own run for this row, if it is not the paper's `scale.recipe`.
        scale_overrides: changes to that recipe for this row.
    """

    place: str
    claim: str
    published: str
    measure: str = ""
    arm: str = ""
    against: str = ""
    effects: tuple[float, ...] = ()
    size: float | None = None
    null: float = 1.0
    within: tuple[float, float | None] | None = None
    ours: bool = False
    recipe: str = ""
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    shown_by: str = ""
    cannot: str = ""
    late: bool = False
    rests_on: str = ""
    scale_recipe: str = ""
    scale_overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.runs:
            given = (self.measure, self.arm, self.against, self.effects, self.size, self.within, self.recipe)
            require(not any(given), "measure", self.measure, "leave it out; this row has no runs")
            require(not (self.shown_by and self.cannot), "cannot", self.cannot, "this row has `shown_by`; give one")
            return
        if self.measure not in MEASURES:
            raise unknown("measure", self.measure, MEASURES)
        require(bool(self.arm), "arm", self.arm, "name the measured arm")
        rules = [bool(self.effects), self.size is not None, self.within is not None]
        require(sum(rules) == 1, "size", self.size, "give one of `effects`, `size` and `within`")
        remedy = f"give an effect that differs from null, {self.null}"
        least = None if self.within is not None else self.least
        require(least != self.null, "size", least, remedy)
        require(self.null == 1 or not self.against, "null", self.null, "give 1; a multiple of 1 means no effect")
        if self.within is not None:
            low, high = self.within
            require(high is None or low < high, "within", list(self.within), "put the lower bound first")
            require(high is not None or bool(self.against), "within", list(self.within), "a value needs both bounds")
        costs = MEASURES[self.measure].axis is not None
        require(bool(self.against) or not costs, "against", "", "a cost to a target needs the arm whose target it is")

    @property
    def runs(self) -> bool:
        """True if runs decide on the row."""
        return not (self.shown_by or self.cannot)

    @property
    def arms(self) -> list[str]:
        """The arms whose runs the row needs."""
        return [arm for arm in (self.against, self.arm) if arm]

    @property
    def least(self) -> float:
        """The required effect: half of the median published effect; `size`, which is ours, without one."""
        if self.size is not None:
            return self.size
        return round(self.null + (median(self.effects) - self.null) / 2, 3)

    @property
    def rule(self) -> str:
        """The rule of agreement in words."""
        what = f"{self.measure.replace('_', ' ')} of {self.arm}"
        what += f" / of {self.against}" if self.against else ""
        if self.within is not None:
            low, high = self.within
            return (
                f"{what}: interval within {low:g} and {high:g}" if high is not None else f"{what}: interval >= {low:g}"
            )
        sign = "<=" if self.least < self.null else ">="
        return f"{what}: {sign} {self.least:g}, interval without {self.null:g}"


def _rows(value: Any, path: str) -> dict[str, Row]:
    require(isinstance(value, Mapping) and bool(value), path, value, f"give {ROWS.wanted}")
    return {str(name): construct(Row, fields, f"{path}.{name}") for name, fields in value.items()}


ROWS = Reader(_rows, "names, each with the fields of a row")


@dataclass(frozen=True)
class StartingModel:
    """A model that `starting_models.warm_start` makes before the first run.

    Attributes:
        recipe: its name in warm_start.
        path: its path in the recipe of the runs.
        instance: instance of the task.
        minutes: minutes on one core.
    """

    recipe: str
    path: str
    instance: int = 0
    minutes: float = 0


def _models(value: Any, path: str) -> tuple[StartingModel, ...]:
    require(isinstance(value, list), path, value, f"give {MODELS.wanted}")
    return tuple(construct(StartingModel, each, f"{path}.{number}") for number, each in enumerate(value))


MODELS = Reader(_models, "a list of models, each with recipe and path")


@dataclass(frozen=True)
class Scale:
    """The paper's own configuration.

    Attributes:
        recipe: recipe of a run at the paper's scale, or of a study.
        arms: the changes of each arm; a study's recipe has its own arms.
        lacks: by arm, why it cannot run at this scale.
    """

    recipe: str
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper's rows and their common facts.

    Attributes:
        method: its name in `halfway list`.
        ground: the property on which the paper's argument rests, and its place in the lab.
        recipe: the comparison, or study of task generators, with the arms.
        study: whether the recipe is a study, whose arms share a corpus and a probe in each seed.
        minutes_a_run: on one core; 0 = not measured.
        starting_models: starting models of the recipe.
        scale: the paper's configuration.
        differs: differences from the paper, and likely reasons for results that were not reproduced.
    """

    method: str
    ground: str
    recipe: str
    study: bool = False
    minutes_a_run: float = 0
    starting_models: Annotated[tuple[StartingModel, ...], MODELS] = ()
    scale: Scale
    differs: str
    rows: Annotated[dict[str, Row], ROWS]
    name: str = ""

    def __post_init__(self) -> None:
        if len(find_papers(self.method)) != 1:
            raise UserError(f"method: {self.method!r} is not a paper; give a name from `halfway list`")
        for name, row in self.rows.items():
            known = not row.rests_on or (row.rests_on in self.rows and not self.rows[row.rests_on].rests_on)
            require(known, f"rows.{name}.rests_on", row.rests_on, "name a row of this paper that rests on no other")

    @property
    def title(self) -> str:
        return find_papers(self.method)[0].title

    def recipe_of(self, row: Row) -> str:
        return row.recipe or self.recipe


@cache
def load_paper(name: str) -> Paper:
    """Load the rows of a paper, checked.

    Raises:
        UserError: one line that names file, field, value and remedy.
    """
    file = HERE / f"{name}.yaml"
    try:
        return construct(Paper, {**yaml_files.read(file), "name": name})
    except UserError as error:
        raise error.within(f"{file.name}: ") from None


def papers() -> list[Paper]:
    """Load all papers, in the listed order."""
    return [load_paper(name) for name in NAMES]


def find_paper(word: str) -> Paper:
    """Find a paper by its name, a name of its method, or its number on arXiv. Raises UserError."""
    for paper in papers():
        own = find_papers(paper.method)[0]
        if plainly(word) in map(plainly, (paper.name, *own.names)) or own in find_papers(word):
            return paper
    known = find_papers(word)
    if known:
        hint = f"its results are not among the rows, which are of {', '.join(NAMES)}; try `halfway list {word}`"
        raise UserError(f"reproduce: {known[0].names[0]} is known, but {hint}")
    raise unknown("reproduce", word, NAMES)


def find_row(paper: Paper, name: str) -> Row:
    """Find a row of a paper. Raises UserError."""
    if name not in paper.rows:
        raise unknown(f"reproduce {paper.name}", name, paper.rows)
    return paper.rows[name]
