"""PPO in the learner: the value loss, what it reaches, and what survives a checkpoint."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import GradientState
from learner_harness import (
    PPO,
    SEPARATE,
    assert_close,
    assert_same_weights,
    critic_weights,
    gae_by_definition,
    gradients,
    learner,
    make_group,
    make_turn,
    plain_logprobs,
    random_groups,
    recorded_gradients,
    train,
    weights,
)
from messages import says
from paths import REPOSITORY, TINY
from torch import Tensor
from transformers import Qwen3ForCausalLM

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Group, Rollout, Stream, UserError, cut
from halfway.curriculum.states import from_plain, to_plain
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running import runs
from halfway.experiments.running.runs import prepare
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.critic import ValuedRollouts
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import CriticOptions, LearnerOptions
from halfway.trainers.learner.objective.loss import loss_denominator, value_loss
from halfway.trainers.learner.scoring import score_tokens

CRITIC = PPO.critic
KINDS = pytest.mark.parametrize("options", [PPO, SEPARATE], ids=["shared", "separate"])


def one_value(value: float, old: float, target: float, clip: float) -> tuple[float, float, float]:
    """Loss of a single token, its derivative by the value, and whether it was clipped."""
    values_BT = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    constants = (torch.tensor([[number]], dtype=torch.float64) for number in (old, target))
    settings = LearnerOptions(advantage="gae", critic=CriticOptions(value_clip=clip))
    loss, sums = value_loss(values_BT, *constants, torch.ones(1, 1).bool(), settings, 1.0)
    loss.backward()
    return loss.item(), values_BT.grad.item(), sums["value_clip"].item()


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "gradient", "clipped"),
    [
        (0.5, 0.5, 1.0, 0.2, 0.125, -0.5, 0),
        (0.6, 0.5, 1.0, 0.2, 0.08, -0.4, 0),
        (0.9, 0.5, 1.0, 0.2, 0.045, 0.0, 1),  # too far toward the target: (0.7 - 1)^2 / 2
        (0.1, 0.5, 1.0, 0.2, 0.405, -0.9, 0),  # away from it: the clip would be the smaller loss
        (0.9, 0.5, 0.0, 0.2, 0.405, 0.9, 0),
        (0.1, 0.5, 0.0, 0.2, 0.045, 0.0, 1),
        (0.9, 0.5, 1.0, 0.0, 0.005, -0.1, 0),  # no clip
    ],
)
def test_branches_of_the_value_loss(
    value: float, old: float, target: float, clip: float, loss: float, gradient: float, clipped: int
) -> None:
    assert one_value(value, old, target, clip) == (pytest.approx(loss), pytest.approx(gradient), clipped)


def random_values(seed: int = 0) -> tuple[Tensor, ...]:
    """Values, old values and returns on both sides of the clip, and a mask with gaps."""
    rng = np.random.default_rng(seed)
    old = rng.normal(0.5, 0.5, (4, 9))
    mask = rng.random((4, 9)) < 0.6
    mask[0], mask[1, 2] = False, True
    arrays = (old + rng.normal(0, 0.3, old.shape), old, rng.random(old.shape), mask)
    return tuple(map(torch.from_numpy, arrays))


@pytest.mark.parametrize("normalization", ["token", "sequence", "constant"])
def test_the_value_loss_is_that_of_a_plain_loop(normalization: Any) -> None:
    values, old, returns, mask = random_values()
    options = replace(PPO, normalization=normalization, normalization_length=7)
    denominator = loss_denominator(mask.sum(1).tolist(), options)
    actual, sums = value_loss(values, old, returns, mask, options, denominator)
    total, clipped = 0.0, 0
    for b in range(4):
        row = 0.0
        for t in range(9):
            if not mask[b, t]:
                continue
            v, v0, r = (float(array[b, t]) for array in (values, old, returns))
            near = min(max(v, v0 - 0.2), v0 + 0.2)
            row += max((v - r) ** 2, (near - r) ** 2) / 2
            clipped += (near - r) ** 2 > (v - r) ** 2
        total += row / max(int(mask[b].sum()), 1) if normalization == "sequence" else row
    divisor = {"token": int(mask.sum()), "sequence": 3, "constant": 21}[normalization]
    assert actual.item() == pytest.approx(total / divisor, rel=1e-12)
    assert sums["value_clip"].item() == clipped > 0


def test_no_number_outside_the_mask_reaches_the_value_loss_or_its_gradient() -> None:
    values, old, returns, mask = random_values()
    expected, _ = value_loss(values, old, returns, mask, PPO, 5.0)
    spoilt = [torch.where(mask, array, float("inf")).requires_grad_(i == 0) for i, array in enumerate((values, old))]
    actual, _ = value_loss(spoilt[0], spoilt[1], torch.where(mask, returns, float("nan")), mask, PPO, 5.0)
    actual.backward()
    assert actual.item() == expected.item()
    assert spoilt[0].grad is not None and bool((spoilt[0].grad[~mask] == 0).all())
    assert bool((spoilt[0].grad[mask] != 0).any())


def critic_gradients(
    model: Qwen3ForCausalLM, groups: list[Group], options: LearnerOptions, bias: float
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]:
    """The gradients of the policy and of the critic's own weights before clipping, with a value head that is not 0."""
    trained = learner(model, replace(options, max_grad_norm=0.0))
    critic = trained._critic
    set_head(trained, bias)
    own = recorded_gradients(critic._optimizer, critic._module)
    policy = recorded_gradients(trained._backend.optimizer, trained.policy)
    metrics = trained.update(groups, Stream(0))
    return policy, own, metrics


