"""Sampling with the policy as a `transformers` module, batched, with a key-value cache.

It runs in this process, or as a replica in another one while the learner updates.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from halfway.curriculum import IntArray, UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.engines.contract import Completion, Engine, EngineSetup, Finished
from halfway.trainers.learner.scoring import cache_name
from halfway.trainers.learner.weights import copy_weights

# Share of ended rows at which they are removed from the batch together: each removal copies the cache.
ENDED_SHARE = 0.125

# Columns by which a full cache grows: each growth copies it.
MORE_COLUMNS = 32


class TransformersEngine(Engine):
    """Samples from a causal language model of `transformers` by inverse transform, one uniform number per token.

    The uniforms of a sequence come from its seed alone, so its tokens do not depend on the rest of the batch (except
    where rounding moves a probability past a uniform, about one token in 10^6 in float32). Equal calls give bit-equal
    completions on the same weights, device and number of threads.
    """

    def __init__(self, setup: EngineSetup):
        """
        Args:
            setup: holds the policy, unwrapped and on its device. The learner's own module shares its weights with the
                engine; any other module is a copy (see `sync`).
        """
        self.setup = setup
        self.policy, self.policy_version = setup.policy, setup.policy_version

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        """Continue each context, see `halfway.trainers.engines.contract.Engine.generate`.

        Contexts of similar length are decoded together. The policy keeps its mode (train or eval).

        Raises:
            ValueError: if the three sequences differ in length, a context is empty or a limit is below 1.
            FloatingPointError: if the policy's logits are NaN or infinite.
        """
        calls = [(np.asarray(c, np.int32), n, seed) for c, n, seed in zip(contexts, max_new_tokens, seeds, strict=True)]
        if any(len(context) == 0 or limit < 1 for context, limit, _ in calls):
            raise ValueError("generate: every context needs a token and every limit must be at least 1")
        order = sorted(range(len(calls)), key=lambda i: len(contexts[i]))
        completions: dict[int, Completion] = {}
        training = self.policy.training
        self.policy.eval()
        try:
            for start in range(0, len(order), self.setup.max_sequences):
                chunk = order[start : start + self.setup.max_sequences]
                for row, completion in self._generate_chunk([calls[i] for i in chunk]):
                    completions[chunk[row]] = completion
                    if finished is not None:
                        finished(chunk[row], completion)
        finally:
            self.policy.train(training)
        return [completions[i] for i in range(len(calls))]

    def sync(self, policy: nn.Module, version: int) -> None:
        """Copy the weights of `policy` tensor by tensor, or do nothing if it is the engine's own module."""
        if policy is not self.policy:
            copy_weights(policy, self.policy)
        self.policy_version = version

    def _generate_chunk(self, calls: Sequence[tuple[IntArray, int, int]]) -> Iterator[tuple[int, Completion]]:
        """Yield the index and completion of each call, in the order in which they end."""
        contexts = [context for context, _, _ in calls]
        limits_B = np.asarray([limit for _, limit, _ in calls])
        uniforms_BT = np.zeros((len(calls), limits_B.max()))
        for uniforms_T, (_, limit, seed) in zip(uniforms_BT, calls, strict=True):
            uniforms_T[:limit] = np.random.default_rng(seed).random(limit)
        for rows_B, tokens_BT, logprobs_BT, entropies_BT in self._decode(contexts, limits_B, uniforms_BT):
            if np.isnan(logprobs_BT).any():
                raise FloatingPointError("generate: the policy's logits are not finite; its weights have diverged")
            ends_BT = np.isin(tokens_BT, self.setup.eos_token_ids)
            for b, row in enumerate(rows_B.tolist()):
                ends_T = ends_BT[b, : limits_B[row]]
                length = int(ends_T.argmax()) + 1 if ends_T.any() else int(limits_B[row])
                yield (
                    row,
                    Completion(
                        tokens_T=tokens_BT[b, :length].astype(np.int32),
                        logprobs_T=logprobs_BT[b, :length].copy(),
                        entropies_T=entropies_BT[b, :length].copy(),
                        stop="end" if ends_T.any() else "length",
                        policy_version=self.policy_version,
                    ),
                )

    @torch.inference_mode()
    def _decode(
        self, contexts: Sequence[IntArray], limits_B: NDArray[np.int64], uniforms_BT: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]]:
        """Yield rows that leave the batch together, with their tokens, log-probabilities and entropies.

        The content after a row's end or limit is arbitrary.
        """
        num_rows, num_tokens = uniforms_BT.shape
        batch = _Batch(self.policy, contexts, num_tokens, self.setup.pad_token_id)
        device = batch.logits_BV.device
        ends_E = torch.as_tensor(self.setup.eos_token_ids, dtype=torch.int64, device=device)
        limits = torch.as_tensor(limits_B, device=device)
        uniforms = torch.as_tensor(uniforms_BT, device=device)
        tokens = torch.zeros(num_rows, num_tokens, dtype=torch.int64, device=device)
        logprobs = torch.zeros(num_rows, num_tokens, device=device)
        entropies = torch.zeros(num_rows, num_tokens, device=device)

        def show(left: Tensor) -> tuple[Any, ...]:
            return tuple(part.cpu().numpy() for part in (left, tokens[left], logprobs[left], entropies[left]))

        rows = torch.arange(num_rows, device=device)  # the rows still in the batch
        running = torch.ones_like(rows, dtype=torch.bool)
        for t in range(num_tokens):
            token, logprobs[rows, t], entropies[rows, t] = sample(
                batch.logits_BV, uniforms[rows, t], self.setup.temperature
            )
            tokens[rows, t] = token
            running &= ~torch.isin(token, ends_E) & (limits[rows] > t + 1)
            share = float(running.float().mean())
            if share == 0:
                break
            if share <= 1 - ENDED_SHARE:
                yield show(rows[~running])
                still_running = running.nonzero()[:, 0]
                rows, running, token = rows[still_running], running[still_running], token[still_running]
                batch.keep(still_running)
            batch.advance(token)
        yield show(rows)


