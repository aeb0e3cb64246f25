"""The fields of a PROPEL study's YAML file. Importing and checking needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf

from halfway.curriculum import UserError, require
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.components import Component, component, one_of, plain
from halfway.curriculum.support.validation import Reader, construct
from halfway.experiments.config import yaml_files
from halfway.experiments.config.design import flatten
from halfway.experiments.config.run import (
    CHARACTERS,
    check_precision,
    is_label,
    name_of,
    planned_run,
    require_name,
    require_seeds,
)
from halfway.trainers.policy import ModelOptions
from halfway.trainers.propel.domains import DOMAINS
from halfway.trainers.propel.domains.domain import Domain
from halfway.trainers.propel.probes.probe_options import ActivationOptions, SweepOptions
from halfway.trainers.propel.propel_options import (
    Band,
    CorpusOptions,
    ExportOptions,
    GeneratorEvaluation,
    GeneratorTraining,
    RewardOptions,
)
from halfway.trainers.rollouts.rollout_options import RolloutOptions

BASE = "base"  # the name of the untrained arm
UNTRAINED = "this model is not trained; give 0"


@dataclass(frozen=True)
class GeneratorOptions:
    """The base generator; a frozen copy of it is the reference.

    Attributes:
        model: the model's options, as in a run.
        rollouts: options of sampling in all stages; `num_rollouts` is the group size in training.
    """

    model: ModelOptions
    rollouts: RolloutOptions = field(default_factory=lambda: RolloutOptions(num_rollouts=4))


@dataclass(frozen=True)
class SolverOptions:
    """The solver whose frontier the tasks should meet.

    Attributes:
        rollouts: options of sampling; `num_rollouts` is K, the trials per task.
        band: the pass rates of useful tasks.
    """

    model: ModelOptions
    rollouts: RolloutOptions = field(default_factory=RolloutOptions)
    band: Band = field(default_factory=Band)


@dataclass(frozen=True)
class OracleOptions:
    """A model that gives the problems of an open domain their reference answers.

    Attributes:
        rollouts: options of sampling; `num_rollouts` is its attempts per problem. A truncated response is no answer.
    """

    model: ModelOptions
    rollouts: RolloutOptions = field(default_factory=lambda: RolloutOptions(num_rollouts=2))


def _oracles(value: Any, path: str) -> dict[str, OracleOptions]:
    require(isinstance(value, Mapping), path, value, f"give {ORACLES.wanted}")
    return {str(name): construct(OracleOptions, fields, f"{path}.{name}") for name, fields in value.items()}


ORACLES = Reader(_oracles, "names, each with the fields of an oracle")


@dataclass(frozen=True)
class ArmConfig:
    """Settings of an arm: the study's, with the arm's own changes."""

    generator: GeneratorOptions
    reward: RewardOptions
    training: GeneratorTraining


@dataclass(frozen=True, kw_only=True)
class PropelConfig:
    """A study: for every seed one corpus, one sweep, and arms that each train a generator.

    Attributes:
        name: name of the study; all files go to `output`/`name`, one folder per seed.
        domain: a registered domain, in YAML `name` or `{name: options}`.
        oracles: name -> an oracle, for a domain whose tasks come without an answer. An answer on which all oracles
            agree becomes the task's; otherwise the task is invalid.
        seeds: seeds; each repeats all stages: corpus, probes, training and evaluation.
        reward: the reward of every arm that does not change it.
        arms: arm -> the fields of generator, reward and training that it changes.
        threads: CPU threads of torch; 0 = torch's choice.
    """

    name: str
    domain: Annotated[Component[Domain[Any]], one_of(DOMAINS)] = field(
        default_factory=lambda: component("sums", DOMAINS, "domain")
    )
    generator: GeneratorOptions
    solver: SolverOptions
    activations: ActivationOptions
    oracles: Annotated[dict[str, OracleOptions], ORACLES] = field(default_factory=dict)
    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    sweep: SweepOptions = field(default_factory=SweepOptions)
    reward: RewardOptions = field(default_factory=RewardOptions)
    training: GeneratorTraining = field(default_factory=GeneratorTraining)
    evaluation: GeneratorEvaluation = field(default_factory=GeneratorEvaluation)
    export: ExportOptions = field(default_factory=ExportOptions)
    arms: dict[str, dict[str, Any]] = field(default_factory=lambda: {"probe": {}})
    seeds: tuple[int, ...] = (0,)
    output: str = "runs"
    threads: int = 0

    def __post_init__(self) -> None:
        require_name(self.name)
        require_seeds(self.seeds)
        require(self.threads >= 0, "threads", self.threads, "give 0 (= torch's choice) or more")
        require(self.solver.model.lora.rank == 0, "solver.model.lora.rank", self.solver.model.lora.rank, UNTRAINED)
        require(len(self.arms) > 0, "arms", self.arms, "name at least one arm")
        for arm in self.arms:
            named = is_label(arm) and arm != BASE
            require(named, "arms", arm, f"{CHARACTERS}, and not {BASE!r}")

    @property
    def folder(self) -> Path:
        """The study's directory."""
        return Path(self.output) / self.name

    def sampled(self) -> "dict[str, GeneratorOptions | SolverOptions | OracleOptions]":
        """All sampled models, by their path in the file."""
        return {
            "generator": self.generator,
            "solver": self.solver,
            **{f"oracles.{name}": oracle for name, oracle in self.oracles.items()},
            **{f"arms.{name}.generator": self.arm(name).generator for name in self.arms},
        }

    def arm(self, name: str) -> ArmConfig:
        """The settings of one arm. Raises UserError with the arm's name in front of the message."""
        own = plain(ArmConfig(self.generator, self.reward, self.training))
        try:
            return construct(ArmConfig, yaml_bases.merge(own, self.arms[name]))
        except UserError as error:
            raise error.within(f"arms.{name}.") from None