def set_head(trained: PolicyGradientLearner, bias: float) -> tuple[Tensor, Tensor]:
    """Give the value head weights that matter."""
    state = trained._critic.state_dict()
    weight, offset = (value for name, value in state.items() if "trunk" not in name)
    with torch.no_grad():
        weight.copy_(torch.linspace(-0.2, 0.2, weight.numel(), dtype=weight.dtype)[None])
        offset.fill_(bias)
    return weight[0], offset


@KINDS
def test_the_gradient_of_an_update_is_that_of_ppo_by_hand(
    tiny_model: Qwen3ForCausalLM, options: LearnerOptions
) -> None:
    """Two-turn rollouts with observations, each passed separately; GAE by a double loop."""
    tiny_model.double()
    groups = random_groups(0)
    policy, critic, metrics = critic_gradients(tiny_model, groups, options, bias=0.1)
    weight = torch.linspace(-0.2, 0.2, 32, dtype=torch.float64).requires_grad_()
    bias = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    rows: list[tuple[Tensor, Tensor, list[float]]] = []
    for group in groups:
        for rollout in group.rollouts:
            tokens, generated = group.prompt_tokens_P.tolist(), []
            for turn in rollout.turns:
                generated += range(len(tokens), len(tokens) + len(turn.tokens_T))
                tokens = [*tokens, *turn.tokens_T.tolist(), *turn.observation_tokens_O.tolist()]
            hidden_TD = tiny_model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
            values_K = (hidden_TD[:-1] @ weight + bias)[torch.tensor(generated) - 1]
            advantages_K = gae_by_definition(values_K.tolist(), float(rollout.success), CRITIC.gamma, CRITIC.gae_lambda)
            rows.append((plain_logprobs(tiny_model, tokens)[generated], values_K, advantages_K))
    raw = np.concatenate([advantages for _, _, advantages in rows])
    policy_total, value_total = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for logprobs_K, values_K, advantages in rows:
        whitened_K = torch.tensor((np.asarray(advantages) - raw.mean()) / np.sqrt(raw.var() + 1e-8))
        policy_total = policy_total - (whitened_K * logprobs_K).sum()
        returns_K = torch.tensor(advantages) + values_K.detach()
        value_total = value_total + (values_K - returns_K).square().sum() / 2
    value_share = CRITIC.value_coefficient * value_total / len(raw)
    (policy_total / len(raw)).backward(retain_graph=True)
    policy_only = {name: p.grad.clone() for name, p in tiny_model.named_parameters() if p.grad is not None}
    value_share.backward()
    both = {name: p.grad for name, p in tiny_model.named_parameters() if p.grad is not None}
    shared = options.critic.kind == "shared"
    # The model's norms compute in float32, so a sum of gradients is not the gradient of a sum to the last digit.
    assert_close(policy, both if shared else policy_only, 1e-6)
    head = {name: grad for name, grad in critic.items() if "trunk" not in name}
    expected = dict(zip(head, (weight.grad[None], bias.grad[None]), strict=True))
    assert_close(head, expected, 1e-8)
    trunk = {name.removeprefix("trunk."): grad for name, grad in critic.items() if name.startswith("trunk.")}
    if not shared:
        assert_close(trunk, {f"{n}": both[f"model.{n}"] - policy_only[f"model.{n}"] for n in trunk}, 1e-7)
    assert bool(trunk) is not shared
    assert metrics["value_loss"] == pytest.approx(value_total.item() / len(raw), rel=1e-6)
    norm = torch.cat([gradient.flatten() for gradient in critic.values()]).norm().item()
    assert metrics["critic_grad_norm"] == pytest.approx(norm, rel=1e-6)
    values = np.concatenate([values_K.tolist() for _, values_K, _ in rows])
    assert metrics["explained_variance"] == pytest.approx(1 - raw.var() / (raw + values).var(), rel=1e-6)
    assert metrics["value"] == pytest.approx(values.mean(), rel=1e-6) and metrics["warming_up"] == 0


