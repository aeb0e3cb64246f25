"""What a YAML file may say: a run, or a comparison of arms. Importing and checking needs no torch and no MLflow."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from halfway.curriculum.environments import ENVIRONMENTS
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.registry import unknown
from halfway.curriculum.tasks.sources import SOURCES
from halfway.experiments.config import yaml_files
from halfway.experiments.config.cluster import ClusterOptions
from halfway.experiments.config.components import (
    Members,
    check_chain,
    component,
    controllers_with_defaults,
    members,
    with_defaults,
)
from halfway.experiments.config.validation import typed
from halfway.trainers.engines import ENGINES
from halfway.trainers.options import (
    Budget,
    CheckpointOptions,
    EvaluationOptions,
    FillOptions,
    LearnerOptions,
    LoraOptions,
    RolloutOptions,
    require,
)

NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")
# What belongs to a comparison as a whole, so that its arms are compared on equal terms.
SHARED = ("budget", "seed", "name", "output", "tracking", "evaluation")


@dataclass(frozen=True)
class ProblemOptions:
    """Where problems come from.

    Attributes:
        source: `{name: options}` of a registered source (in YAML, the name alone will do).
        train: number of training problems; null = all that are not held out (see `evaluation.problems`), which a
            source that generates problems does not have.
        seed: of a generating source, and of the choice of the held-out problems. Runs with different seeds of their
            own train and are evaluated on the same problems.
        generated: `{name: options}` of a source of problems beside those, for a controller that proposes generated
            problems; usually `{pool: {path: ...}}`, a file of `halfway propel export`. Empty = none. Those that the
            source itself gives, to train on or held out, are left out.
    """

    source: dict[str, Any]
    train: int | None = None
    seed: int = 0
    generated: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.train is None or self.train >= 1, "problems.train", self.train, "give at least 1, or null for all")
        require(self.seed >= 0, "problems.seed", self.seed, "give 0 or more")


@dataclass(frozen=True)
class ModelOptions:
    """The policy to start from.

    Attributes:
        path: a folder with a Hugging Face checkpoint and its tokenizer (relative to the YAML file, the current folder
            or the repository), or a name on a model hub.
        dtype: of weights and activations. bfloat16 is for DeepSpeed and adapters, which keep float32 beside it.
        attn_implementation: attention kernel, as `transformers` calls it.
        lora: adapters to train in the place of the weights.
        chat: what goes through the tokenizer's chat template: "messages" = prompts that are lists of messages; "all" =
            plain prompts too, each as one message of the user.
        system: a system message for conversations that have none; empty = what the template does then.
    """

    path: str = "experiments/lab/base"
    dtype: Literal["float32", "bfloat16"] = "float32"
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    lora: LoraOptions = field(default_factory=LoraOptions)
    chat: Literal["messages", "all"] = "messages"
    system: str = ""


@dataclass(frozen=True)
class TrackingOptions:
    """Where MLflow keeps its copy of the records.

    Attributes:
        mlflow: whether to keep one.
        experiment: MLflow's experiment.
        uri: an SQLite file, relative to `output`; or any MLflow tracking URI (something with "://").
    """

    mlflow: bool = True
    experiment: str = "halfway"
    uri: str = "mlflow.db"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run, complete: equal configurations give equal decision logs and weights.

    Attributes:
        name: the run directory is `output`/`name`.
        controllers: the chain in order; each entry `{label: options}`, with `use: name` where label and name differ.
        environment: `{name: options}` of a registered environment (in YAML, the name alone will do; "single_turn" if
            nothing is said).
        threads: CPU threads of torch; 0 = torch's choice. Resuming with another number may change the last digits.
        cluster: the machines it is meant for.
    """

    name: str
    controllers: list[Any]
    problems: ProblemOptions
    environment: dict[str, Any]
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
        require(NAME.fullmatch(self.name) is not None, "name", self.name, "use letters, digits, '.', '_' and '-'")
        require(".." not in self.name.split("/"), "name", self.name, "stay inside the folder `output`")
        require(self.seed >= 0, "seed", self.seed, "give 0 or more")
        require(self.threads >= 0, "threads", self.threads, "give 0 (= torch's choice) or more")
        engine, engines = self.rollouts.engine, ENGINES.names()
        if engine not in engines:
            raise unknown("rollouts.engine", engine, engines)

    @property
    def folder(self) -> Path:
        """The run directory."""
        return Path(self.output) / self.name

    def members(self) -> Members:
        """The labelled controllers, in order."""
        return members(self.controllers)

    def source(self) -> Any:
        """The problem source, with paths that can be opened."""
        return _source(self.problems.source, "problems.source")

    def generated(self) -> Any:
        """The source of generated problems, likewise; None if there is none."""
        return _source(self.problems.generated, "problems.generated") if self.problems.generated else None

    def build_environment(self) -> Any:
        """The environment."""
        return component(self.environment, ENVIRONMENTS, "environment")


