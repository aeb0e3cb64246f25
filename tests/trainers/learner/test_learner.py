import copy
import errno
import json
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from learner_harness import (
    OPTIONS,
    PAD,
    PPO,
    SEPARATE,
    assert_close,
    assert_same_weights,
    critic_weights,
    gradients,
    learner,
    make_group,
    make_turn,
    plain_logprobs,
    random_groups,
    train,
    weights,
)
from messages import says
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from halfway.curriculum import Rollout, Stream, UserError
from halfway.experiments.starting_models.warm_start import build_tokenizer
from halfway.trainers.learner import backend
from halfway.trainers.learner.learner import PolicyGradientLearner, lr_factor
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.microbatches import split_minibatches
from halfway.trainers.learner.scoring import token_logprobs


class WithoutLogitsToKeep(torch.nn.Module):
    """A model that computes all logits whatever it is asked for."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        return self.model(input_ids=input_ids, use_cache=use_cache)


@pytest.mark.parametrize("wrap", [lambda model: model, WithoutLogitsToKeep])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_entropies_are_those_of_a_plain_pass_over_each_row(
    tiny_model: Qwen3ForCausalLM, wrap: Callable[[torch.nn.Module], torch.nn.Module], temperature: float
) -> None:
    rows = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [4, 8, 15, 16, 23]]
    tokens_BT = torch.tensor([row + [PAD] * (6 - len(row)) for row in rows])
    mask_BT = torch.tensor([[0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]).bool()
    logprobs_BT, entropies_BT = token_logprobs(wrap(tiny_model), tokens_BT, mask_BT, temperature)
    for b, row in enumerate(rows):
        expected_T = plain_logprobs(tiny_model, row, temperature)
        probabilities_TV = torch.softmax(tiny_model(input_ids=torch.tensor([row])).logits[0] / temperature, -1)
        for t in range(6):
            if mask_BT[b, t]:
                torch.testing.assert_close(logprobs_BT[b, t], expected_T[t], rtol=1e-5, atol=1e-6)
                entropy = torch.distributions.Categorical(probs=probabilities_TV[t - 1]).entropy()
                torch.testing.assert_close(entropies_BT[b, t], entropy, rtol=1e-5, atol=1e-6)
            else:
                assert logprobs_BT[b, t] == 0 and entropies_BT[b, t] == 0


def test_the_gradient_of_an_update_is_that_of_the_policy_gradient_by_hand(tiny_model: Qwen3ForCausalLM) -> None:
    tiny_model.double()
    groups = random_groups(0)
    actual, metrics = gradients(tiny_model, groups, OPTIONS)
    total, num_tokens, num_read = torch.zeros((), dtype=torch.float64), 0, 0
    for group in groups:
        for rollout in group.rollouts:
            tokens, generated = group.prompt_tokens_P.tolist(), []
            for turn in rollout.turns:
                generated += range(len(tokens), len(tokens) + len(turn.tokens_T))
                tokens = [*tokens, *turn.tokens_T.tolist(), *turn.observation_tokens_O.tolist()]
            advantage = 1.0 if rollout.success else -1 / 3
            total = total - advantage * plain_logprobs(tiny_model, tokens)[generated].sum()
            num_tokens += len(generated)
            num_read += len(tokens)
    (total / num_tokens).backward()
    expected = {name: p.grad for name, p in tiny_model.named_parameters() if p.grad is not None}
    assert_close(actual, expected, 1e-9)
    assert metrics["tokens"] == num_tokens and metrics["trained_tokens"] == num_read
    assert metrics["ratio"] == 1.0 and metrics["approx_kl"] == 0.0 and metrics["optimizer_steps"] == 1.0
    norm = torch.cat([gradient.flatten() for gradient in expected.values()]).norm().item()
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "normalization"),
    [(OPTIONS, "token"), (OPTIONS, "sequence"), (OPTIONS, "constant"), (PPO, "token"), (SEPARATE, "token")],
)
def test_many_small_microbatches_equal_one_large_one(
    tiny_model: Qwen3ForCausalLM, options: LearnerOptions, normalization: Any
) -> None:
    tiny_model.double()
    options = replace(
        options,
        normalization=normalization,
        normalization_length=20,
        kl_coefficient=0.1,
        entropy_coefficient=0.01,
        old_logprobs="engine",
    )
    groups = random_groups(1)
    whole, whole_metrics = gradients(tiny_model, groups, options)
    parts, parts_metrics = gradients(tiny_model, groups, replace(options, max_microbatch_tokens=30))
    assert_close(parts, whole, 1e-10)
    assert parts_metrics == pytest.approx(whole_metrics, rel=1e-5)


def test_no_gradient_reaches_the_logits_of_prefix_positions(tiny_model: Qwen3ForCausalLM) -> None:
    # Prompt 4 tokens, prefix 3, continuation 3 of a row of 12: the logits that predict positions 7, 8 and 9 matter.
    inputs: dict[str, torch.Tensor] = {}

    def keep(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        inputs["logits"] = output.detach().requires_grad_()
        return inputs["logits"]

    tiny_model.lm_head.register_forward_hook(keep)
    mask_BT = torch.zeros(2, 12, dtype=torch.bool)
    mask_BT[0, 7:10] = True
    mask_BT[1, 2:12] = True  # another row needs the logits of all of these columns
    tokens_BT = torch.randint(3, 37, (2, 12), generator=torch.Generator().manual_seed(0))
    logprobs_BT, _ = token_logprobs(tiny_model, tokens_BT, mask_BT)
    logprobs_BT.sum().backward()
    gradient_BCV = inputs["logits"].grad
    reached_C = (gradient_BCV[0] != 0).any(-1)  # columns 1..10 predict positions 2..11
    assert reached_C.tolist() == [6 <= column <= 8 for column in range(1, 11)]


def test_prefix_tokens_get_no_gradient_as_targets(tiny_model: Qwen3ForCausalLM) -> None:
    """The row of the (untied) output matrix of a token that occurs in prefixes alone moves as any absent token's."""
    rollouts = [
        Rollout((make_turn([7, 8, 9, 20 + i, 21 + i], replayed=3),), success) for i, success in enumerate([True, False])
    ]
    seen, _ = gradients(tiny_model, [make_group([4, 5, 6], rollouts)], OPTIONS)
    # As a mere alternative, a token's row has gradient sum_t weight_t p_t(token) h_t, which a target would add to.
    with torch.no_grad():
        expected_V: torch.Tensor = torch.zeros_like(seen["lm_head.weight"])
        for rollout, advantage in zip(rollouts, (1.0, -1.0), strict=True):
            ids = torch.tensor([[4, 5, 6, *rollout.turns[0].tokens_T.tolist()]])
            hidden_TH = tiny_model.model(input_ids=ids).last_hidden_state[0]
            for t in (6, 7):
                weight_V = torch.softmax(tiny_model.lm_head(hidden_TH[t - 1]), -1)
                weight_V[ids[0, t]] -= 1
                expected_V += advantage / 4 * weight_V[:, None] * hidden_TH[t - 1]
    torch.testing.assert_close(seen["lm_head.weight"], expected_V, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalization", ["token", "sequence", "constant"])
def test_a_prefixed_group_trains_as_with_the_prefix_as_prompt(tiny_model: Qwen3ForCausalLM, normalization: Any) -> None:
    options = replace(OPTIONS, normalization=normalization, normalization_length=9, kl_coefficient=0.1)
    prompt, prefix, ends = [4, 5, 6], [7, 8, 9, 10], [[11, 12], [13, 14, 15], [16]]
    prefixed = [Rollout((make_turn(prefix + end, replayed=4),), i == 0) for i, end in enumerate(ends)]
    prompted = [Rollout((make_turn(end),), i == 0) for i, end in enumerate(ends)]
    left, right = learner(tiny_model, options), learner(tiny_model, options)
    assert left.update([make_group(prompt, prefixed)], Stream(0)) == right.update(
        [make_group(prompt + prefix, prompted)], Stream(0)
    )
    assert_same_weights(weights(left), weights(right))


def test_replayed_steps_train_as_with_the_steps_as_prompt(tiny_model: Qwen3ForCausalLM) -> None:
    step = make_turn([7, 8], replayed=2, observation=(9, 10))
    ends = [make_turn([11, 12]), make_turn([13, 14, 15])]
    left, right = learner(tiny_model), learner(tiny_model)
    left.update([make_group([4, 5], [Rollout((step, end), i == 0) for i, end in enumerate(ends)])], Stream(0))
    prompted = [Rollout((end,), i == 0) for i, end in enumerate(ends)]
    right.update([make_group([4, 5, 7, 8, 9, 10], prompted)], Stream(0))
    assert_same_weights(weights(left), weights(right))


def test_training_makes_successes_likelier(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, replace(OPTIONS, lr=3e-3))
    groups = random_groups(0)

    @torch.no_grad()
    def margin() -> float:
        rows = [
            (g.prompt_tokens_P.tolist() + r.turns[0].tokens_T.tolist(), r.success) for g in groups for r in g.rollouts
        ]
        return sum((1 if success else -1) * float(plain_logprobs(trained.policy, row).sum()) for row, success in rows)

    before = margin()
    for step in range(5):
        trained.update(groups, Stream(0).at(step))
    assert margin() > before + 1
    assert trained.policy_version == 5


def test_several_minibatches_and_epochs_use_the_logprobs_of_before(tiny_model: Qwen3ForCausalLM) -> None:
    options = replace(OPTIONS, num_minibatches=2, num_epochs=2, lr=1e-2)
    trained = learner(tiny_model, options)
    metrics = trained.update(random_groups(0), Stream(0))
    assert metrics["optimizer_steps"] == 4 and trained.policy_version == 1
    once = learner(copy.deepcopy(tiny_model), replace(options, num_epochs=1)).update(random_groups(0), Stream(0))
    assert metrics["sequences"] == 12 and metrics["trained_tokens"] == 2 * once["trained_tokens"]
    assert metrics["approx_kl"] > 1e-4  # the policy has moved away from the one that the ratio refers to
    assert metrics["clip_low"] + metrics["clip_high"] > 0
    again = learner(tiny_model, options)
    again.update(random_groups(0), Stream(0))
    assert_same_weights(weights(trained), weights(again))
    other = learner(tiny_model, options)
    other.update(random_groups(0), Stream(1))
    assert any(not torch.equal(a, b) for a, b in zip(weights(trained).values(), weights(other).values(), strict=True))


def test_every_epoch_is_shuffled_anew(tiny_model: Qwen3ForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = learner(tiny_model, replace(OPTIONS, num_minibatches=2, num_epochs=2))
    dealt = []

    def split(sequences: Any, options: LearnerOptions, stream: Stream) -> Any:
        dealt.append(split_minibatches(sequences, options, stream))
        return dealt[-1]

    monkeypatch.setattr("halfway.trainers.learner.learner.split_minibatches", split)
    trained.update(random_groups(0), Stream(0))
    first, second = [[{id(sequence) for sequence in part} for part in parts] for parts in dealt]
    assert set.union(*first) == set.union(*second) and first != second


def test_a_minibatch_that_holds_all_groups_is_the_batch(tiny_model: Qwen3ForCausalLM) -> None:
    """One optimizer step, bit for bit equal to an update without mini-batches."""
    whole, by_groups = (learner(tiny_model, replace(OPTIONS, minibatch_groups=size)) for size in (0, 3))
    assert train(whole, range(2)) == train(by_groups, range(2))
    assert_same_weights(weights(whole), weights(by_groups))


def test_minibatches_of_groups_are_updates_on_these_groups_one_after_the_other(tiny_model: Qwen3ForCausalLM) -> None:
    options = replace(OPTIONS, old_logprobs="engine")  # recorded, so the same for the batch and for its parts
    groups, initial = random_groups(0, num_groups=4), weights(learner(tiny_model))
    at_once, by_hand = learner(tiny_model, replace(options, minibatch_groups=2)), learner(tiny_model, options)
    assert at_once.update(groups, Stream(3))["optimizer_steps"] == 2
    order = Stream(3).at(0).generator().permutation(4)
    for part in (order[:2], order[2:]):
        by_hand.update([groups[i] for i in part], Stream(0))
    assert_same_weights(weights(at_once), weights(by_hand))
    assert any(not torch.equal(initial[name], value) for name, value in weights(at_once).items())


@pytest.mark.parametrize("wanted", [False, True])
def test_entropies_carry_a_gradient_only_if_asked_to(tiny_model: Qwen3ForCausalLM, wanted: bool) -> None:
    tokens_BT = torch.tensor([[4, 5, 6, 7]])
    mask_BT = torch.tensor([[False, False, True, True]])
    logprobs_BT, entropies_BT = token_logprobs(tiny_model, tokens_BT, mask_BT, entropy_gradient=wanted)
    assert logprobs_BT.requires_grad and entropies_BT.requires_grad is wanted


def test_the_entropy_bonus_raises_the_entropy(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, replace(OPTIONS, entropy_coefficient=1.0))
    all_failed = [make_group([4, 5], [Rollout((make_turn([6, 7, 8 + i]),), False) for i in range(2)])]
    entropies = [trained.update(all_failed, Stream(0).at(step))["entropy"] for step in range(4)]
    assert entropies == sorted(entropies) and entropies[-1] > entropies[0] + 0.01


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_recorded_logprobs_of_the_same_policy_give_ratio_one(tiny_model: Qwen3ForCausalLM, temperature: float) -> None:
    rollouts = []
    for i, response in enumerate(([7, 8, 9], [10, 11])):
        logprobs_T = plain_logprobs(tiny_model, [4, 5, 6, *response], temperature)[3:].detach().numpy()
        turn = replace(make_turn(response), logprobs_T=logprobs_T)
        rollouts.append(Rollout((turn,), i == 0))
    groups = [make_group([4, 5, 6], rollouts)]
    engine = learner(tiny_model, replace(OPTIONS, old_logprobs="engine"), temperature)
    metrics = engine.update(groups, Stream(0))
    assert metrics["ratio"] == pytest.approx(1, abs=1e-5) and metrics["engine_gap"] == pytest.approx(0, abs=1e-5)
    own = learner(tiny_model, OPTIONS, temperature)
    assert own.update(groups, Stream(0))["engine_gap"] == pytest.approx(0, abs=1e-5)
    assert_close(weights(engine), weights(own), 1e-3)


def test_kl_reference_is_the_starting_policy(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, replace(OPTIONS, kl_coefficient=0.1))
    assert train(trained, range(1))[0]["reference_kl"] == pytest.approx(0, abs=1e-6)
    assert train(trained, range(1, 2))[0]["reference_kl"] > 1e-6
    assert "reference_kl" not in train(learner(tiny_model), range(1))[0]


def test_an_empty_batch_changes_nothing_and_says_so(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model)
    before = weights(trained)
    cut_off = [Rollout((make_turn([7, 8]),), i == 0, truncated=True) for i in range(2)]
    for groups, truncated in (([], 0), ([make_group([4, 5], cut_off)], 2)):
        metrics = trained.update(groups, Stream(0))
        assert metrics["empty"] == 1 and metrics["optimizer_steps"] == 0 and metrics["left_out/truncated"] == truncated
    assert_same_weights(weights(trained), before)
    assert trained.policy_version == 0
    assert train(trained, range(1))[0]["empty"] == 0


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_step(tiny_model: Qwen3ForCausalLM, broken: str) -> None:
    trained = learner(tiny_model)
    train(trained, range(2))
    head = trained.policy.lm_head
    if broken == "loss":
        head.register_forward_hook(lambda module, args, output: output * float("nan"))
    else:
        head.weight.register_hook(lambda gradient: gradient * float("inf"))
    before, optimizer = weights(trained), copy.deepcopy(trained._backend.optimizer.state_dict())
    expected = "loss" if broken == "loss" else "gradient norm"
    with pytest.raises(UserError, match=says("learner", expected, "update 3", "last checkpoint")) as error:
        trained.update(random_groups(2), Stream(0))
    assert "\n" not in str(error.value)
    assert_same_weights(weights(trained), before)
    assert trained.policy_version == 2
    assert str(trained._backend.optimizer.state_dict()) == str(optimizer)
    assert all(p.grad is None for p in trained.policy.parameters())


COSINE = replace(OPTIONS, schedule="cosine", total_updates=40, warmup_steps=5, num_minibatches=2, kl_coefficient=0.1)
EPOCHS = {"num_minibatches": 2, "num_epochs": 2, "schedule": "cosine", "total_updates": 40}
SHARED, OWN = (replace(o, critic=replace(o.critic, warmup_steps=2), **EPOCHS) for o in (PPO, SEPARATE))


@pytest.mark.parametrize(
    ("options", "tied", "saved_after"),
    [
        *((options, tied, 3) for options in (OPTIONS, COSINE) for tied in (False, True)),
        *((options, False, steps) for options in (SHARED, OWN) for steps in (1, 3)),  # in the warm-up, or after it
    ],
)
def test_a_resumed_learner_continues_bit_for_bit(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path, options: LearnerOptions, tied: bool, saved_after: int
) -> None:
    if tied:
        tiny_model.config.tie_word_embeddings = True
        tiny_model.tie_weights()
    never_stopped = learner(tiny_model, options)
    train(never_stopped, range(saved_after))
    never_stopped.save(tmp_path)
    version = never_stopped.policy_version
    expected = train(never_stopped, range(saved_after, 6))

    resumed = learner(tiny_model, options)
    resumed.load(tmp_path)
    assert resumed.policy_version == version
    assert train(resumed, range(saved_after, 6)) == expected
    assert_same_weights(weights(resumed), weights(never_stopped))
    assert_same_weights(critic_weights(resumed), critic_weights(never_stopped))
    assert resumed.policy_version == never_stopped.policy_version == (4 if options.critic.warmup_steps == 2 else 6)


def test_a_run_that_diverged_can_continue_with_a_lower_learning_rate(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path
) -> None:
    options = replace(OPTIONS, schedule="linear", total_updates=10, num_minibatches=1)
    trained = learner(tiny_model, options)
    train(trained, range(4))
    trained.save(tmp_path)
    slower = learner(tiny_model, replace(options, lr=options.lr / 100, betas=(0.5, 0.6)))
    slower.load(tmp_path)
    assert train(slower, range(4, 5))[0]["lr"] == pytest.approx(0.6 * options.lr / 100)
    assert {tuple(group["betas"]) for group in slower._backend.optimizer.param_groups} == {(0.5, 0.6)}


@pytest.mark.parametrize("options", [OPTIONS, PPO, SEPARATE], ids=["grpo", "shared", "separate"])
def test_the_saved_policy_is_a_plain_hugging_face_folder(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path, options: LearnerOptions
) -> None:
    """A critic is not part of it."""
    trained = learner(tiny_model, options)
    train(trained, range(1))
    trained.save(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "policy").state_dict()
    assert_same_weights(loaded, weights(trained))
    assert json.loads((tmp_path / "learner.json").read_text())["policy_version"] == 1


def test_a_policy_that_is_not_in_safetensors_is_not_loaded(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    """Other files of weights are pickles, which may run code."""
    trained = learner(tiny_model)
    trained.save(tmp_path)
    (tmp_path / "policy" / "model.safetensors").unlink()
    torch.save(trained.policy.state_dict(), tmp_path / "policy" / "pytorch_model.bin")
    with pytest.raises(UserError, match=says("learner", "safetensors", "resume from a checkpoint")):
        trained.load(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    learner(tiny_model).save(tmp_path)
    config = copy.deepcopy(tiny_model.config)
    config.intermediate_size = 48
    other = PolicyGradientLearner(Qwen3ForCausalLM(config), OPTIONS, PAD)
    with pytest.raises(UserError, match=says("learner", "model", "another model", "resume")):
        other.load(tmp_path)


def test_a_checkpoint_with_another_reference_is_refused(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    options = replace(OPTIONS, kl_coefficient=0.1)
    trained = learner(tiny_model, options)
    train(trained, range(1))
    trained.save(tmp_path)
    from_trained_weights = PolicyGradientLearner(trained.policy, options, PAD)
    for other in (from_trained_weights, learner(tiny_model)):
        with pytest.raises(UserError, match=says("another KL reference")):
            other.load(tmp_path)


@pytest.mark.parametrize("name", ["policy/config.json", "optimizer.pt", "learner.json"])
def test_a_full_disk_is_reported_as_the_operating_system_does(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path, name: str
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "policy").mkdir()
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OSError) as error:
        learner(tiny_model).save(tmp_path)
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize("part", ["weights", "tokenizer"])
def test_a_failed_write_is_reported_as_the_operating_system_does(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path, part: str
) -> None:
    trained = learner(tiny_model)
    if part == "tokenizer":
        trained.tokenizer = build_tokenizer()
        trained._backend.save = lambda folder: None  # type: ignore[method-assign]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))  # less than either takes
    try:
        with pytest.raises(OSError) as error:
            trained.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.errno == errno.EFBIG


def test_the_policy_is_trained_in_place_without_dropout(tiny_model: Qwen3ForCausalLM) -> None:
    policy = tiny_model.train()
    trained = PolicyGradientLearner(policy, OPTIONS, PAD)
    assert trained.policy is policy and not policy.training
    train(trained, range(1))
    assert trained.policy is policy and not policy.training


def test_mixed_precision_of_another_trainer_is_refused(
    tiny_model: Qwen3ForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """accelerate would otherwise hand it on to every later model of the process without a word."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert learner(tiny_model)._backend.accelerator.mixed_precision == "no"
    monkeypatch.setitem(vars(AcceleratorState()), "_mixed_precision", "bf16")
    with pytest.raises(UserError, match=says("learner", "mixed_precision=bf16", "cpu", "process")):
        learner(tiny_model)


def test_without_cuda_a_model_stays_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's accelerator has no float64."""
    monkeypatch.setattr(backend, "Accelerator", lambda **options: options)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backend.build_accelerator() == {"cpu": True, "mixed_precision": "no"}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_several_processes_use_the_interface_towards_the_first(monkeypatch: pytest.MonkeyPatch, processes: str) -> None:
    told: list[str] = []
    monkeypatch.setattr(backend, "use_interface_towards", told.append)
    monkeypatch.setattr(backend, "Accelerator", lambda **_: told.append("accelerator"))
    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setenv("MASTER_ADDR", "first")
    backend.build_accelerator()
    assert told == ["first", "accelerator"][processes == "1" :]


def test_gradient_clipping_can_be_switched_off(tiny_model: Qwen3ForCausalLM) -> None:
    free, _ = gradients(tiny_model, random_groups(0), OPTIONS)
    norm = torch.cat([gradient.flatten() for gradient in free.values()]).norm()
    trained = learner(tiny_model, replace(OPTIONS, max_grad_norm=0.01))
    train(trained, range(1))
    # The second moment after one step is (1 - beta2) g^2, so it shows the gradient that the optimizer was given.
    state = trained._backend.optimizer.state_dict()["state"]
    used = torch.cat([values["exp_avg_sq"].div(1 - 0.95).sqrt().flatten() for values in state.values()]).norm()
    assert norm > 0.1
    assert used.item() == pytest.approx(0.01, rel=1e-3)


def test_learning_rate_schedules() -> None:
    constant = LearnerOptions(warmup_steps=4)
    assert [lr_factor(step, constant) for step in (0, 1, 3, 4, 1000)] == [0.25, 0.5, 1, 1, 1]
    linear = LearnerOptions(schedule="linear", warmup_steps=2, total_updates=6)
    assert [lr_factor(step, linear) for step in range(8)] == [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    cosine = LearnerOptions(schedule="cosine", total_updates=4)
    assert [lr_factor(step, cosine) for step in range(5)] == pytest.approx([1, 0.8535534, 0.5, 0.1464466, 0])


def test_a_schedule_without_a_length_follows_the_budget() -> None:
    linear = LearnerOptions(schedule="linear", warmup_steps=2)
    assert [lr_factor(step, linear, spent) for step, spent in ((0, 0.0), (1, 0.1), (2, 0.2), (90, 0.75))] == (
        pytest.approx([0.5, 1, 0.8, 0.25])
    )
    cosine = LearnerOptions(schedule="cosine")
    assert [lr_factor(7, cosine, spent) for spent in (0.0, 0.5, 0.75)] == pytest.approx([1, 0.5, 0.1464466])
    with pytest.raises(UserError, match=says("learner.total_updates", "4", "warmup_steps=4", "0")):
        LearnerOptions(schedule="linear", warmup_steps=4, total_updates=4)


def test_updates_know_the_share_of_the_budget_that_is_spent(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, replace(OPTIONS, schedule="linear", num_minibatches=2))
    rates = [trained.update(random_groups(0), Stream(0), spent)["lr"] for spent in (0.0, 0.5, 0.9)]
    assert rates == pytest.approx([1e-3, 0.5e-3, 0.1e-3])


def test_the_schedule_advances_once_an_optimizer_step(tiny_model: Qwen3ForCausalLM) -> None:
    trained = learner(tiny_model, replace(OPTIONS, schedule="linear", total_updates=10, num_minibatches=2))
    assert [metrics["lr"] for metrics in train(trained, range(3))] == pytest.approx([0.9e-3, 0.7e-3, 0.5e-3])


def test_a_checkpoint_of_deepspeed_is_not_called_damaged(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    trained = learner(tiny_model, OPTIONS)
    trained.save(tmp_path)
    (tmp_path / "optimizer.pt").unlink()
    (tmp_path / "deepspeed.json").write_text('{"zero_stage": 2, "processes": 2}')
    with pytest.raises(UserError, match=says("learner.deepspeed.zero_stage", "zero_stage=2")):
        trained.load(tmp_path)
