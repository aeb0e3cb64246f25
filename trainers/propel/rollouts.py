"""Generator training as an ordinary run: rollouts are tasks, and rewards are real numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import Group, Problem, ProblemSet, Request, Stream
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.contracts import Learner, Rollouts
from halfway.trainers.propel.domains.diversity import top_share
from halfway.trainers.propel.domains.domain import Domain
from halfway.trainers.propel.domains.oracles import Panel
from halfway.trainers.propel.propel_options import RewardOptions
from halfway.trainers.propel.rewards import Reward, below_invalid
from halfway.trainers.propel.writing import Written, judge
from halfway.trainers.rollouts.chat import Tokenizer


@dataclass(frozen=True)
class Writing(Environment[Problem]):
    """An environment in which an attempt is one text. `RewardedRollouts` judges the texts of a batch at once."""

    unit = "tokens"
    max_turns = 1

    def start(self, problems: Sequence[Problem]) -> list[Problem]:
        return list(problems)

    def step(self, episodes: Sequence[Problem], responses: Sequence[str]) -> list[StepResult[Problem]]:
        return [StepResult(episode, success=True) for episode in episodes]


def prompt_set(domain: Domain[Any], wanted: int, stream: Stream) -> ProblemSet:
    """Draw `wanted` prompts; returns the distinct ones as the problems on which a generator trains."""
    prompts = dict.fromkeys(domain.prompt(stream.at(i)) for i in range(wanted))
    return ProblemSet([Problem(content_id("prompt", text, ""), text, "", domain.name) for text in prompts])


@dataclass
class RewardedRollouts(Rollouts):
    """Rolls out a generator. A rollout succeeds if its text is a valid task, and is trained on its reward.

    Attributes:
        rollouts: rollouts in the environment `Writing`.
        options: the reward's options, for diagnostics.
        panel: as in `halfway.trainers.propel.domains.candidates.read`.
        metrics: for the latest batch: shares of texts that parse (a patch: that apply), of valid texts and of the
            commonest topic; mean reward of valid texts, and share of them that rank below an invalid text; the
            reward's variance; solver trials and oracle attempts.
    """

    rollouts: Rollouts
    tokenizer: Tokenizer
    domain: Domain[Any]
    reward: Reward
    options: RewardOptions
    panel: Panel | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """Return one group per request, in order."""
        groups = self.rollouts.run(requests, stream)
        written = self._judged(groups)
        rewards_N = self.reward(written, stream.at("reward"))
        self.metrics = self._describe(written, rewards_N)
        outcomes = iter(
            [{"success": one.valid, "reward": r} for one, r in zip(written, rewards_N.tolist(), strict=True)]
        )
        return [
            replace(group, rollouts=tuple(replace(rollout, **next(outcomes)) for rollout in group.rollouts))
            for group in groups
        ]

    def _judged(self, groups: Sequence[Group]) -> list[Written]:
        attempts = [(group.request.problem.prompt, rollout) for group in groups for rollout in group.rollouts]
        texts = [
            self.tokenizer.decode(rollout.turns[-1].tokens_T.tolist(), skip_special_tokens=True)
            for _, rollout in attempts
        ]
        prompts = [prompt for prompt, _ in attempts]
        ended_N = [not rollout.truncated for _, rollout in attempts]
        lengths_N = [rollout.num_generated for _, rollout in attempts]
        return judge(self.domain, prompts, texts, ended_N, lengths_N, self.panel)

    def _describe(self, written: Sequence[Written], rewards_N: Any) -> dict[str, float]:
        valid_N = np.asarray([one.valid for one in written], np.bool_)
        of_valid = {"reward/valid_mean": float(rewards_N[valid_N].mean())} if valid_N.any() else {}
        return of_valid | {
            "reward/mean": float(rewards_N.mean()),
            "reward/variance": float(rewards_N.var()),
            "reward/valid_below_invalid": below_invalid(rewards_N, valid_N, self.options),
            "tasks/parsed": sum(one.candidate.task is not None for one in written) / len(written),
            "tasks/valid": float(valid_N.mean()),
            "tasks/top_topic": top_share([one.candidate.topic if one.candidate.well_formed else "" for one in written]),
            "tasks/different": len({one.text for one in written}) / len(written),
            "tasks/solver_trials": float(valid_N.sum() * self.reward.trials),
            "tasks/oracle_attempts": float(sum(one.candidate.oracle_attempts for one in written)),
        }


@dataclass
class ReportingLearner:
    """A learner whose metrics include those of its rollouts."""

    learner: Learner
    rollouts: RewardedRollouts

    @property
    def policy_version(self) -> int:
        return self.learner.policy_version

    def update(self, groups: Sequence[Group], stream: Stream, spent: float) -> Mapping[str, float]:
        return {**self.learner.update(groups, stream, spent), **self.rollouts.metrics}

    def save(self, folder: Path) -> None:
        self.learner.save(folder)

    def load(self, folder: Path) -> None:
        self.learner.load(folder)
