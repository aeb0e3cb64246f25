"""Shared by tests of the learner: groups made by hand, a learner with a small model, and sums term by term."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import CriticOptions, LearnerOptions

PAD = 0

OPTIONS = LearnerOptions(lr=1e-3)
PPO = replace(OPTIONS, advantage="gae", critic=CriticOptions(lr=1e-2, gae_lambda=0.9, gamma=0.95))
SEPARATE = replace(PPO, critic=replace(PPO.critic, kind="separate"))


def make_turn(tokens: list[int], replayed: int = 0, observation: tuple[int, ...] = ()) -> Turn:
    zeros_T = np.zeros(len(tokens), np.float32)
    observed_O = np.asarray(observation, np.int32)
    return Turn(np.asarray(tokens, np.int32), zeros_T, zeros_T, 0, "end", replayed, "", observed_O)


def make_group(prompt: list[int], rollouts: list[Rollout]) -> Group:
    request = Request(Problem("p", "", ""), len(rollouts))
    return Group(request, np.asarray(prompt, np.int32), tuple(rollouts))


def random_groups(seed: int, num_groups: int = 3, size: int = 4) -> list[Group]:
    """Groups of two-turn rollouts of different lengths; one success each."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> list[int]:
        return rng.integers(3, 37, rng.integers(low, high)).tolist()

    return [
        make_group(
            draw(3, 6),
            [Rollout((make_turn(draw(2, 8), 0, (5, 6)), make_turn(draw(1, 7))), i == 0) for i in range(size)],
        )
        for _ in range(num_groups)
    ]


def learner(
    model: Qwen3ForCausalLM, options: LearnerOptions = OPTIONS, temperature: float = 1.0
) -> PolicyGradientLearner:
    return PolicyGradientLearner(copy.deepcopy(model), options, PAD, temperature)


def weights(trained: PolicyGradientLearner) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in trained.policy.state_dict().items()}


def critic_weights(trained: PolicyGradientLearner) -> dict[str, torch.Tensor]:
    """The weights of the critic, with which the learner has to have been built; without one, none."""
    return {name: values.clone() for name, values in trained._critic.state_dict().items()} if trained._critic else {}


def assert_same_weights(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


def train(trained: PolicyGradientLearner, steps: range) -> list[dict[str, float]]:
    return [trained.update(random_groups(step), Stream(0).at(step)) for step in steps]


def gradients(model: Qwen3ForCausalLM, groups: list[Group], options: LearnerOptions) -> tuple[dict[str, Any], Any]:
    """The gradient of every weight as the optimizer sees it, before clipping, and the metrics."""
    trained = learner(model, replace(options, max_grad_norm=0.0))
    seen = recorded_gradients(trained._backend.optimizer, trained.policy)
    metrics = trained.update(groups, Stream(0))
    return seen, metrics


def recorded_gradients(optimizer: Any, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A dictionary that each step of the optimizer fills with the module's gradients, by parameter name."""
    seen: dict[str, torch.Tensor] = {}
    step = optimizer.step

    def record() -> None:
        seen.update({name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None})
        step()

    optimizer.step = record
    return seen


def assert_close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], rtol: float) -> None:
    assert left.keys() == right.keys() and len(left) > 0
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=rtol, atol=rtol * float(left[name].abs().max()))


def plain_logprobs(model: torch.nn.Module, tokens: list[int], temperature: float = 1.0) -> torch.Tensor:
    """The log-probability of each token given those before it, (T,), from a plain pass over one row; entry 0 is 0."""
    ids = torch.as_tensor(tokens)
    logits_TV = model(input_ids=ids[None]).logits[0] / temperature
    logprobs_T = torch.log_softmax(logits_TV[:-1], -1).gather(-1, ids[1:, None])[:, 0]
    return torch.cat([logprobs_T.new_zeros(1), logprobs_T])


def build_model(**changes: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        **{"initializer_range": 0.3} | changes,
    )
    return Qwen3ForCausalLM(config).double()


def build_groups(step: int) -> list[Group]:
    """The groups of a step. In the first step, a mini-batch has fewer sequences than there are processes."""
    rng = np.random.default_rng(step)
    groups = []
    for _ in range(3 if step else 1):
        rollouts = []
        for i in range(4 if step else 3):
            tokens_T = rng.integers(3, 40, rng.integers(1, 9)).astype(np.int32)
            zeros_T = np.zeros(len(tokens_T), np.float32)
            rollouts.append(Rollout((Turn(tokens_T, zeros_T, zeros_T, 0),), i == 0))
        request = Request(Problem("p", "", ""), len(rollouts))
        groups.append(Group(request, np.asarray([4, 5, 6], np.int32), tuple(rollouts)))
    return groups


def gae_by_definition(values: list[float], reward: float, gamma: float, gae_lambda: float) -> list[float]:
    """The advantages by GAE's definition, summed term by term."""
    num = len(values)
    advantages = []
    for k in range(num):
        total = 0.0
        for j in range(k, num):
            last = j == num - 1
            delta = (reward if last else gamma * values[j + 1]) - values[j]
            total += (gamma * gae_lambda) ** (j - k) * delta
        advantages.append(total)
    return advantages


def gradient_by_hand(model: Any, before: Any, group: Group, options: LearnerOptions, temperature: float = 1.0) -> Any:
    """The gradient of - mean over tokens of w min(r A, clip(r) A), r = p / p_before, w from p_before / q.

    For groups of rollouts of one turn, half of which have passed.
    """
    model, total, count = copy.deepcopy(model), torch.zeros((), dtype=torch.float64), 0
    for rollout in group.rollouts:
        [turn], start = rollout.turns, len(group.prompt_tokens_P)
        row, advantage = [*group.prompt_tokens_P.tolist(), *turn.tokens_T.tolist()], 2.0 * rollout.success - 1.0
        advantage *= group.size / (2 * (group.size - 1))  # the baseline leaves one out
        with torch.no_grad():
            proximal_T = plain_logprobs(before, row, temperature)[start:]
        r_T = (plain_logprobs(model, row, temperature)[start:] - proximal_T).exp()
        w_T = (proximal_T - torch.from_numpy(turn.logprobs_T)).exp()
        cap, floor, masked = options.mismatch_cap, options.mismatch_floor, options.mismatch == "token_masked"
        w_T = torch.where((w_T >= floor) & (w_T <= cap), w_T, 0) if masked else w_T.clamp(max=cap)
        low, high = 1 - options.clip_low, 1 + options.clip_high
        total = total - (w_T * torch.minimum(r_T * advantage, r_T.clamp(low, high) * advantage)).sum()
        count += len(turn.tokens_T)
    (total / count).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
