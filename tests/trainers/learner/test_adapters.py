"""LoRA: trained weights, the engine's weights, saved weights."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_harness import build_groups, build_model
from messages import says
from transformers import AutoModelForCausalLM

from halfway.curriculum import Stream, UserError
from halfway.trainers.learner.adapters import adapter_parameters, adapters_off, add_adapters
from halfway.trainers.learner.backend import build_optimizer
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions, LoraOptions
from halfway.trainers.learner.weights import copy_weights, named_weights

peft = pytest.importorskip("peft", reason="peft is not installed (extra lora)")

OPTIONS = LearnerOptions(lr=1e-2, kl_coefficient=0.1, num_minibatches=2)
LORA = LoraOptions(rank=4, alpha=8)
TOKENS = torch.arange(3, 33)[None]


def adapted(seed: int = 0) -> Any:
    model = build_model().float()
    torch.manual_seed(seed)
    add_adapters(model, LORA)
    return model


def trained(steps: int, policy: Any = None) -> PolicyGradientLearner:
    learner = PolicyGradientLearner(policy or adapted(), OPTIONS, pad_token_id=0)
    for step in range(1, 1 + steps):
        learner.update(build_groups(step), Stream(0).at(step))
    return learner


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS).logits  # type: ignore[no-any-return]


def test_adapters_change_nothing_at_first_and_are_all_that_is_trained() -> None:
    plain, policy = build_model().float(), adapted()
    assert torch.equal(logits(plain), logits(policy))
    before = {name: p.clone() for name, p in policy.named_parameters()}
    learner = trained(1, policy)
    moved = {name for name, p in learner.policy.named_parameters() if not torch.equal(p, before[name])}
    assert moved == set(adapter_parameters(policy))
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in moved}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_engine_gets_whole_weights_with_the_adapters_in_them() -> None:
    learner, plain = trained(2), build_model().float()
    assert (logits(learner.policy) - logits(plain)).abs().max() > 0.1
    assert [name for name, _ in named_weights(learner.policy)] == [name for name, _ in plain.named_parameters()]
    copy_weights(learner.policy, plain)
    torch.testing.assert_close(logits(plain), logits(learner.policy), rtol=1e-5, atol=1e-5)


def test_the_reference_is_the_policy_without_adapters() -> None:
    learner, plain = trained(2), build_model().float()
    with adapters_off(learner.policy):
        assert torch.equal(logits(learner.policy), logits(plain))
    assert not torch.equal(logits(learner.policy), logits(plain))
    # With an equal model and a separate reference instead, the penalty is the same.
    whole = PolicyGradientLearner(build_model().float(), OPTIONS, pad_token_id=0)
    assert trained(0).update(build_groups(1), Stream(0))["reference_kl"] == pytest.approx(
        whole.update(build_groups(1), Stream(0))["reference_kl"], abs=0.05
    )
    assert learner.update(build_groups(3), Stream(0))["reference_kl"] > 1e-3


def test_a_resumed_run_is_bit_equal(tmp_path: Path) -> None:
    learner = trained(2)
    learner.save(tmp_path)
    expected = learner.update(build_groups(5), Stream(0))
    other = PolicyGradientLearner(adapted(seed=1), OPTIONS, pad_token_id=0)
    other.load(tmp_path)
    assert other.update(build_groups(5), Stream(0)) == expected
    assert torch.equal(logits(other.policy), logits(learner.policy))


def test_a_checkpoint_is_a_plain_model_and_a_folder_for_peft(tmp_path: Path) -> None:
    learner = trained(2)
    learner.save(tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    torch.testing.assert_close(logits(merged), logits(learner.policy), rtol=1e-5, atol=1e-5)
    by_peft = peft.PeftModel.from_pretrained(build_model().float(), tmp_path / "adapter")
    torch.testing.assert_close(logits(by_peft), logits(learner.policy), rtol=1e-6, atol=1e-6)


def test_a_checkpoint_of_another_start_or_other_adapters_is_refused(tmp_path: Path) -> None:
    trained(1).save(tmp_path)
    moved = copy.deepcopy(build_model().float())
    with torch.no_grad():
        moved.model.embed_tokens.weight.add_(1)
    add_adapters(moved, LORA)
    with pytest.raises(UserError, match=says("adapters")):
        PolicyGradientLearner(moved, OPTIONS, pad_token_id=0).load(tmp_path)
    larger = build_model().float()
    add_adapters(larger, LoraOptions(rank=8, alpha=8))
    with pytest.raises(UserError, match=says("another model")):
        PolicyGradientLearner(larger, OPTIONS, pad_token_id=0).load(tmp_path)
    stronger = build_model().float()
    add_adapters(stronger, LoraOptions(rank=4, alpha=16))
    before = logits(stronger)
    with pytest.raises(UserError, match=says("model.lora.alpha", 16, 8, "resume")):
        PolicyGradientLearner(stronger, OPTIONS, pad_token_id=0).load(tmp_path)
    assert torch.equal(logits(stronger), before)


def test_bfloat16_weights_have_float32_adapters() -> None:
    policy = build_model().bfloat16()
    add_adapters(policy, LORA)
    assert {p.dtype for p in adapter_parameters(policy).values()} == {torch.float32}
    learner, plain = trained(3, policy), build_model().bfloat16()
    copy_weights(learner.policy, plain)
    gap = (logits(plain).log_softmax(-1) - logits(learner.policy).log_softmax(-1)).abs().max()
    assert gap < 0.1  # merging rounds to bfloat16 once more


def test_layers_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(UserError, match=says("model.lora.targets", "'no_proj'")):
        add_adapters(build_model(), LoraOptions(rank=2, targets=("no_proj",)))


def test_a_model_with_an_adapter_beside_its_weights_is_refused(tmp_path: Path) -> None:
    """transformers loads both and freezes all weights."""
    build_model().save_pretrained(tmp_path)
    settings = peft.LoraConfig(r=2, target_modules=["q_proj"])
    peft.get_peft_model(build_model(), settings).save_pretrained(tmp_path)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=says("model.path", "frozen", "merge_and_unload")):
        build_optimizer(policy, LearnerOptions())
