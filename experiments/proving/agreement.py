"""Engine and learner agree on probabilities, weights, prompts, end tokens and prefixes, with a policy of the lab."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from halfway.curriculum import Group, Origin, Prefix, Request, Rollout, Stream, Turn, UserError
from halfway.experiments.proving.checks import Check, judge, skip
from halfway.experiments.proving.whole_run import RECIPE

if TYPE_CHECKING:
    from pathlib import Path

PART = "agreement"
TEMPERATURE, TOLERANCE = 0.7, 1e-3
GROUPS, ROLLOUTS, LENGTH, PREFIX = 4, 8, 64, 5


class Trial:
    """A learner, an engine with a copy of its weights, and a collector that rolls out with it."""

    def __init__(self, planted: Sequence[str], adapted: bool = False):
        from halfway.experiments.config.loading import load_run_config
        from halfway.experiments.config.paths import find_model
        from halfway.experiments.running.build import build_problems
        from halfway.trainers.engines.transformers.engine import TransformersEngine
        from halfway.trainers.learner.adapters import add_adapters
        from halfway.trainers.learner.learner import PolicyGradientLearner
        from halfway.trainers.learner.learner_options import LearnerOptions, LoraOptions
        from halfway.trainers.policy import load_policy

        config = load_run_config(RECIPE)
        policy = load_policy(config.model, find_model(config.model.path))
        self.planted, self.problems = planted, build_problems(config).train
        sampled = copy.deepcopy(policy.model)
        if adapted:
            add_adapters(policy.model, LoraOptions(rank=4))
        # Normalized by token, the loss of a shared prefix would cancel within a group.
        options = LearnerOptions(lr=1e-3, compact_filtering=False, normalization="sequence")
        self.learner = PolicyGradientLearner(policy.model, options, policy.padding, TEMPERATURE)
        setup = policy.engine_setup(replace(config.rollouts, temperature=TEMPERATURE), sampled)
        if "temperature" in planted:
            setup = replace(setup, temperature=1.4 * TEMPERATURE)
        if "ignored-end" in planted:
            setup = replace(setup, eos_token_ids=[])
        self.engine: Any = TransformersEngine(setup)
        if "other-prompt" in planted:
            self.engine = OtherPrompt(self.engine)
        self.ends = policy.end_tokens
        self.collector = policy.collector(self.engine, config.environment.part, LENGTH)

    def sample(self, step: int, prefixes: Sequence[Group] = ()) -> list[Group]:
        """Sample fresh groups, or groups that continue the first rollouts of earlier groups."""
        requests = [Request(problem, ROLLOUTS) for problem in self.problems[:GROUPS]]
        if prefixes:
            requests = [
                structs.replace(group.request, origin=Origin.PREFIX, prefix=start_of(group.rollouts[0]))
                for group in prefixes
            ]
        return self.collector.run(requests, Stream(0).at(step))

    def sync(self) -> None:
        self.engine.sync(self.learner.policy, self.learner.policy_version)
        if "transposed-tensor" in self.planted:
            square = next(w for w in self.engine.policy.parameters() if w.ndim == 2 and w.shape[0] == w.shape[1])
            square.data = square.data.T.contiguous()


class OtherPrompt:
    """A planted fault: an engine that reads another first token than the learner, like another template."""

    def __init__(self, engine: Any):
        self._engine = engine

    def generate(self, contexts: Sequence[Any], *others: Any) -> Any:
        return self._engine.generate([np.concatenate([c[1:2], c[1:]]) for c in contexts], *others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def start_of(rollout: Rollout) -> Prefix:
    """Cut a prefix of the first tokens of a rollout."""
    tokens_T = rollout.turns[0].tokens_T[:PREFIX]
    zeros_T = np.zeros(len(tokens_T), np.float32)
    turn = Turn(tokens_T, zeros_T, zeros_T, 0, "length", num_replayed=len(tokens_T))
    return Prefix((turn,), len(tokens_T), "tokens", 1, ROLLOUTS, rollout.success)


def agreement_checks(_: "Path", __: int, planted: Sequence[str]) -> Iterator[Check]:
    """Sample, update, sync and sample again; then the same with adapters."""
    if "prefix-in-loss" in planted:
        _train_prefixes()
    for adapted in (False, True):
        if adapted and not find_spec("peft"):
            yield skip(PART, "adapters", "peft is not installed")
            return
        yield from _try_policy(planted, adapted)


def _try_policy(planted: Sequence[str], adapted: bool) -> Iterator[Check]:
    kind = "adapters: " if adapted else ""
    trial = Trial(planted, adapted)
    try:
        groups = trial.sample(0)
        yield _ends(trial, kind, groups)
        yield _gap(trial, f"{kind}log-probabilities at temperature {TEMPERATURE:g}", groups, "temperature, prompts")
        trial.sync()
        later = trial.sample(1)
        yield _gap(trial, f"{kind}log-probabilities after an update and a sync", later, "the tensors of the sync")
        if not adapted:
            trial.sync()
            yield _prefixes(trial, trial.sample(2, prefixes=later))
    except UserError as error:
        yield Check(PART, f"{kind}a step", "FAIL", str(error))


def _gap(trial: Trial, name: str, groups: Sequence[Group], suspects: str) -> Check:
    """Update, and judge the distance of the engine's log-probabilities from the learner's."""
    gap = trial.learner.update([one_passes(group) for group in groups], Stream(0))["engine_gap"]
    return judge(PART, name, gap <= TOLERANCE, f"{gap:.1e} nats a token apart", f"compare {suspects} of both")


def one_passes(group: Group) -> Group:
    """Let only the first rollout of a group pass, so that the group has a gradient."""
    return replace(group, rollouts=tuple(replace(r, success=i == 0) for i, r in enumerate(group.rollouts)))


def _ends(trial: Trial, kind: str, groups: Sequence[Group]) -> Check:
    """Check that a response ends with its end token only, and that this token is trained."""
    from halfway.trainers.learner.batch import make_sequence

    ended = [(g, r) for g in groups for r in g.rollouts if r.turns[0].stop == "end"]
    wrong = sum(bool(np.isin(r.turns[0].tokens_T[:-1], trial.ends).any()) for g in groups for r in g.rollouts)
    for group, rollout in ended:
        sequence = make_sequence(group.prompt_tokens_P, rollout, 1.0)
        wrong += int(not sequence.mask_T[-1] or sequence.tokens_T[-1] not in trial.ends)
    found = f"{len(ended)} responses ended, {wrong} of them in another way"
    remedy = "give the engine the end tokens of the policy"
    return judge(PART, f"{kind}end tokens end responses and are trained", bool(ended) and not wrong, found, remedy)


def _prefixes(trial: Trial, groups: Sequence[Group]) -> Check:
    """Check that an update equals one on the same rollouts with the prefix in the prompt."""
    import torch

    chosen = [one_passes(group) for group in groups]
    learner, weights = trial.learner, []
    before = copy.deepcopy(learner.policy.state_dict())
    optimizer = copy.deepcopy(learner._backend.optimizer.state_dict())  # type: ignore[attr-defined]
    for some in (chosen, [in_prompt(group) for group in chosen]):
        learner.policy.load_state_dict(before)
        learner._backend.optimizer.load_state_dict(copy.deepcopy(optimizer))  # type: ignore[attr-defined]
        learner.update(some, Stream(0))
        weights.append(torch.cat([w.detach().flatten() for w in learner.policy.parameters()]))
    gap = float((weights[0] - weights[1]).abs().max())
    found = f"largest difference of a weight {gap:.1e}"
    remedy = "the tokens of a prefix are in the loss: look at Turn.num_replayed and the mask of the batch"
    return judge(PART, "prefixes stay out of the loss", gap <= 1e-4, found, remedy)


def in_prompt(group: Group) -> Group:
    """Move the prefix of a group into the prompt."""
    size = group.rollouts[0].turns[0].num_replayed
    start_T = group.rollouts[0].turns[0].tokens_T[:size]

    def without(rollout: Rollout) -> Rollout:
        turn = rollout.turns[0]
        kept = {name: getattr(turn, name)[size:] for name in ("tokens_T", "logprobs_T", "entropies_T")}
        return replace(rollout, turns=(replace(turn, num_replayed=0, **kept),))

    return replace(
        group,
        request=structs.replace(group.request, origin=Origin.FRESH, prefix=None),
        prompt_tokens_P=np.concatenate([group.prompt_tokens_P, start_T]),
        rollouts=tuple(map(without, group.rollouts)),
    )


def _train_prefixes() -> None:
    """A planted fault: the tokens of a prefix are in the loss."""
    from halfway.trainers.learner import batch

    sound = batch.make_sequence

    def make_sequence(prompt_P: Any, rollout: Rollout, *arguments: Any) -> Any:
        turns = tuple(replace(turn, num_replayed=0) for turn in rollout.turns)
        return sound(prompt_P, replace(rollout, turns=turns), *arguments)

    batch.make_sequence = make_sequence  # type: ignore[assignment]