def _source(chosen: Mapping[str, Any], where: str) -> Any:
    [(name, options)] = chosen.items()
    found = {k: str(yaml_files.find(v)) if yaml_files.is_path(k, v) else v for k, v in options.items()}
    return component({name: found}, SOURCES, where)


@dataclass(frozen=True)
class ComparisonConfig:
    """Arms x seeds on one budget.

    Attributes:
        name: the comparison's directory is `output`/`name`.
        base: what the arms share: the fields of a run.
        seeds: every arm runs once with each.
        budget: what every arm may spend.
        arms: arm -> the fields in which it differs from `base`.
    """

    name: str
    base: dict[str, Any]
    seeds: tuple[int, ...]
    budget: Budget
    arms: dict[str, Any]

    def __post_init__(self) -> None:
        require(NAME.fullmatch(self.name) is not None, "name", self.name, "use letters, digits, '.', '_' and '-'")
        require(len(self.arms) > 0, "arms", self.arms, "give at least one arm")
        unique = len(set(self.seeds)) == len(self.seeds) > 0
        require(unique and min(self.seeds) >= 0, "seeds", list(self.seeds), "give different numbers from 0 on")
        for arm, changes in self.arms.items():
            require(re.fullmatch(r"[\w.-]+", arm) is not None, "arms", arm, "use letters, digits, '.', '_' and '-'")
            require(isinstance(changes, dict), f"arms.{arm}", changes, "give the fields in which the arm differs")
            for name in SHARED:
                require(
                    name not in changes,
                    f"arms.{arm}.{name}",
                    changes.get(name),
                    f"all arms share one {name}; set it for the whole comparison",
                )

    @property
    def folder(self) -> Path:
        """The comparison's directory."""
        return Path(str(self.base.get("output", "runs"))) / self.name

    def run(self, arm: str, seed: int) -> RunConfig:
        """The configuration of one arm with one seed. Raises UserError with the arm's name in front."""
        own = {"name": f"{self.name}/{arm}/seed-{seed}", "seed": seed, "budget": _given(self.budget)}
        try:
            return parse_run_config(yaml_files.merge(yaml_files.merge(self.base, self.arms[arm]), own))
        except UserError as error:
            raise UserError(f"arms.{arm}: {error}") from None

    def runs(self) -> Iterator[tuple[str, int, RunConfig]]:
        """Arm, seed and configuration of every run; arms change fastest, so that early results compare them all."""
        for seed in self.seeds:
            for arm in self.arms:
                yield arm, seed, self.run(arm, seed)


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig | ComparisonConfig:
    """The run or comparison in a YAML file, checked completely. A comparison is what has `arms`.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    raw = yaml_files.read(path)
    if yaml_files.is_study(raw):
        raise UserError(f"{path}: has a domain, so it is a study of task generators; use `halfway propel all {path}`")
    if "arms" in raw:
        return _comparison(raw, path, overrides)
    return parse_run_config({"name": path.stem, **yaml_files.merge(raw, yaml_files.parse_overrides(overrides))})


def load_run_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Like `load_config`, for a run only."""
    config = load_config(path, overrides)
    if isinstance(config, ComparisonConfig):
        raise UserError(f"{path}: has arms, so it is a comparison; use `halfway compare {path}`")
    return config


def load_comparison_config(path: Path, overrides: Sequence[str] = ()) -> ComparisonConfig:
    """Like `load_config`, for a comparison only."""
    config = load_config(path, overrides)
    if isinstance(config, RunConfig):
        raise UserError(f"{path}: has no arms, so it is a single run; use `halfway run {path}`")
    return config


