"""Options of rollouts: frozen values, without heavy imports."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from halfway.curriculum import require
from halfway.curriculum.support.components import WANTED, Component, component
from halfway.curriculum.support.validation import Reader
from halfway.trainers.engines import ENGINES
from halfway.trainers.engines.part import EnginePart

DEFAULT_ENGINE = "transformers"
GAP_FLOAT32, GAP_ROUNDED = 1e-3, 0.05


def _engine(value: object, path: str = "rollouts.engine") -> Component[EnginePart]:
    return component(value or DEFAULT_ENGINE, ENGINES, path)


ENGINE = Reader(_engine, WANTED, ENGINES)


@dataclass(frozen=True)
class RolloutOptions:
    """How the policy is sampled.

    Attributes:
        engine: a registered engine, in YAML `name` or `{name: options}`; empty = transformers.
        num_rollouts: N, rollouts per group.
        temperature: divides the logits before sampling; log-probabilities belong to the tempered distribution.
        max_response_tokens: limit on all response tokens of an episode, replayed tokens included.
        max_context_tokens: limit on all tokens of an episode: prompt, responses and observations. An episode that
            reaches it is truncated and has failed; 0 = no limit.
        max_diverged: largest share of replays that may differ from the record; beyond it the run stops, from the
            twentieth replay on. A request whose replay differs starts from the beginning of the problem instead.
        max_seconds: time limit of a rollout; an unfinished rollout then fails and is counted as late. It is checked
            between turns and while tools run, and makes outcomes depend on timing. 0 = no limit.
        max_sequences: maximum number of sequences decoded at once.
        sync_tolerance: largest mean difference, in nats, between the log-probabilities of engine and learner on tokens
            after fixed contexts, checked after a weight sync; beyond it the run stops. 0 = no check. null = 0.001 in
            float32, where they agree to 1e-4, and 0.05 in other types, where rounding costs 0.0015 and single tokens
            differ by up to 0.6 (135 M parameters); with null only the first five syncs and every tenth are checked, and
            none if the engine samples from the learner's own module.
        in_flight: with staleness: true = rollouts in progress continue with the new weights, so no update waits for the
            longest rollout of a batch. Each token records the version of the weights that sampled it. Needs the engine
            `vllm_servers`.
        staleness: batches that may be sampled ahead, in a separate process, while the learner updates. Groups that
            train are then up to this many updates old and need a correction (`learner.mismatch`). 0 = sampling and
            updates take turns. 1 lets them overlap if every group trains; use more if zero-variance groups are replaced
            (`fill.policy: refill`).
        workers: who asks the engine, judges, and holds the tokens meanwhile: "process" = this run's own processes;
            "ray" = actors of a Ray cluster, one on each node, with its object store. Needs the engine `vllm_servers`.
        payloads: where the workers of "process" keep tokens and their log-probabilities until they are trained on:
            "memory", or "files" = in the run's folder, which all hosts must share.
    """

    engine: Annotated[Component[EnginePart], ENGINE] = field(default_factory=lambda: _engine(""))
    num_rollouts: int = 8
    temperature: float = 1.0
    max_response_tokens: int = 128
    max_context_tokens: int = 0
    max_diverged: float = 0.2
    max_seconds: float = 0.0
    max_sequences: int = 512
    sync_tolerance: float | None = None
    staleness: int = 0
    in_flight: bool = False
    workers: Literal["process", "ray"] = "process"
    payloads: Literal["memory", "files"] = "memory"

    def largest_gap(self, policy_dtype: str) -> float:
        """Largest mean difference of engine and learner with equal weights, in nats per token."""
        if self.sync_tolerance:
            return self.sync_tolerance
        exact = policy_dtype == self.engine.part.weight_dtype(policy_dtype) == "float32"
        return GAP_FLOAT32 if exact else GAP_ROUNDED

    def __post_init__(self) -> None:
        number = self.num_rollouts
        require(number >= 2, "rollouts.num_rollouts", number, "give at least 2; a group of 1 teaches nothing")
        require(self.temperature > 0, "rollouts.temperature", self.temperature, "give a positive number")
        limit = self.max_response_tokens
        require(limit >= 2, "rollouts.max_response_tokens", limit, "give at least 2 tokens")
        context = self.max_context_tokens
        require(context >= 0, "rollouts.max_context_tokens", context, "give a number of tokens, or 0 for no limit")
        diverged = self.max_diverged
        require(0 <= diverged <= 1, "rollouts.max_diverged", diverged, "give a share from 0 to 1")
        seconds = self.max_seconds
        require(seconds >= 0, "rollouts.max_seconds", seconds, "give a number of seconds, or 0 for no limit")
        require(self.max_sequences >= 1, "rollouts.max_sequences", self.max_sequences, "give at least 1")
        tolerance = self.sync_tolerance
        chosen = tolerance is None or tolerance >= 0
        require(chosen, "rollouts.sync_tolerance", tolerance, "give 0 (= no check), a number of nats, or null")
        require(0 <= self.staleness <= 8, "rollouts.staleness", self.staleness, "give a number of batches from 0 to 8")
        one = self.workers == "process" or self.payloads == "memory"
        require(one, "rollouts.payloads", self.payloads, "leave it out: Ray's workers use its object store")
        ahead = not self.in_flight or self.staleness > 0
        remedy = "weights change under rollouts only with staleness of 1 to 8"
        require(ahead, "rollouts.in_flight", self.in_flight, remedy)
