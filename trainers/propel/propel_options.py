"""Options of corpus, rewards, generator training and its evaluation: frozen values, without heavy imports."""

import math
from dataclasses import dataclass, field
from typing import Literal

from halfway.curriculum import require
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.propel.domains.diversity import Units


@dataclass(frozen=True)
class Band:
    """The pass rates of useful tasks, ends included. PROPEL, equation 1.

    Attributes:
        low, high: lowest and highest pass rate; with 8 attempts, 1/8 and 3/8 mean 1 to 3 passes.
    """

    low: float = 0.125
    high: float = 0.375

    def __post_init__(self) -> None:
        rising = 0 <= self.low <= self.high <= 1 and self.high - self.low < 1
        remedy = "give two increasing pass rates that leave some outside"
        require(rising, "solver.band", (self.low, self.high), remedy)

    def holds(self, passed: int, attempts: int) -> bool:
        """True if this many passes lie in the band."""
        return self.low - 1e-9 <= passed / attempts <= self.high + 1e-9

    def counts(self, attempts: int) -> tuple[int, int]:
        """Fewest and most passes in the band."""
        return math.ceil(self.low * attempts - 1e-9), math.floor(self.high * attempts + 1e-9)


@dataclass(frozen=True)
class CorpusOptions:
    """The pool of labelled tasks.

    Attributes:
        generations: texts written by the base generator, valid or not.
        chunk: texts per file; a killed run repeats the chunk it was working on.
    """

    generations: int = 2000
    chunk: int = 500

    def __post_init__(self) -> None:
        for name in ("generations", "chunk"):
            require(vars(self)[name] >= 1, f"corpus.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class ExportOptions:
    """The pool of tasks for solver training.

    Attributes:
        texts: number of texts that an arm's generator writes; the pool has the valid ones, each problem once.
    """

    texts: int = 1000

    def __post_init__(self) -> None:
        require(self.texts >= 1, "export.texts", self.texts, "give at least 1")


@dataclass(frozen=True)
class RewardOptions:
    """Options of a generated task's reward. PROPEL, equations 3 and 4 and section 6.

    Attributes:
        kind: "probe_only" = the probe's probability, valid or not; "soft" = if valid, the probability cut to 0.1..0.95;
            "hard" = if valid, the logit; "solver" = if valid, 1 if the solver's pass rate lies in the band, else 0. The
            last rolls the solver out: the expensive baseline that a probe replaces.
        ensemble: number of probes, each at its own site; the lowest logit counts (worst case).
        invalid: reward of a text that is not a valid task; an empty text always gets it.
        margin: if above 0, an invalid text gets the lowest valid reward of its batch minus this, if that is lower.
            Without it, a logit below `invalid` ranks a valid task below an invalid one.
        calibrated: whether to divide logits by the probe's temperature.
        oracles: in an open domain, whether a text is valid only if all oracles agree on its answer. If false, the
            domain's rules alone decide during training and in the choice of a checkpoint. PROPEL's table 12 says true,
            its table 4 false.
    """

    kind: Literal["probe_only", "soft", "hard", "solver"] = "hard"
    ensemble: int = 1
    invalid: float = -0.2
    margin: float = 0.0
    calibrated: bool = False
    oracles: bool = True

    def __post_init__(self) -> None:
        require(self.ensemble >= 1, "reward.ensemble", self.ensemble, "give at least 1")
        require(self.margin >= 0, "reward.margin", self.margin, "give 0 (= off) or more")
        answered = self.kind != "solver" or self.oracles
        require(answered, "reward.oracles", self.oracles, "give true; the solver's reward needs answers")
        probes = self.kind != "solver" or self.ensemble == 1
        require(probes, "reward.kind", self.kind, "the solver's reward has no probes; leave ensemble out")


@dataclass(frozen=True)
class CheckpointRule:
    """The rule that chooses a checkpoint of a generator's training: the last one without an alert.

    Every kept checkpoint writes the same number of texts. If all have alerts, the rule takes the last one with the
    fewest, and the record says so. No solver runs.

    Attributes:
        samples: number of texts per checkpoint.
        min_valid: minimum share of valid texts.
        max_top_topic: largest share of the commonest topic.
        min_distinct: minimum Distinct-3, as a share of the base generator's.
    """

    samples: int = 256
    min_valid: float = 0.5
    max_top_topic: float = 1.0
    min_distinct: float = 0.0

    def __post_init__(self) -> None:
        require(self.samples >= 1, "training.rule.samples", self.samples, "give at least 1")
        for name in ("min_valid", "max_top_topic", "min_distinct"):
            require(0 <= vars(self)[name] <= 1, f"training.rule.{name}", vars(self)[name], "give a share from 0 to 1")


@dataclass(frozen=True)
class GeneratorTraining:
    """Training of the generator by GRPO.

    Attributes:
        steps: learner steps; 0 = the arm's generator is evaluated untrained.
        groups: groups per step; their size is `generator.rollouts.num_rollouts`.
        prompts: number of generator prompts to draw; equal prompts count once, so a domain may have only one.
        save_every: steps between checkpoints; all are kept.
        learner: as in any run.
        rule: the rule that chooses the checkpoint.
    """

    steps: int = 50
    groups: int = 64
    prompts: int = 1024
    save_every: int = 10
    learner: LearnerOptions = field(default_factory=LearnerOptions)
    rule: CheckpointRule = field(default_factory=CheckpointRule)

    def __post_init__(self) -> None:
        require(self.steps >= 0, "training.steps", self.steps, "give 0 (= no training) or more")
        for name in ("groups", "prompts", "save_every"):
            require(vars(self)[name] >= 1, f"training.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class GeneratorEvaluation:
    """Evaluation of a generator by the solver.

    Attributes:
        generations: number of fresh texts, the same for every arm.
        units: units of the n-grams in Self-BLEU-3 and Distinct-3.
        curve: texts per kept checkpoint to evaluate as well, for a curve over the training; 0 = no curve.
    """

    generations: int = 512
    units: Units = "words"
    curve: int = 0

    def __post_init__(self) -> None:
        require(self.generations >= 2, "evaluation.generations", self.generations, "give at least 2")
        require(self.curve != 1 and self.curve >= 0, "evaluation.curve", self.curve, "give 0 (= none), or at least 2")
