"""Log-probabilities of given tokens; weights in checkpoints."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_harness import OPTIONS, assert_close, gradients, make_group, make_turn, random_groups
from messages import says
from preloaded import Preloaded
from safetensors.torch import load_file
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from halfway.curriculum import Rollout, UserError
from halfway.trainers.learner import scoring
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions
from halfway.trainers.learner.scoring import cache_name
from halfway.trainers.learner.weights import checkpoint_weights, named_weights
from halfway.trainers.policy import prepare_torch

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "initializer_range": 0.5,
}


def small(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "gemma":  # bends its logits after the output layer
        return Gemma2ForCausalLM(Gemma2Config(**SIZES, final_logit_softcapping=2.0)).double().eval()
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=kind == "tied")).double().eval()


@pytest.mark.parametrize("kind", ["tied", "untied", "gemma"])
@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.1])
def test_parts_give_the_gradient_and_metrics_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, kind: str, entropy_coefficient: float
) -> None:
    model, options = small(kind), LearnerOptions(lr=1e-3, entropy_coefficient=entropy_coefficient)
    whole, whole_metrics = gradients(model, random_groups(0), options)
    monkeypatch.setattr(scoring, "MAX_LOGITS", 200)  # five rows
    parts, parts_metrics = gradients(model, random_groups(0), options)
    assert_close(parts, whole, 1e-12)
    assert parts_metrics == pytest.approx(whole_metrics, rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kl_coefficient": 0.1, "entropy_coefficient": 0.1},
        {"num_epochs": 2, "minibatch_groups": 1, "max_microbatch_tokens": 40},
        {"advantage": "gae"},
    ],
    ids=["plain", "kl and entropy", "epochs in small parts", "critic"],
)
@pytest.mark.parametrize("most_logits", [2**24, 200])
def test_a_shared_context_read_once_gives_the_same_loss_and_gradient(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], most_logits: int
) -> None:
    monkeypatch.setattr(scoring, "MAX_LOGITS", most_logits)
    options = LearnerOptions(lr=1e-3, **changes)
    model, groups = small("tied"), [*random_groups(0, num_groups=2), *random_groups(3, num_groups=1, size=1)]
    whole, whole_metrics = gradients(model, groups, options)
    shared, shared_metrics = gradients(model, groups, replace(options, share_contexts=True))
    assert_close(shared, whole, 1e-5)  # the norms of the model compute in float32
    assert shared_metrics == pytest.approx(whole_metrics, rel=1e-6)


@pytest.mark.parametrize(
    ("share", "context", "max_tokens", "expected"),
    [
        (True, 29, 10_000, [29, 8 * 3]),  # the context, and each rollout from the last token of the prompt on
        (True, 29, 54, [29, 5 * 3, 29, 3 * 3]),  # 29 + 5 x (3 + 32 / 16) tokens
        (True, 290, 200, [293] * 8),
        (False, 290, 10_000, [8 * 293]),
        (None, 29, 10_000, [8 * 32]),
        (None, 128, 10_000, [128, 8 * 3]),
    ],
)
def test_a_shared_context_is_read_once(
    monkeypatch: pytest.MonkeyPatch, share: bool | None, context: int, max_tokens: int, expected: list[int]
) -> None:
    model = small("tied")
    options = replace(OPTIONS, share_contexts=share, max_microbatch_tokens=max_tokens)
    read: list[int] = []
    forward = type(model).forward

    @functools.wraps(forward)
    def counted(self: Any, **given: Any) -> Any:
        read.append(given["input_ids"].numel())
        return forward(self, **given)

    monkeypatch.setattr(type(model), "forward", counted)
    prompt = [3 + i % 30 for i in range(context + 1)]
    groups = [make_group(prompt, [Rollout((make_turn([5, 6]),), i == 0) for i in range(8)])]
    gradients(model, groups, options)
    assert read == expected


def test_a_model_that_forgets_keys_is_refused_shared_contexts() -> None:
    sliding = Qwen3ForCausalLM(
        Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=0, tie_word_embeddings=True)
    )
    with pytest.raises(UserError, match=says("learner.share_contexts", "false")):
        PolicyGradientLearner(sliding, replace(OPTIONS, share_contexts=True), 0)


@pytest.mark.parametrize("other", [{"activation_checkpointing": True}, {"deepspeed": DeepSpeedOptions(zero_stage=3)}])
def test_shared_contexts_are_refused_beside_what_they_do_not_work_with(other: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=says("learner.share_contexts", "True")):
        LearnerOptions(share_contexts=True, **other)


def test_no_more_logits_than_allowed_exist_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(scoring, "MAX_LOGITS", 200)
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *a: (seen.append(linear(*a).shape), linear(*a))[1])
    gradients(small("tied"), random_groups(0), OPTIONS)
    made = [shape.numel() for shape in seen if shape[-1] == 40]
    assert max(made) == 200 and len(made) > 10


MEASURE = """
import torch
from pathlib import Path
from transformers import Qwen3Config, Qwen3ForCausalLM
from halfway.trainers.learner.scoring import token_logprobs
torch.set_num_threads(1)