class _Batch:
    """Sequences decoded together: the policy's cache and each row's position."""

    def __init__(self, policy: nn.Module, contexts: Sequence[IntArray], num_tokens: int, pad_token_id: int):
        """Read each distinct context once; the rollouts of a group share theirs.

        Args:
            num_tokens: maximum number of tokens that a row can grow by.
        """
        self.policy = policy
        device = next(policy.parameters()).device
        keys = [context.tobytes() for context in contexts]
        distinct = dict(zip(keys, contexts, strict=True))
        column = max(len(context) for context in contexts)
        tokens_UP = torch.full((len(distinct), column), pad_token_id, dtype=torch.int64)
        mask_UT = torch.ones(len(distinct), column + num_tokens, dtype=torch.int64)
        for row, context in enumerate(distinct.values()):
            padding = column - len(context)
            tokens_UP[row, padding:] = torch.as_tensor(context, dtype=torch.int64)
            mask_UT[row, :padding] = 0

        config: Any = policy.config
        self._cache, self._cache_name = DynamicCache(config=config), cache_name(policy)
        # Other layers, such as those with a sliding window, stay as they are.
        self._cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in self._cache.layers]
        self._column = column  # columns read so far, padding included
        self._mask_BT = mask_UT.to(device)
        self._padded = bool((mask_UT == 0).any())
        # Explicit positions: by default they would count the padding.
        positions_UP = (mask_UT[:, :column].cumsum(1) - 1).clamp(min=0).to(device)
        logits_UV = self._forward(tokens_UP.to(device), positions_UP)

        row_of = {key: row for row, key in enumerate(distinct)}
        copies_B = torch.tensor([row_of[key] for key in keys], device=device)
        self._positions_B = positions_UP[:, -1]
        self.keep(copies_B)
        self.logits_BV = logits_UV[copies_B]

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows only. `logits_BV` belongs to the old rows until the next `advance`."""
        self._cache.batch_select_indices(rows)
        self._mask_BT = self._mask_BT[rows]
        self._positions_B = self._positions_B[rows]

    def advance(self, token_B: Tensor) -> None:
        """Read one more token per row."""
        self._column += 1
        self._positions_B = self._positions_B + 1
        self.logits_BV = self._forward(token_B[:, None], self._positions_B[:, None])

    def _forward(self, tokens_BT: Tensor, positions_BT: Tensor) -> Tensor:
        output = self.policy(
            input_ids=tokens_BT,
            # Without padding a mask only costs time: it is rebuilt for every token.
            attention_mask=self._mask_BT[:, : self._column] if self._padded else None,
            position_ids=positions_BT,
            **{self._cache_name: self._cache},
            use_cache=True,
            logits_to_keep=1,
        )
        logits_BV: Tensor = output.logits[:, -1]
        return logits_BV


_Layer: Any = DynamicLayer  # its functions are only half typed


class RoomyLayer(_Layer):  # type: ignore[misc]
    """Keys and values of one layer, with room to grow; the original copies all of them for every token."""

    _room: tuple[Tensor, Tensor]
    _filled: int

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append the new tokens' (B, heads, tokens, size); returns all so far, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room, self._filled = (key_states[:, :, :0], value_states[:, :, :0]), 0
        start, self._filled = self._filled, self._filled + key_states.shape[2]
        if self._filled > self._room[0].shape[2]:
            keys, values = self._room
            self._room = (self._with_room(keys, start), self._with_room(values, start))
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : self._filled] = states
        return self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        """Drop the rows that are not in `indices`."""
        keys, values = self._room
        self._room = (keys[indices], values[indices])
        self._show()

    def _with_room(self, states: Tensor, filled: int) -> Tensor:
        rows, heads, _, size = states.shape
        room = states.new_empty(rows, heads, self._filled + MORE_COLUMNS, size)
        room[:, :, :filled] = states[:, :, :filled]
        return room

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (room[:, :, : self._filled] for room in self._room)
        self.keys, self.values = keys, values
        return keys, values


def sample(logits_BV: Tensor, uniforms_B: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Sample one token per row by inverse transform of the tempered softmax.

    A token with probability 0 in float32 is never sampled.

    Args:
        logits_BV: of any floating type; probabilities are computed in float32, cumulated in float64.
        uniforms_B: float64, in [0, 1).

    Returns:
        tokens_B, their natural-log probabilities, and the entropies in nats of their distributions.
    """
    logprobs_BV = torch.log_softmax(logits_BV.float() / temperature, dim=-1)
    probabilities_BV = logprobs_BV.exp()
    # Where the probability is 0, -1 keeps the cumulation below any threshold. A plain running sum would need
    # neighbouring sums to be equal there, which a parallel sum on an accelerator does not guarantee.
    cumulated_BV = probabilities_BV.cumsum(-1, dtype=torch.float64).masked_fill_(probabilities_BV == 0, -1.0)
    total_B = cumulated_BV.amax(-1)
    below_total_B = torch.nextafter(total_B, torch.zeros_like(total_B))
    threshold_B = torch.minimum(uniforms_B * total_B, below_total_B)
    tokens_B = (cumulated_BV > threshold_B[:, None]).view(torch.uint8).argmax(-1)
    chosen_B = logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]
    # 0 log 0 is 0. This takes two thirds of the time of `torch.special.entr`.
    parts_BV = (probabilities_BV * logprobs_BV).masked_fill_(probabilities_BV == 0, 0.0)
    return tokens_B, chosen_B, 0.0 - parts_BV.sum(-1)


