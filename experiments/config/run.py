"""The fields of a run. Importing and checking needs neither torch nor MLflow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfway.curriculum.environments.base import Environment
from halfway.curriculum.registries import ENVIRONMENTS, SOURCES
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.tasks.sources import Source
from halfway.experiments.config import paths, yaml_files
from halfway.experiments.config.components import (
    Component,
    Members,
    check_chain,
    component,
    controllers_with_defaults,
    members,
    with_defaults,
)
from halfway.experiments.config.names import require_name
from halfway.experiments.config.rollouts import engine_part, rollouts_with_defaults
from halfway.experiments.config.validation import typed
from halfway.trainers.distributed.cluster import ClusterOptions, ShapeOptions
from halfway.trainers.engines.part import EnginePart, PlannedRun
from halfway.trainers.learner.options import LearnerOptions
from halfway.trainers.loop.options import Budget, CheckpointOptions, EvaluationOptions, FillOptions
from halfway.trainers.policy import ModelOptions
from halfway.trainers.rollouts.options import RolloutOptions


@dataclass(frozen=True)
class ProblemOptions:
    """Where problems come from.

    Attributes:
        source: `{name: options}` of a registered source (in YAML, the name alone will do).
        train: number of training problems; null = all that are not held out (see `evaluation.problems`), which is not
            allowed for a source that generates problems.
        seed: the seed of a generating source, and of the choice of the held-out problems. Runs with different seeds
            train and are evaluated on the same problems.
        also: `{name: options}` of a further source, whose problems train beside the others and are never held out, such
            as easier ones. Problems that the main source gives as well are left out. Empty = none.
        also_train: how many problems of the further source; null = all, which is not allowed for a source that
            generates problems.
        generated: `{name: options}` of an additional source, for a controller that proposes generated problems;
            usually `{pool: {path: ...}}`, a file written by `halfway propel export`. Empty = none. Problems that the
            main source gives as well, for training or held out, are left out.
    """

    source: Component
    train: int | None = None
    seed: int = 0
    also: Component = field(default_factory=dict)
    also_train: int | None = None
    generated: Component = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.train is None or self.train >= 1, "problems.train", self.train, "give at least 1, or null for all")
        more = self.also_train is None or (self.also_train >= 1 and bool(self.also))
        require(more, "problems.also_train", self.also_train, "name a source in problems.also, and give at least 1")
        require(self.seed >= 0, "problems.seed", self.seed, "give 0 or more")


@dataclass(frozen=True)
class TrackingOptions:
    """Where MLflow keeps its copy of the records.

    Attributes:
        mlflow: whether to keep a copy in MLflow.
        experiment: the name of MLflow's experiment.
        uri: an SQLite file, relative to `output`, or any MLflow tracking URI (one with "://").
    """

    mlflow: bool = True
    experiment: str = "halfway"
    uri: str = "mlflow.db"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One complete training run: equal configurations give equal decision logs and weights.

    Attributes:
        name: the run directory is `output`/`name`.
        controllers: the chain in order; each entry is `{label: options}`, with `use: name` if the name differs.
        environment: `{name: options}` of a registered environment (in YAML, the name alone will do; the default is
            "single_turn").
        threads: CPU threads of torch; 0 = torch's choice. Resuming with another number may change the last digits.
        cluster: the machines that the run is meant for.
    """

    name: str
    controllers: list[Component]
    problems: ProblemOptions
    environment: Component
    budget: Budget
    seed: int = 0
    model: ModelOptions = field(default_factory=ModelOptions)
    fill: FillOptions = field(default_factory=FillOptions)
    rollouts: RolloutOptions = field(default_factory=RolloutOptions)
    learner: LearnerOptions = field(default_factory=LearnerOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    output: str = "runs"
    threads: int = 0
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    def __post_init__(self) -> None:
        require_name(self.name)
        require(self.seed >= 0, "seed", self.seed, "give 0 or more")
        require(self.threads >= 0, "threads", self.threads, "give 0 (= torch's choice) or more")

    @property
    def folder(self) -> Path:
        """The run directory."""
        return Path(self.output) / self.name

    def members(self) -> Members:
        """The labelled controllers, in order."""
        return members(self.controllers)

    def source(self) -> Source:
        """The problem source, with paths that can be opened from the current folder."""
        return _source(self.problems.source, "problems.source")

    def also(self) -> Source | None:
        """The source of further training problems, with paths made openable as in `source`; None if there is none."""
        return _source(self.problems.also, "problems.also") if self.problems.also else None

    def generated(self) -> Source | None:
        """The source of generated problems, with paths made openable as in `source`; None if there is none."""
        return _source(self.problems.generated, "problems.generated") if self.problems.generated else None

    def build_environment(self) -> Environment[Any]:
        """Make the environment of the run."""
        environment: Environment[Any] = component(self.environment, ENVIRONMENTS, "environment")
        return environment

    def engine(self) -> EnginePart:
        """The engine that samples rollouts, not built yet."""
        return engine_part(self.rollouts)

    def planned(self, shape: ShapeOptions | None = None) -> PlannedRun:
        """What an engine may know about the run."""
        return planned_run(self.model, self.rollouts, self.cluster, shape)


def planned_run(
    model: ModelOptions,
    rollouts: RolloutOptions,
    cluster: ClusterOptions | None = None,
    shape: ShapeOptions | None = None,
) -> PlannedRun:
    """What an engine may know before it is built.

    Args:
        shape: sizes of the model, if known.
    """
    lengths = (rollouts.max_response_tokens, rollouts.max_sequences)
    return PlannedRun(model.path, model.dtype, *lengths, cluster or ClusterOptions(), shape)


def _source(chosen: Component, where: str) -> Source:
    [(name, options)] = chosen.items()
    found = paths.openable(options)
    source: Source = component({name: found}, SOURCES, where)
    return source


def parse_run_config(raw: Mapping[str, Any]) -> RunConfig:
    """The run that a plain mapping describes, with every option of every component written out and checked."""
    raw = yaml_files.interpolated(raw)
    if "controllers" not in raw:
        raise UserError("controllers: missing; give a list of controllers, such as [uniform]")
    raw["controllers"] = controllers_with_defaults(raw["controllers"])
    raw["environment"] = with_defaults(raw.get("environment", "single_turn"), ENVIRONMENTS, "environment")
    problems = raw.get("problems")
    if isinstance(problems, Mapping):
        named = [which for which in paths.PROBLEM_SOURCES if problems.get(which)]
        raw["problems"] = {**problems, **{k: with_defaults(problems[k], SOURCES, f"problems.{k}") for k in named}}
    raw["rollouts"] = rollouts_with_defaults(raw.get("rollouts", {}))
    config = typed(RunConfig, raw)
    check_chain(config.members())
    check_needs(config)
    check_precision(config.model, config.learner)
    config.engine().check(config.planned())
    return config


def check_needs(config: RunConfig) -> None:
    """Raise UserError if a controller needs something of rollouts that nothing in the run provides."""
    for label, member in config.members():
        require(
            "values" not in member.needs or config.learner.advantage == "gae",
            "learner.advantage",
            config.learner.advantage,
            f"controllers.{label} needs the values of a critic; use learner.advantage=gae, or change its options",
        )
        require(
            "generated" not in member.needs or bool(config.problems.generated),
            "problems.generated",
            config.problems.generated,
            f"controllers.{label} proposes generated problems; give a pool, such as {{pool: {{path: ...}}}}",
        )
    wanted = any("generated" in member.claims for _, member in config.members())
    require(
        wanted or not config.problems.generated,
        "problems.generated",
        config.problems.generated,
        "no controller proposes generated problems; list probe before the one that chooses problems, or remove it",
    )


def check_precision(model: ModelOptions, learner: LearnerOptions) -> None:
    """Raise UserError if the run would train bfloat16 weights directly: most steps of usual size round to zero there.

    DeepSpeed keeps float32 copies of such weights, and adapters are in float32.
    """
    kept = learner.deepspeed.zero_stage is not None or model.lora.rank > 0
    require(
        model.dtype == "float32" or kept,
        "model.dtype",
        model.dtype,
        "small steps are lost in bfloat16 weights; use learner.deepspeed.zero_stage=2, model.lora.rank=16, or float32",
    )