def is_study(path: Path) -> bool:
    """True if a YAML file, even an invalid one, is a study: only a study, or its base, has a domain."""
    return yaml_files.is_study(yaml_files.read(path))


def load_study(path: Path, overrides: Sequence[str] = ()) -> PropelConfig:
    """Load the study in a YAML file, checked completely.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    raw = yaml_files.read(path)
    if not yaml_files.is_study(raw):
        raise UserError(f"{path}: has no domain, so it is not a study of task generators; {_remedy(raw, path)}")
    raw = yaml_bases.merge(raw.pop("base", {}), raw)
    return study_config({"name": name_of(path), **yaml_bases.merge(raw, yaml_files.parse_overrides(overrides))})


def _remedy(raw: Mapping[str, Any], path: Path) -> str:
    """The remedy for a file that is not a study."""
    if "arms" in raw and "base" in raw:
        return f"use `halfway compare {path}`"
    return f"use `halfway run {path}`" if "problems" in raw or "controllers" in raw else "add `domain:`, such as sums"


def study_config(raw: Mapping[str, Any]) -> PropelConfig:
    """Make a study from a plain mapping, checked completely."""
    raw = yaml_files.interpolate(raw)
    require(isinstance(raw.get("arms") or {}, Mapping), "arms", raw.get("arms"), "give a mapping from names to changes")
    raw["arms"] = {arm: changes or {} for arm, changes in (raw.get("arms") or {"probe": {}}).items()}
    config = construct(PropelConfig, raw)
    _check_oracles(config)
    _check_arms(config)
    for where, sampled in config.sampled().items():
        try:
            sampled.rollouts.engine.part.check(planned_run(sampled.model, sampled.rollouts))
        except UserError as error:
            raise UserError(f"{where}.{error}") from None
    return config


def _check_oracles(config: PropelConfig) -> None:
    name = config.domain.name
    if config.domain.part.open:
        require(len(config.oracles) > 0, "oracles", config.oracles, f"tasks of {name} have no answer; name two models")
    else:
        require(not config.oracles, "oracles", sorted(config.oracles), f"{name} has its own answers; leave them out")
    for label, oracle in config.oracles.items():
        require(is_label(label), "oracles", label, CHARACTERS)
        rank = oracle.model.lora.rank
        require(rank == 0, f"oracles.{label}.model.lora.rank", rank, UNTRAINED)


def _check_arms(config: PropelConfig) -> None:
    for name in config.arms:
        arm = config.arm(name)
        if arm.training.steps:
            check_precision(arm.generator.model, arm.training.learner)
        judged = arm.reward.oracles or bool(config.oracles)
        require(judged, f"arms.{name}.reward.oracles", False, "give true; this study defines no oracles")


def prepare(config: PropelConfig) -> None:
    """Make a study's directory, or accept an existing one.

    Seeds and arms may be added later, and pools of any size may be exported.

    Raises:
        UserError: if the directory has a study with other settings.
    """
    file = config.folder / "config.yaml"
    if file.exists():
        old = plain(load_study(file))
        free = ("seeds.", "export.", *(f"arms.{arm}." for arm in config.arms if arm not in old["arms"]))
        config = study_config({**plain(config), "arms": {**old["arms"], **config.arms}})
        before, now = flatten(old), flatten(plain(config))
        for name in {**before, **now}:
            if before.get(name) != now.get(name) and not f"{name}.".startswith(free):
                raise UserError(
                    f"{name}: {config.folder} was started with {before.get(name)!r}, not {now.get(name)!r}; "
                    "give another name=..."
                )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, OmegaConf.to_yaml(OmegaConf.create(plain(config))))
