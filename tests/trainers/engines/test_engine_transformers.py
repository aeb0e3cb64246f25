import copy
import resource

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import says
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3ForCausalLM

from halfway.curriculum import UserError
from halfway.trainers.engines.contract import Completion, EngineSetup
from halfway.trainers.engines.transformers.engine import ReplicaEngine, TransformersEngine, sample

END, PAD = 1, 0


def context(*tokens: int) -> np.ndarray:
    return np.asarray(tokens, np.int32)


CONTEXTS = [context(5, 6, 7), context(9), context(3, 30, 21, 14, 8, 8, 25, 33, 4, 12), context(5, 6, 7), context(20, 6)]
LIMITS = [12, 30, 5, 24, 1]
SEEDS = [11, 2**64 - 1, 0, 12, 7]


def engine(model: PreTrainedModel, temperature: float = 1.0, max_sequences: int = 512) -> TransformersEngine:
    return TransformersEngine(EngineSetup(model, "", [END], PAD, temperature, max_sequences))


def assert_equal(left: list[Completion], right: list[Completion]) -> None:
    for a, b in zip(left, right, strict=True):
        assert a.stop == b.stop
        for name in ("tokens_T", "logprobs_T", "entropies_T"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def assert_close(left: list[Completion], right: list[Completion]) -> None:
    for a, b in zip(left, right, strict=True):
        assert a.stop == b.stop
        np.testing.assert_array_equal(a.tokens_T, b.tokens_T)
        np.testing.assert_allclose(a.logprobs_T, b.logprobs_T, atol=1e-5)
        np.testing.assert_allclose(a.entropies_T, b.entropies_T, atol=1e-5)


@torch.no_grad()
def full_forward(model: PreTrainedModel, read: np.ndarray, said: np.ndarray, temperature: float) -> torch.Tensor:
    """log-probabilities (T, V) of each new position, from one pass over the sequence alone, without cache."""
    sequence = torch.as_tensor(np.concatenate([read, said]), dtype=torch.int64)[None]
    logits = model(input_ids=sequence).logits[0].double() / temperature
    return torch.log_softmax(logits, -1)[len(read) - 1 : -1]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_and_entropies_are_those_of_a_plain_forward_pass(
    tiny_model: Qwen3ForCausalLM, temperature: float
) -> None:
    # 40 rows of five lengths, ending at different times: padding, shared prompts and removed rows all take part.
    contexts, limits, seeds = CONTEXTS * 8, LIMITS * 8, list(range(40))
    completions = engine(tiny_model, temperature).generate(contexts, limits, seeds)
    assert {c.stop for c in completions} == {"end", "length"}
    for read, done in zip(contexts, completions, strict=True):
        expected_TV = full_forward(tiny_model, read, done.tokens_T, temperature)
        expected_T = expected_TV[torch.arange(len(done.tokens_T)), torch.as_tensor(done.tokens_T, dtype=torch.int64)]
        np.testing.assert_allclose(done.logprobs_T, expected_T, atol=1e-5)
        np.testing.assert_allclose(done.entropies_T, -(expected_TV.exp() * expected_TV).sum(-1), atol=1e-5)
        assert (done.tokens_T.dtype, done.logprobs_T.dtype, done.entropies_T.dtype) == ("int32", "float32", "float32")


def test_completions_are_reported_as_their_sequences_end(tiny_model: Qwen3ForCausalLM) -> None:
    seen: dict[int, Completion] = {}
    done = engine(tiny_model, max_sequences=20).generate(CONTEXTS * 8, LIMITS * 8, list(range(40)), seen.__setitem__)
    assert sorted(seen) == list(range(40)) and all(seen[i] is completion for i, completion in enumerate(done))
    lengths = [len(completion.tokens_T) for completion in seen.values()]
    assert lengths[0] == 1 and max(lengths) not in lengths[:10]  # rows leave in batches, so not quite in order


def test_positions_do_not_count_the_padding() -> None:
    # Rotary positions are relative, so only a model with absolute positions notices a shift.
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=37, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    for read, done in zip(CONTEXTS, engine(model).generate(CONTEXTS, LIMITS, SEEDS), strict=True):
        expected_TV = full_forward(model, read, done.tokens_T, 1.0)
        np.testing.assert_allclose(done.entropies_T, -(expected_TV.exp() * expected_TV).sum(-1), atol=1e-5)


def test_any_of_several_end_tokens_ends_a_response(tiny_model: Qwen3ForCausalLM) -> None:
    both = TransformersEngine(EngineSetup(tiny_model, "", [END, 26], PAD))
    completions = both.generate([CONTEXTS[0]] * 50, [60] * 50, list(range(50)))
    endings = {int(c.tokens_T[-1]) for c in completions if c.stop == "end"}
    assert endings == {END, 26}


def test_equal_calls_give_bit_equal_completions(tiny_model: Qwen3ForCausalLM) -> None:
    sampler = engine(tiny_model)
    assert_equal(sampler.generate(CONTEXTS, LIMITS, SEEDS), sampler.generate(CONTEXTS, LIMITS, SEEDS))


@pytest.mark.parametrize("max_sequences", [1, 2])
def test_dividing_a_call_into_chunks_changes_nothing(tiny_model: Qwen3ForCausalLM, max_sequences: int) -> None:
    chunked = engine(tiny_model, max_sequences=max_sequences)
    assert_close(chunked.generate(CONTEXTS, LIMITS, SEEDS), engine(tiny_model).generate(CONTEXTS, LIMITS, SEEDS))


def test_the_draws_of_a_sequence_depend_on_its_seed_alone(tiny_model: Qwen3ForCausalLM) -> None:
    sampler = engine(tiny_model)
    (long,) = sampler.generate([CONTEXTS[0]], [24], [12])
    (short,) = sampler.generate([CONTEXTS[0]], [6], [12])
    np.testing.assert_array_equal(short.tokens_T, long.tokens_T[:6])
    (other,) = sampler.generate([CONTEXTS[0]], [24], [13])
    assert other.tokens_T.tolist() != long.tokens_T.tolist()


def chi_square(counts_V: np.ndarray, probabilities_V: np.ndarray) -> float:
    """Pearson's statistic in standard deviations above its mean, rare cells pooled."""
    expected_V = probabilities_V * counts_V.sum()
    rare = expected_V < 5
    counts = np.append(counts_V[~rare], counts_V[rare].sum())
    expected = np.append(expected_V[~rare], max(expected_V[rare].sum(), 1e-9))
    freedom = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_first_and_second_tokens_have_the_frequencies_of_the_softmax(
    tiny_model: Qwen3ForCausalLM, temperature: float
) -> None:
    count, vocabulary = 12_000, tiny_model.config.vocab_size
    endless = TransformersEngine(EngineSetup(tiny_model, "", [], PAD, temperature, max_sequences=4096))
    read = context(5, 6, 7)
    completions = endless.generate([read] * count, [2] * count, list(range(count)))
    tokens_BT = np.stack([c.tokens_T for c in completions])

    after_VT = torch.cat([torch.tensor([[5, 6, 7]] * vocabulary), torch.arange(vocabulary)[:, None]], 1)
    with torch.no_grad():
        logits_VTV = tiny_model(after_VT).logits.double() / temperature
    first_V = torch.softmax(logits_VTV[0, 2], -1).numpy()
    second_V = first_V @ torch.softmax(logits_VTV[:, 3], -1).numpy()
    for position, expected_V in enumerate((first_V, second_V)):
        counts_V = np.bincount(tokens_BT[:, position], minlength=vocabulary)
        assert abs(chi_square(counts_V, expected_V)) < 4
        distance = 0.5 * np.abs(counts_V / count - expected_V).sum()
        assert distance < 1.5 * 0.5 * np.sqrt(2 / np.pi * expected_V * (1 - expected_V) / count).sum()
        assert chi_square(counts_V, np.full(vocabulary, 1 / vocabulary)) > 100  # the test can fail


LOGIT = st.one_of(st.floats(-20, 20), st.just(-torch.inf))


@settings(max_examples=200)
@given(
    logits=st.lists(LOGIT, min_size=2, max_size=12).filter(lambda row: max(row) > -torch.inf),
    uniform=st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 1 - 2**-53])),
)
def test_inverse_transform_picks_the_token_whose_interval_holds_the_uniform(
    logits: list[float], uniform: float
) -> None:
    tokens_B, logprobs_B, entropies_B = sample(torch.tensor([logits]), torch.tensor([uniform]).double(), 1.0)
    probabilities_V = torch.softmax(torch.tensor(logits), -1).double().numpy()
    token = int(tokens_B[0])
    assert probabilities_V[token] > 0
    upper = probabilities_V[: token + 1].sum() / probabilities_V.sum()
    lower = probabilities_V[:token].sum() / probabilities_V.sum()
    assert lower - 1e-9 <= uniform <= upper + 1e-9
    assert float(logprobs_B[0]) == pytest.approx(np.log(probabilities_V[token]), abs=1e-5)
    positive_V = probabilities_V[probabilities_V > 0]
    assert float(entropies_B[0]) == pytest.approx(-(positive_V * np.log(positive_V)).sum(), abs=1e-5)


