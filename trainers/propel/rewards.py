"""Rewards of generated tasks. PROPEL, equations 3 and 4.

A reward is a function of the rendered task (the generator's prompt and its text) and of a frozen reference model with
its probes, not of the policy's weights. It depends on the batch's other tasks only through `RewardOptions.margin`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import expit
from torch import nn

from halfway.curriculum import Stream
from halfway.trainers.propel.probes.activations import Features, Reading, read
from halfway.trainers.propel.probes.heads import Probe, Site
from halfway.trainers.propel.probes.probe_options import ActivationOptions
from halfway.trainers.propel.probes.scores import Floats
from halfway.trainers.propel.probes.splits import Labels
from halfway.trainers.propel.propel_options import RewardOptions
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Written
from halfway.trainers.rollouts.chat import Prompts, Tokenizer

SOFT_BOUNDS = (0.1, 0.95)


class Reward(Protocol):
    """Reward of the task generator: scores the texts that it writes."""

    @property
    def trials(self) -> int:
        """Solver trials that one valid task costs."""
        ...

    def __call__(self, written: Sequence[Written], stream: Stream) -> Floats:
        """Score each text. Only a reward that rolls out a solver draws from the stream."""
        ...


@dataclass(frozen=True)
class Reader:
    """A frozen reference model that reads tasks.

    Attributes:
        fingerprint: the model's fingerprint, see `halfway.trainers.propel.probes.activations.model_fingerprint`.
        max_tokens, batch_tokens: as in `ActivationOptions`.
        chat, system: see `wrap` and `system` of `halfway.trainers.rollouts.chat.Prompts`.
    """

    model: nn.Module
    tokenizer: Tokenizer
    fingerprint: str
    max_tokens: int
    batch_tokens: int
    chat: bool = False
    system: str = ""

    def reading(self, identity: str, prompt: str, text: str) -> Reading:
        """Tokenize a task with the reference's own tokenizer: the prompt as context, then the text.

        The end token is left out, so that last_token is the last token of the task.
        """
        context_P = Prompts(self.tokenizer, self.chat, self.system).of_text(prompt)
        text_T = np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)
        return Reading(identity, np.concatenate([context_P, text_T]), len(context_P))

    def logits(self, written: Sequence[Written], probes: Sequence[tuple[Probe, Site]], calibrated: bool) -> Floats:
        """The logit of each probe (rows) for each text (columns)."""
        readings = [self.reading(str(i), one.prompt, one.text) for i, one in enumerate(written)]
        layers = tuple(sorted({site.layer for _, site in probes}))
        poolings = tuple(sorted({site.pooling for _, site in probes}))
        features = read(self.model, readings, self._options(layers, poolings))
        return np.stack([probe.logits(features[site.layer, site.pooling], calibrated) for probe, site in probes])

    def features(self, tasks: Sequence[tuple[str, str]], site: Site) -> Features:
        """The vector of each (prompt, text) at one site."""
        readings = [self.reading(str(i), prompt, text) for i, (prompt, text) in enumerate(tasks)]
        return read(self.model, readings, self._options((site.layer,), (site.pooling,)))[site.layer, site.pooling]

    def _options(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> ActivationOptions:
        return ActivationOptions(layers, poolings, self.max_tokens, self.batch_tokens)


@dataclass(frozen=True)
class ProbeReward:
    """Scores by probes on the reference's activations; with several, by the lowest logit."""

    reader: Reader
    probes: tuple[tuple[Probe, Site], ...]
    options: RewardOptions
    trials: ClassVar[int] = 0

    def __call__(self, written: Sequence[Written], stream: Stream) -> Floats:
        valid_N = np.asarray([one.valid for one in written], np.bool_)
        # Invalid texts are read only if the reward needs it. An empty text has no tokens to read.
        asked_N = np.asarray([bool(one.text) for one in written]) & (valid_N | (self.options.kind == "probe_only"))
        logits_N = np.full(len(written), np.nan)
        if asked_N.any():
            asked = [one for one, wanted in zip(written, asked_N, strict=True) if wanted]
            logits_N[asked_N] = self.reader.logits(asked, self.probes, self.options.calibrated).min(0)
        return shape(logits_N, valid_N, self.options)


@dataclass(frozen=True)
class SolverReward:
    """Rolls out the solver on every valid task: 1 in the band, 0 outside."""

    solver: Solver
    options: RewardOptions

    @property
    def trials(self) -> int:
        return self.solver.attempts

    def __call__(self, written: Sequence[Written], stream: Stream) -> Floats:
        valid = [one for one in written if one.valid]
        passed = iter(self.solver.passes([one.problem for one in valid], stream))
        invalid = self.options.invalid
        return np.asarray([float(self.solver.useful(next(passed))) if one.valid else invalid for one in written])


def shape(logits_N: Floats, valid_N: Labels, options: RewardOptions) -> Floats:
    """Compute rewards from logits and validity; NaN = a text that was not read."""
    if options.kind == "probe_only":
        return np.where(np.isnan(logits_N), options.invalid, expit(logits_N))
    value_N = np.clip(expit(logits_N), *SOFT_BOUNDS) if options.kind == "soft" else logits_N
    floor = options.invalid
    if options.margin > 0 and valid_N.any():
        floor = min(floor, float(value_N[valid_N].min()) - options.margin)
    rewards_N: Floats = np.where(valid_N, value_N, floor)
    return rewards_N


def below_invalid(rewards_N: Floats, valid_N: Labels, options: RewardOptions) -> float:
    """Share of the valid tasks whose reward is below an invalid text's; 0 without valid tasks, or if the reward
    ignores validity.

    If the batch has no invalid text, the reward that one would get is used.
    """
    if not valid_N.any() or options.kind == "probe_only":
        return 0.0
    floor = options.invalid
    if not valid_N.all():
        floor = float(rewards_N[~valid_N].max())
    elif options.margin > 0:
        floor = min(floor, float(rewards_N.min()) - options.margin)
    return float((rewards_N[valid_N] < floor).mean())
