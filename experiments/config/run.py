"""The fields of a run. Importing and checking needs neither torch nor MLflow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from halfway.controllers.chains import MEMBERS, Member, check_chain
from halfway.curriculum import Chain, require
from halfway.curriculum.environments.contract import Environment
from halfway.curriculum.registries import ENVIRONMENTS, SOURCES
from halfway.curriculum.support.components import NONE, Component, at_most_one_of, component, one_of, plain
from halfway.curriculum.support.errors import each
from halfway.curriculum.support.validation import construct
from halfway.curriculum.tasks.sources import Source
from halfway.experiments.config import yaml_files
from halfway.experiments.config.paths import PROBLEM_SOURCES, model_config, openable
from halfway.trainers.distributed.cluster import ClusterOptions, ShapeOptions
from halfway.trainers.engines.part import PlannedRun
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, EvaluationOptions, FillOptions
from halfway.trainers.policy import ModelOptions
from halfway.trainers.rollouts.rollout_options import RolloutOptions


@dataclass(frozen=True)
class ProblemOptions:
    """Options of the problem source.

    Attributes:
        source: a registered source, in YAML `name` or `{name: options}`.
        train: number of training problems; null = all that are not held out (see `evaluation.problems`), not allowed
            for a source that generates problems.
        seed: seed of a generating source, and of the choice of held-out problems. It is apart from the seed of the run,
            so that all runs use the same problems.
        also: a further source of training problems, such as easier ones; none is held out, and those that are also in
            the main source are dropped. Empty = none.
        also_train: number of problems of the further source; null = all, not allowed for a source that generates
            problems.
        generated: a source for a controller that proposes generated problems; usually `{pool: {path: ...}}`, a file
            written by `halfway propel export`. Problems that are also in the main source are dropped. Empty = none.
    """

    source: Annotated[Component[Source], one_of(SOURCES)]
    train: int | None = None
    seed: int = 0
    also: Annotated[Component[Source], at_most_one_of(SOURCES)] = NONE
    also_train: int | None = None
    generated: Annotated[Component[Source], at_most_one_of(SOURCES)] = NONE

    def __post_init__(self) -> None:
        require(self.train is None or self.train >= 1, "problems.train", self.train, "give at least 1, or null for all")
        more = self.also_train is None or (self.also_train >= 1 and bool(self.also))
        require(more, "problems.also_train", self.also_train, "name a source in problems.also, and give at least 1")
        require(self.seed >= 0, "problems.seed", self.seed, "give 0 or more")

    @property
    def opened(self) -> "ProblemOptions":
        """The same options, with paths that can be opened from the current folder."""
        sources = {name: getattr(self, name) for name in PROBLEM_SOURCES}
        return replace(self, **{name: replace(source, part=openable(source.part)) for name, source in sources.items()})


@dataclass(frozen=True)
class TrackingOptions:
    """Trackers that keep a copy of the records.

    Attributes:
        mlflow: true = log to MLflow.
        wandb: true = log to Weights & Biases: into `output`, for `wandb sync`, unless WANDB_MODE is set, for example to
            "online". Needs the extra wandb.
        trackio: true = log to Trackio, into `output` unless TRACKIO_DIR or TRACKIO_SPACE_ID is set. Needs the extra
            trackio.
        experiment: name of the experiment in MLflow, and of the project elsewhere.
        uri: tracking store of MLflow: an SQLite file, relative to `output`, or any MLflow tracking URI (with "://"),
            which needs consent, such as HALFWAY_ACCEPT=tracking:HOST.
    """

    mlflow: bool = True
    wandb: bool = False
    trackio: bool = False
    experiment: str = "halfway"
    uri: str = "mlflow.db"


SINGLE_TURN = "single_turn"
REQUIRED_SIZES = frozenset(
    {"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size"}
)
"""Fields of a model's config.json from which its memory is estimated."""