@KINDS
def test_a_prefix_and_replayed_steps_train_as_a_prompt_does(
    tiny_model: Qwen3ForCausalLM, options: LearnerOptions
) -> None:
    """Neither policy nor critic has a gradient from tokens that the policy did not write in this rollout."""
    step, ends = make_turn([7, 8], replayed=2, observation=(9, 10)), [[11, 12], [13, 14, 15], [16]]
    tokens = [Rollout((step, make_turn([20, *end], replayed=1)), i == 0) for i, end in enumerate(ends)]
    prompted = [Rollout((make_turn(end),), i == 0) for i, end in enumerate(ends)]
    left = critic_gradients(tiny_model, [make_group([4, 5], tokens)], options, bias=0.1)
    right = critic_gradients(tiny_model, [make_group([4, 5, 7, 8, 9, 10, 20], prompted)], options, bias=0.1)
    assert left[2] == right[2]
    assert_same_weights(left[0], right[0])
    assert_same_weights(left[1], right[1])


def test_no_gradient_reaches_the_value_of_a_token_that_the_policy_did_not_write(tiny_model: Qwen3ForCausalLM) -> None:
    """Over the hidden states of all positions: exactly those before a token of the mask have a gradient."""
    trained = learner(tiny_model, PPO)
    weight, bias = set_head(trained, 0.1)
    tokens_BT = torch.randint(3, 37, (2, 10), generator=torch.Generator().manual_seed(0))
    mask_BT = torch.zeros(2, 10, dtype=torch.bool)
    mask_BT[0, 4:6] = mask_BT[0, 8] = mask_BT[1, 2] = True
    kept: list[Tensor] = []

    def keep(module: Any, args: Any, output: Tensor) -> Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    trained.policy.model.norm.register_forward_hook(keep)
    hidden_MD = score_tokens(trained.policy, tokens_BT, mask_BT, hidden=True).hidden_MD
    values_BT = trained._critic.values(tokens_BT, mask_BT, hidden_MD)
    settings = replace(PPO, critic=replace(CRITIC, value_clip=0.0))
    loss, _ = value_loss(values_BT, torch.zeros(2, 10), torch.ones(2, 10), mask_BT, settings, 4.0)
    loss.backward()
    reached_BT = (kept[0].grad != 0).any(-1)
    assert torch.equal(reached_BT[:, :-1], mask_BT[:, 1:]) and not reached_BT[:, -1].any()
    expected_BT = torch.where(mask_BT[:, 1:], (kept[0].detach() @ weight + bias)[:, :-1], 0)
    torch.testing.assert_close(values_BT[:, 1:], expected_BT)


def test_a_head_of_zeros_with_lambda_one_gives_whitened_rewards(tiny_model: Qwen3ForCausalLM) -> None:
    """The first update of a fresh critic is then the policy gradient with one baseline for the whole batch."""
    tiny_model.double()
    critic = CriticOptions(gae_lambda=1.0, value_coefficient=1e-12)
    groups = random_groups(0)
    actual, metrics = gradients(tiny_model, groups, replace(PPO, critic=critic))
    assert metrics["value"] == 0 and metrics["explained_variance"] == 0
    batch = make_batch(groups, PPO).sequences
    rewards_M = np.concatenate([np.full(s.num_trained, s.reward) for s in batch])
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        advantage = (s.reward - rewards_M.mean()) / rewards_M.std()
        total = total - advantage * plain_logprobs(tiny_model, s.tokens_T.tolist())[torch.from_numpy(s.mask_T)].sum()
    (total / len(rewards_M)).backward()
    expected = {name: p.grad for name, p in tiny_model.named_parameters() if p.grad is not None}
    assert_close(actual, expected, 1e-6)