def peak_mib():  # of this program alone; getrusage would count what its parent had before it
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


model = Qwen3ForCausalLM(Qwen3Config(vocab_size=49152, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=True))
tokens_BT = torch.randint(0, 49152, (1, 1024))
mask_BT = torch.arange(1024)[None] >= 64
model(input_ids=tokens_BT[:, :8]).logits.sum().backward()
before = peak_mib()
logprobs, _ = token_logprobs(model, tokens_BT, mask_BT)
(logprobs.sum() / mask_BT.sum()).backward()
del logprobs
print(peak_mib() - before)
logits = model(input_ids=tokens_BT).logits[:, :-1]
logprobs = torch.log_softmax(logits.float(), -1).gather(-1, tokens_BT[:, 1:, None])[..., 0]
logprobs[mask_BT[:, 1:]].mean().backward()
print(peak_mib() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads peaks of memory in /proc")
def test_an_update_at_smollm2s_vocabulary_takes_at_most_half_the_memory_of_the_naive_one(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    (tmp_path / "measure.py").write_text(MEASURE)
    preloaded(tmp_path, tmp_path / "output.txt", tmp_path / "measure.py")
    parts_mib, naive_mib = map(
        int, (tmp_path / "output.txt").read_text().split()[-2:]
    )  # a peak is never forgotten, so the smaller one comes first
    assert 0 < parts_mib <= naive_mib / 2


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 20,
    "num_experts_per_tok": 2,
}
QWEN = (Qwen3MoeForCausalLM, Qwen3MoeConfig(**SMALL, num_experts=4, moe_intermediate_size=8))
MIXTRAL = (MixtralForCausalLM, MixtralConfig(**SMALL, num_local_experts=4))


@pytest.mark.parametrize(("kind", "config"), [QWEN, MIXTRAL])
@pytest.mark.parametrize("loaded", [False, True])
def test_experts_come_one_by_one_as_in_a_checkpoint(kind: type, config: object, loaded: bool, tmp_path: Path) -> None:
    """transformers holds them in one tensor, whose name vLLM does not know (verl#6896)."""
    model = kind(config)
    model.save_pretrained(tmp_path)
    if loaded:
        model = kind.from_pretrained(tmp_path, dtype="auto")
    saved, sent = load_file(tmp_path / "model.safetensors"), dict(checkpoint_weights(model))
    assert sent.keys() == saved.keys() and all(torch.equal(sent[name], saved[name]) for name in saved)
    assert not sent.keys() <= dict(named_weights(model)).keys()


def test_new_tensors_are_not_filled_first() -> None:
    """torch fills them with NaN when it is to be deterministic, by a kernel of their own each."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        prepare_torch(0, 0)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(deterministic)


class Older(nn.Module):
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


class Newer(nn.Module):
    def forward(self, input_ids: Any, cache: Any = None) -> None: ...


def test_the_cache_has_the_name_that_the_model_gives_it() -> None:
    assert (cache_name(Older()), cache_name(Newer())) == ("past_key_values", "cache")