def test_impossible_tokens_at_either_end_are_never_sampled() -> None:
    row = [-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]
    uniforms_B = torch.tensor([0.0, 0.4999, 0.5001, 1 - 2**-53], dtype=torch.float64)
    tokens_B, logprobs_B, entropies_B = sample(torch.tensor([row] * 4), uniforms_B, 1.0)
    assert tokens_B.tolist() == [1, 1, 3, 3]
    np.testing.assert_allclose(logprobs_B, np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(entropies_B, np.log(2), rtol=1e-6)


def test_sync_shares_the_engines_own_module_and_copies_another(tiny_model: Qwen3ForCausalLM) -> None:
    learner, own = copy.deepcopy(tiny_model), copy.deepcopy(tiny_model)
    with torch.no_grad():
        learner.lm_head.weight.mul_(-1)
    sharing, apart = engine(learner), engine(own)
    wanted = sharing.generate(CONTEXTS, LIMITS, SEEDS)
    assert apart.generate(CONTEXTS, LIMITS, SEEDS)[1].tokens_T.tolist() != wanted[1].tokens_T.tolist()
    sharing.sync(learner, 3)
    apart.sync(learner, 4)
    assert sharing.policy is learner and apart.policy is own
    assert {done.policy_version for done in sharing.generate(CONTEXTS, LIMITS, SEEDS)} == {3}
    assert {done.policy_version for done in apart.generate(CONTEXTS, LIMITS, SEEDS)} == {4}
    assert_equal(apart.generate(CONTEXTS, LIMITS, SEEDS), wanted)
    with torch.no_grad():
        learner.lm_head.weight.mul_(-1)  # a copy keeps the weights of its last sync
    assert_equal(apart.generate(CONTEXTS, LIMITS, SEEDS), wanted)


def test_the_learner_can_train_the_shared_module_after_sampling(tiny_model: Qwen3ForCausalLM) -> None:
    tiny_model.train()
    engine(tiny_model).generate(CONTEXTS, LIMITS, SEEDS)
    assert tiny_model.training
    tiny_model(torch.tensor([[5, 6, 7]])).logits.sum().backward()
    assert tiny_model.lm_head.weight.grad is not None


def test_calls_without_context_or_room_are_refused(tiny_model: Qwen3ForCausalLM) -> None:
    sampler = engine(tiny_model)
    assert sampler.generate([], [], []) == []
    with pytest.raises(ValueError, match="every context needs a token"):
        sampler.generate([context()], [3], [0])
    with pytest.raises(ValueError, match="limit must be at least 1"):
        sampler.generate([context(4)], [0], [0])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        sampler.generate([context(4), context(5)], [1], [0, 0])


def test_weights_that_are_not_finite_are_an_error(tiny_model: Qwen3ForCausalLM) -> None:
    with torch.no_grad():
        tiny_model.lm_head.weight[3, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        engine(tiny_model).generate(CONTEXTS, LIMITS, SEEDS)


def test_a_copy_that_shared_memory_does_not_take_is_one_line(tiny_model: Qwen3ForCausalLM) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(UserError, match=says("rollouts.staleness", "File too large", "/dev/shm")):
            ReplicaEngine(EngineSetup(copy.deepcopy(tiny_model), "", [0], 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