@KINDS
def test_the_critic_learns_who_passes(tiny_model: Qwen3ForCausalLM, options: LearnerOptions) -> None:
    options = replace(options, critic=replace(options.critic, gae_lambda=1.0, lr=1e-2, value_clip=0.0))
    trained = learner(tiny_model, options)
    groups = random_groups(0)
    metrics = [trained.update(groups, Stream(0).at(step)) for step in range(30)]
    assert metrics[-1]["value_loss"] < 0.5 * metrics[0]["value_loss"]
    assert metrics[-1]["explained_variance"] > 0.4 > metrics[0]["explained_variance"]


def test_zero_variance_groups_and_single_rollouts_train_a_critic(tiny_model: Qwen3ForCausalLM) -> None:
    groups = [
        make_group([4, 5], [Rollout((make_turn([6, 7, 8 + i]),), True) for i in range(2)]),
        make_group([9, 5], [Rollout((make_turn([6, 7]),), False)]),
    ]
    trained = learner(tiny_model, PPO)
    metrics = trained.update(groups, Stream(0))
    assert metrics["sequences"] == 3 and metrics["left_out/ungrouped"] == 0 and metrics["grad_norm"] > 0
    assert learner(tiny_model).update(groups, Stream(0))["grad_norm"] == 0


def test_a_rollout_that_was_cut_is_left_out_or_ends_with_its_reward() -> None:
    cut_off = Rollout((make_turn([7, 8]),), False, truncated=True)
    groups = [make_group([4, 5], [cut_off, Rollout((make_turn([6]),), True)])]
    filtered = make_batch(groups, PPO)
    assert len(filtered.sequences) == 1 and filtered.left_out["truncated"] == 1
    whole = make_batch(groups, replace(PPO, compact_filtering=False))
    assert [s.reward for s in whole.sequences] == [0.0, 1.0] and whole.left_out["truncated"] == 0


@KINDS
def test_warming_up_trains_the_critic_alone(tiny_model: Qwen3ForCausalLM, options: LearnerOptions) -> None:
    options = replace(options, critic=replace(options.critic, warmup_steps=2), schedule="linear", total_updates=20)
    trained = learner(tiny_model, options)
    before, critic = weights(trained), critic_weights(trained)
    metrics = train(trained, range(2))
    assert [step["warming_up"] for step in metrics] == [1, 1] and [step["grad_norm"] for step in metrics] == [0, 0]
    assert_same_weights(weights(trained), before)
    assert trained.policy_version == 0 and trained._optimizer_steps == 0
    assert all(not torch.equal(critic[name], value) for name, value in critic_weights(trained).items())
    assert train(trained, range(2, 3))[0]["warming_up"] == 0
    assert any(not torch.equal(before[name], value) for name, value in weights(trained).items())
    assert trained.policy_version == 1


@KINDS
def test_the_critic_follows_the_budget_like_the_policy(tiny_model: Qwen3ForCausalLM, options: LearnerOptions) -> None:
    trained = learner(tiny_model, replace(options, schedule="linear"))
    for step, spent in enumerate((0.0, 0.75)):
        metrics = trained.update(random_groups(step), Stream(0).at(step), spent)
        rates = [group["lr"] for group in trained._critic._optimizer.param_groups]
        assert rates == pytest.approx([options.critic.lr * (1 - spent)] * len(rates))
        assert metrics["lr"] == pytest.approx(options.lr * (1 - spent))


@KINDS
def test_a_trainer_that_was_stopped_between_microbatches_stops_no_step_of_ours(
    tiny_model: Qwen3ForCausalLM, options: LearnerOptions
) -> None:
    """accelerate's switch for skipped steps belongs to the whole process."""
    undisturbed, trained = learner(tiny_model, options), learner(tiny_model, options)
    train(undisturbed, range(2))
    GradientState().sync_gradients = False
    try:
        train(trained, range(2))
    finally:
        GradientState().sync_gradients = True
    assert_same_weights(weights(trained), weights(undisturbed))
    assert_same_weights(critic_weights(trained), critic_weights(undisturbed))