class ReplicaEngine(TransformersEngine):
    """Samples in its own process, from weights in shared memory.

    With GPUs, it samples on the last one from a copy of the weights; the learner uses the first.
    """

    def __init__(self, setup: EngineSetup):
        """
        Args:
            setup: holds a copy of the policy, in main memory.

        Raises:
            UserError: if the copy does not fit in shared memory.
        """
        super().__init__(setup)
        try:
            self._shared = setup.policy.share_memory()
        except RuntimeError as error:
            raise UserError(
                f"rollouts.staleness: no room in shared memory for a copy of the policy ({one_line(error)}); enlarge "
                "/dev/shm (docker run --shm-size, an emptyDir with medium: Memory), or set rollouts.staleness=0"
            ) from error

    def refresh(self, version: int) -> None:
        """Use the weights now in shared memory, which have this version."""
        if self.policy is self._shared and torch.cuda.is_available():
            self.policy = copy.deepcopy(self._shared).to(f"cuda:{torch.cuda.device_count() - 1}")
        self.sync(self._shared, version)


class ElsewhereEngine(Engine):
    """Forwards calls to a `ReplicaEngine` in another process.

    Attributes:
        shared: the module whose weights both processes share.
        call: calls a method of the replica, by name.
    """

    def __init__(self, shared: nn.Module, version: int, call: Callable[..., Any]):
        """
        Args:
            version: version of the weights shared now.
        """
        self.shared, self.call = shared, call
        self.call("refresh", version)

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        completions: list[Completion] = self.call("generate", contexts, max_new_tokens, seeds)
        for i, completion in enumerate(completions):
            if finished is not None:
                finished(i, completion)
        return completions

    def sync(self, policy: nn.Module, version: int) -> None:
        """Copy the weights of `policy` into shared memory. The replica must not be sampling."""
        copy_weights(policy, self.shared)
        self.call("refresh", version)