def single_turn() -> Component[Environment[Any]]:
    """The environment of tasks with one turn."""
    return component(SINGLE_TURN, ENVIRONMENTS, "environment")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One complete training run: equal configurations give equal decision logs and weights.

    Attributes:
        name: the run directory is `output`/`name`.
        controllers: members of the chain in order; in YAML, each is `name`, `{name: options}`, or `{label: {use: name,
            ...}}`.
        environment: a registered environment, in YAML `name` or `{name: options}`.
        threads: CPU threads of torch; 0 = torch's default. Resuming with another number may change the last digits.
        cluster: the machines for the run.
    """

    name: str
    controllers: Annotated[tuple[Member, ...], MEMBERS]
    problems: ProblemOptions
    environment: Annotated[Component[Environment[Any]], one_of(ENVIRONMENTS)] = field(default_factory=single_turn)
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

    @cached_property
    def chain(self) -> Chain:
        """The chain of the controllers. Raises UserError if a member could never act."""
        return check_chain(self.controllers)

    @cached_property
    def shape(self) -> ShapeOptions | None:
        """The model's sizes from `cluster.model`, otherwise from the model's folder; None if neither gives them."""
        if self.cluster.model.known:
            return self.cluster.model
        sizes = model_config(self.model.path)
        names = ShapeOptions.__dataclass_fields__
        if not set(sizes) >= REQUIRED_SIZES:
            return None
        sizes = {"num_key_value_heads": sizes["num_attention_heads"], **sizes}
        return ShapeOptions(**{k: v for k, v in sizes.items() if k in names and v is not None})

    def planned(self, shape: ShapeOptions | None = None) -> PlannedRun:
        """Facts about the run for the engine."""
        return planned_run(self.model, self.rollouts, self.cluster, shape)


def planned_run(
    model: ModelOptions,
    rollouts: RolloutOptions,
    cluster: ClusterOptions | None = None,
    shape: ShapeOptions | None = None,
) -> PlannedRun:
    """Facts about a run for the engine, before the run is built.

    Args:
        shape: sizes of the model, if known.
    """
    lengths = (rollouts.max_response_tokens, rollouts.max_sequences)
    return PlannedRun(model.path, model.dtype, *lengths, cluster or ClusterOptions(), shape)


def parse_run_config(raw: Mapping[str, Any]) -> RunConfig:
    """Parse a plain mapping as a run, and check it completely."""
    config = construct(RunConfig, yaml_files.interpolate(raw))
    each(
        [
            lambda: check_needs(config),
            lambda: check_precision(config.model, config.learner),
            lambda: config.rollouts.engine.part.check(config.planned()),
            lambda: check_staleness(config) if config.rollouts.staleness else None,
            lambda: check_workers(config),
        ]
    )
    return config


def check_needs(config: RunConfig) -> None:
    """Raise UserError if a controller needs something that no part of the run provides."""
    pool = plain(config.problems.generated)
    for label, member in config.chain.members.items():
        remedy = f"controllers.{label} needs the values of a critic; use learner.advantage=gae, or change its options"
        valued, advantage = "values" in member.needs, config.learner.advantage
        require(not valued or advantage == "gae", "learner.advantage", advantage, remedy)
        remedy = f"controllers.{label} proposes generated problems; give a pool, such as {{pool: {{path: ...}}}}"
        require("generated" not in member.needs or bool(pool), "problems.generated", pool, remedy)
    remedy = "no controller proposes generated problems; list probe before the one that chooses problems, or remove it"
    require("generated" in config.chain.claims or not pool, "problems.generated", pool, remedy)


def check_workers(config: RunConfig) -> None:
    """Raise UserError if Ray's actors cannot reach the engine."""
    engine, workers = config.rollouts.engine, config.rollouts.workers
    remedy = "only servers are reached from other hosts: use rollouts.engine=vllm_servers with sleep=false, or process"
    require(workers == "process" or engine.part.samples_across_syncs, "rollouts.workers", workers, remedy)


def check_staleness(config: RunConfig) -> None:
    """Raise UserError if staleness is set and some part cannot sample ahead or train late."""
    staleness, engine, learner, fill = config.rollouts.staleness, config.rollouts.engine, config.learner, config.fill
    splits = engine.part.can_split
    remedy = "it cannot sample while the learner updates; use transformers, or vllm_servers with sleep=false"
    require(splits, "rollouts.staleness", staleness, f"rollouts.engine={engine.name}: {remedy}; or give 0")
    changing = config.rollouts.in_flight
    remedy = "weights change under rollouts only with rollouts.engine=vllm_servers; use that, or false"
    require(not changing or engine.part.samples_across_syncs, "rollouts.in_flight", changing, remedy)
    corrected = learner.mismatch != "none" or learner.old_logprobs == "engine"
    remedy = "trains on samples of older weights, which need a correction; use token_truncated or token_masked"
    require(corrected, "learner.mismatch", learner.mismatch, f"rollouts.staleness={staleness} {remedy}")
    for label, member in config.chain.members.items():
        needs = {"rounds": "extends groups round by round", "values": "needs values of tokens as they are sampled"}
        for need, what in needs.items():
            remedy = f"controllers.{label} {what}; give 0, or leave it out"
            require(need not in member.needs, "rollouts.staleness", staleness, remedy)
    plain_rounds = fill.request == "fixed" and fill.first_request == fill.groups and fill.surplus == "discard"
    what = "rounds are as large as what is missing and leave no surplus"
    remedy = f"{what}; leave fill.request, its size and fill.surplus at their defaults, or give 0"
    require(plain_rounds, "rollouts.staleness", staleness, remedy)


def check_precision(model: ModelOptions, learner: LearnerOptions) -> None:
    """Raise UserError if the run would train bfloat16 weights directly, where most updates of usual size round to zero.

    DeepSpeed keeps float32 copies of such weights, and adapters are in float32.
    """
    float32 = model.dtype == "float32" or model.lora.rank > 0 or learner.deepspeed.zero_stage is not None
    remedy = "use learner.deepspeed.zero_stage=2, model.lora.rank=16, or float32"
    require(float32, "model.dtype", model.dtype, f"small steps are lost in bfloat16 weights; {remedy}")


CHARACTERS = "use letters, digits, '.', '_' and '-'"


def require_name(name: str) -> None:
    """Raise UserError unless `name` is a path below the folder `output`, such as "study/arm"."""
    require(re.fullmatch(r"[\w.-]+(/[\w.-]+)*", name) is not None, "name", name, CHARACTERS)
    require(not {".", ".."} & set(name.split("/")), "name", name, "stay inside the folder `output`")


def name_of(path: Path | str) -> str:
    """The default name of a configuration: the stem of its file, with '-' for invalid characters."""
    return re.sub(r"[^\w.-]+", "-", Path(path).stem).strip("-.") or "run"


def is_label(name: str) -> bool:
    """True if this is a valid name of an arm or an oracle, which also names a folder."""
    return re.fullmatch(r"[\w.-]+", name) is not None and name not in (".", "..")


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise UserError unless there is at least one seed, all differ, and none is negative."""
    unique = len(set(seeds)) == len(seeds) > 0
    require(unique and min(seeds) >= 0, "seeds", list(seeds), "give different integers of at least 0")