def parse_run_config(raw: Mapping[str, Any]) -> RunConfig:
    """The run that a plain mapping describes, with every option of every part written out, checked completely."""
    raw = yaml_files.interpolated(raw)
    if "controllers" not in raw:
        raise UserError("controllers: missing; give a list of controllers, such as [uniform]")
    raw["controllers"] = controllers_with_defaults(raw["controllers"])
    raw["environment"] = with_defaults(raw.get("environment", "single_turn"), ENVIRONMENTS, "environment")
    problems = raw.get("problems")
    if isinstance(problems, Mapping):
        named = [which for which in yaml_files.PROBLEM_SOURCES if problems.get(which)]
        raw["problems"] = {**problems, **{k: with_defaults(problems[k], SOURCES, f"problems.{k}") for k in named}}
    config = typed(RunConfig, raw)
    check_chain(config.members())
    check_needs(config)
    check_precision(config.model, config.learner)
    return config


def check_needs(config: RunConfig) -> None:
    """Raise UserError if a controller needs of rollouts what nothing in the run provides."""
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
    """Raise UserError if weights in bfloat16 were trained themselves: most steps of a usual size round to none there.

    DeepSpeed keeps float32 copies of them, and adapters are in float32.
    """
    kept = learner.deepspeed.zero_stage is not None or model.lora.rank > 0
    require(
        model.dtype == "float32" or kept,
        "model.dtype",
        model.dtype,
        "small steps are lost in bfloat16 weights; use learner.deepspeed.zero_stage=2, model.lora.rank=16, or float32",
    )


def _comparison(raw: dict[str, Any], path: Path, overrides: Sequence[str]) -> ComparisonConfig:
    changes = yaml_files.parse_overrides(overrides)
    own = {k: v for k, v in changes.items() if k in ("name", "seeds", "budget", "arms")}
    shared = {k: v for k, v in changes.items() if k not in own}
    _check_arms(raw["arms"], own.get("arms", {}))
    raw = yaml_files.merge({"name": path.stem, **raw}, own)
    if not isinstance(raw.get("base"), Mapping):
        raise UserError("base: missing; give a YAML file, or the fields that all arms share")
    base = yaml_files.merge(raw["base"], shared)
    if "budget" in base:
        raw.setdefault("budget", base["budget"])
    raw["base"] = {k: v for k, v in base.items() if k not in ("budget", "name", "seed")}
    raw["arms"] = {arm: {} if changes is None else changes for arm, changes in raw["arms"].items()}
    config = typed(ComparisonConfig, raw)
    for arm in config.arms:
        config.run(arm, config.seeds[0])
    return config


def _check_arms(arms: Any, changed: Mapping[str, Any]) -> None:
    if not isinstance(arms, Mapping):
        raise UserError(f"arms: {arms!r} is not acceptable; give {{arm: the fields in which it differs}}")
    for arm in changed:
        if arm not in arms:
            raise unknown(f"arms.{arm}", arm, map(str, arms))


def with_seeds(config: ComparisonConfig, seeds: Sequence[int]) -> ComparisonConfig:
    """The same comparison with other seeds."""
    return replace(config, seeds=tuple(seeds))


def to_plain(config: RunConfig | ComparisonConfig) -> dict[str, Any]:
    """The configuration as plain data, from which `load_config` makes an equal one."""
    data = asdict(config)
    data["budget"] = _given(config.budget)
    container = OmegaConf.to_container(OmegaConf.create(data))
    assert isinstance(container, dict)
    return {str(k): v for k, v in container.items()}


def _given(budget: Budget) -> dict[str, Any]:
    return {k: v for k, v in vars(budget).items() if v is not None}


def save(config: RunConfig | ComparisonConfig, path: Path) -> None:
    """Write the configuration as YAML, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(OmegaConf.to_yaml(OmegaConf.create(to_plain(config))))
    os.replace(temporary, path)


def differences(left: RunConfig | ComparisonConfig, right: RunConfig | ComparisonConfig) -> list[tuple[str, Any, Any]]:
    """(dotted field, value in `left`, value in `right`) wherever two configurations differ."""
    a, b = flat(to_plain(left)), flat(to_plain(right))
    return [(name, a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)]


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """Dotted field -> value; entries of the list of controllers go by their labels, other lists are values."""
    if isinstance(data, list) and path == "controllers":
        data = {yaml_files.label_of(entry): entry[yaml_files.label_of(entry)] for entry in data}
    if not isinstance(data, Mapping) or not data:
        return {path: data}
    return {k: v for key, value in data.items() for k, v in flat(value, f"{path}.{key}" if path else str(key)).items()}