def test_a_checkpoint_without_this_critic_is_refused(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    learner(tiny_model).save(tmp_path)
    with pytest.raises(UserError, match=says("learner", "critic", "missing", "learner.advantage")):
        learner(tiny_model, PPO).load(tmp_path)
    learner(tiny_model, PPO).save(tmp_path)
    with pytest.raises(UserError, match=says("learner", "critic", "this run's", "resume")):
        learner(tiny_model, SEPARATE).load(tmp_path)


def test_a_value_loss_that_is_not_finite_stops_before_the_step(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, PPO)
    train(trained, range(1))
    before = weights(trained), critic_weights(trained)
    trained._critic._module.register_full_backward_hook(lambda module, grads, _: (grads[0] * float("nan"),))
    with pytest.raises(UserError, match=says("learner", "gradient norm", "nan", "update 2")):
        trained.update(random_groups(1), Stream(0))
    assert_same_weights(weights(trained), before[0])
    assert_same_weights(critic_weights(trained), before[1])
    assert all(p.grad is None for p in (*trained.policy.parameters(), *trained._critic._module.parameters()))


@KINDS
def test_values_of_rollouts_are_those_of_a_plain_pass(tiny_model: Qwen3ForCausalLM, options: LearnerOptions) -> None:
    trained = learner(tiny_model, options)
    weight, bias = set_head(trained, 0.3)
    replayed = Rollout((make_turn([7, 8, 9], replayed=3),), False)
    prefixed = Rollout((make_turn([7, 8], replayed=2, observation=(9,)), make_turn([10, 11, 12], replayed=1)), True)
    groups = [*random_groups(0), make_group([4, 5], [replayed, prefixed])]

    class Recorded:
        def run(self, requests: Any, stream: Stream) -> list[Group]:
            return groups

    valued = ValuedRollouts(Recorded(), trained).run((), Stream(0))
    for group, original in zip(valued, groups, strict=True):
        for rollout, plain_rollout in zip(group.rollouts, original.rollouts, strict=True):
            tokens = group.prompt_tokens_P.tolist()
            for turn, before in zip(rollout.turns, plain_rollout.turns, strict=True):
                expected = []
                for i, token in enumerate(turn.tokens_T.tolist()):
                    hidden_TD = tiny_model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
                    expected.append(0.0 if i < turn.num_replayed else (hidden_TD[-1] @ weight + bias).item())
                    tokens.append(token)
                tokens += turn.observation_tokens_O.tolist()
                assert turn.values_T is not None and turn.values_T.dtype == np.float32 and before.values_T is None
                np.testing.assert_allclose(turn.values_T, expected, atol=1e-5)
    assert trained.with_values([]) == [] and trained.with_values([make_group([4], [replayed])])[0].size == 1


def test_a_controller_that_asks_for_values_observes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps from YAML on a multi-turn task."""
    kind = CONTROLLERS.get("uniform")
    observe, seen = kind.observe, []

    def watch(self: Any, state: Any, groups: Any, step: int) -> Any:
        seen.extend(turn for group in groups for rollout in group.rollouts for turn in rollout.turns)
        return observe(self, state, groups, step)

    monkeypatch.setattr(kind, "observe", watch)
    overrides = [*TINY, "environment=ledger", "problems.source=ledger", "model.path=experiments/starting_models/ledger"]
    overrides += ["learner.critic.lr=1e-2", "learner.critic.warmup_steps=0"]
    for needs in (frozenset(), frozenset({"values"})):
        monkeypatch.setattr(kind, "needs", needs)
        config, folder = (
            load_run_config(REPOSITORY / "experiments/recipes/methods/ppo.yaml", overrides),
            tmp_path / str(len(needs)),
        )
        prepare(config, folder)
        try:
            runs.train(config, folder, [])
        finally:
            torch.use_deterministic_algorithms(False)  # a run sets it for the whole process
        assert len(seen) > 30 and {turn.values_T is None for turn in seen} == {not needs}
        if needs:
            assert all(turn.values_T.shape == turn.tokens_T.shape for turn in seen)
            assert np.concatenate([turn.values_T for turn in seen]).any()
        seen.clear()
    logs = [(tmp_path / str(i) / "decisions.jsonl").read_bytes() for i in (0, 1)]
    assert logs[0] == logs[1]  # asking changes nothing
    steps = [json.loads(line) for line in (tmp_path / "1" / "steps.jsonl").read_text().splitlines()]
    assert all(step["groups"] == {"rolled_out": 3, "trained": 3} for step in steps)
    assert {"value_loss", "explained_variance", "value_clip", "critic_grad_norm"} <= set(steps[-1]["learner"])


def test_values_survive_a_checkpoint_but_not_a_cut(tiny_model: Qwen3ForCausalLM) -> None:
    [group] = learner(tiny_model, PPO).with_values([make_group([4, 5], [Rollout((make_turn([6, 7, 8]),), True)])])
    restored = from_plain(tuple[Group, ...], json.loads(json.dumps(to_plain((group,)))))[0]
    np.testing.assert_array_equal(restored.rollouts[0].turns[0].values_T, group.rollouts[0].turns[0].values_T)
    assert cut(group.rollouts[0], 2, "tokens")[0].values_T is None
