"""Sampling with vLLM in this process: continuous batching, prefix caching."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from halfway.curriculum import FloatArray, IntArray, UserError
from halfway.curriculum.support.extras import blaming, load_extra
from halfway.trainers.engines.contract import STOPS, Completion, Engine, EngineSetup, Finished
from halfway.trainers.engines.part import GIB
from halfway.trainers.engines.vllm.vllm_options import FREE_SHARE, VllmOptions, require_length, sampling_parameters
from halfway.trainers.engines.vllm.worker import WeightLoader
from halfway.trainers.learner.batch import continuation
from halfway.trainers.learner.microbatches import pad, split_microbatches
from halfway.trainers.learner.scoring import token_logprobs
from halfway.trainers.learner.weights import checkpoint_weights, copy_weights

NEEDED_BY = "rollouts.engine: 'vllm'"
# Padded tokens per forward pass that computes entropies.
ENTROPY_TOKENS = 16384


def vllm_engine(options: VllmOptions, setup: EngineSetup, entropies: bool = False) -> "VllmEngine":
    """Make the engine, with a copy of the weights.

    Args:
        entropies: whether the policy computes the entropies of the sampled tokens.

    Raises:
        UserError: if vLLM is not installed, several processes train, or vLLM cannot run the model.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise UserError(f"{NEEDED_BY} runs inside one training process only; use rollouts.engine=transformers")
    # vLLM reads this at import. An engine in another process could not take tensors by reference.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    vllm = load_extra("vllm", NEEDED_BY, "vllm")
    remedy = "see vLLM's own messages"
    with blaming(f"{NEEDED_BY} cannot run the model of model.path", remedy, ValueError, RuntimeError, OSError):
        llm = vllm.LLM(
            setup.model_path,
            dtype=options.weight_dtype(str(setup.policy.dtype).removeprefix("torch.")),
            max_model_len=options.max_length or None,
            max_num_seqs=setup.max_sequences,
            kv_cache_memory_bytes=int(options.kv_cache_gib * GIB),
            gpu_memory_utilization=FREE_SHARE,
            block_size=options.block_size,
            enforce_eager=options.eager,
            enable_prefix_caching=True,
            # On a CPU, vLLM cannot undo the draw of a seeded request whose context it has only partly read.
            enable_chunked_prefill=torch.cuda.is_available(),
            # Log-probabilities of the sampled distribution, temperature included; vLLM's default ignores temperature.
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            skip_tokenizer_init=True,
            disable_log_stats=True,
            worker_extension_cls=f"{WeightLoader.__module__}.{WeightLoader.__qualname__}",
        )
        engine = VllmEngine(llm, vllm.SamplingParams, setup, entropies)
        # Unsupported kernels fail only at the first forward pass, which also compiles a little.
        engine.generate([np.full(2, setup.pad_token_id, np.int32)], [1], [0])
    return engine


class VllmEngine(Engine):
    """Samples through a `vllm.LLM` in this process.

    Each sequence draws from its own generator, made from its seed. Through rounding, its tokens may still depend on the
    rest of the batch, more often than with the engine "transformers". Equal calls give equal completions.
    """

    def __init__(self, llm: Any, sampling_params: Any, setup: EngineSetup, entropies: bool = False):
        """
        Args:
            llm: returns processed log-probabilities and has `WeightLoader` in its worker.
            sampling_params: vLLM's class of that name.
            entropies: whether the setup's policy computes entropies after sampling.
        """
        self._llm = llm
        self._sampling_params = sampling_params
        self._eos_token_ids = list(setup.eos_token_ids)
        self._temperature = setup.temperature
        self._policy = setup.policy if entropies else None
        self.policy_version = setup.policy_version
        self.max_length: int = int(llm.model_config.max_model_len)

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        """Continue each context, see `halfway.trainers.engines.contract.Engine.generate`. All are submitted at once.

        Entropies come from another forward pass over all sequences; with them, no sequence is reported before the end.

        Raises:
            UserError: if a context and its limit together exceed `max_length`.
        """
        require_length("rollouts.engine.vllm", contexts, max_new_tokens, self.max_length)
        if self._policy is None:
            return self._sample(contexts, max_new_tokens, seeds, finished)
        completions = self._sample(contexts, max_new_tokens, seeds, None)
        completions = with_entropies(self._policy, contexts, completions, self._temperature)
        if finished is not None:
            for i, done in enumerate(completions):
                finished(i, done)
        return completions

    def _sample(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None,
    ) -> list[Completion]:
        names = self._llm.enqueue(
            [{"prompt_token_ids": context.tolist()} for context in contexts],
            [
                self._sampling_params(**sampling_parameters(self._temperature, limit, seed, self._eos_token_ids))
                for limit, seed in zip(max_new_tokens, seeds, strict=True)
            ],
            use_tqdm=False,
        )
        # Some versions add a dash and a random part to a request's name here, but not to its output's name.
        position_of = {name.partition("-")[0]: i for i, name in enumerate(names)}
        done: dict[int, Completion] = {}
        while self._llm.llm_engine.has_unfinished_requests():
            for output in self._llm.llm_engine.step():
                i = position_of[output.request_id]
                done[i] = completion(output.outputs[0], self.policy_version)
                if finished is not None:
                    finished(i, done[i])
        return [done[i] for i in range(len(names))]

    def sync(self, policy: nn.Module, version: int) -> None:
        """Load the weights of `policy`, tensor by tensor, and empty the cache that the old weights filled."""
        self._llm.collective_rpc("load_named_weights", args=(checkpoint_weights(policy),))
        self.forget()
        if self._policy is not None and self._policy is not policy:
            copy_weights(policy, self._policy)
        self.policy_version = version

    def forget(self) -> None:
        """Empty the prefix cache, which is valid only for the weights that computed it."""
        if not self._llm.reset_prefix_cache():
            raise UserError(f"{NEEDED_BY} could not empty its prefix cache: a request is still running")


def completion(output: Any, policy_version: int) -> Completion:
    """Convert one of vLLM's outputs to a completion without entropies.

    Raises:
        UserError: if vLLM gave up on the request.
    """
    if output.finish_reason not in STOPS:
        raise UserError(f"{NEEDED_BY} ended a request with {output.finish_reason!r}; see vLLM's own messages")
    logprobs = [entry[token].logprob for entry, token in zip(output.logprobs, output.token_ids, strict=True)]
    return Completion.without_entropies(output.token_ids, logprobs, STOPS[output.finish_reason], policy_version)


@torch.no_grad()
def with_entropies(
    policy: nn.Module, contexts: Sequence[IntArray], completions: Sequence[Completion], temperature: float
) -> list[Completion]:
    """Add the entropies of `policy` at the completions' tokens, from one more forward pass."""
    sequences = [continuation(context, done.tokens_T) for context, done in zip(contexts, completions, strict=True)]
    entropies: dict[int, FloatArray] = {}
    device = next(policy.parameters()).device
    for positions in split_microbatches(sequences, ENTROPY_TOKENS):
        padded = pad([sequences[i] for i in positions], 0, device)
        _, entropies_BT = token_logprobs(policy, padded.tokens_BT, padded.mask_BT, temperature)
        for i, row_T in zip(positions, entropies_BT.float().cpu().numpy(), strict=True):
            entropies[i] = row_T[sequences[i].mask_T.nonzero()]
    return [replace(done, entropies_T=entropies[i]) for i, done in enumerate(completions)]
