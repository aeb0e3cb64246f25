"""The critic: values of states, from a head on the policy's trunk or from a separate model."""

import copy
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from halfway.curriculum import FloatArray, Group, Request, Rollout, Stream, UserError
from halfway.trainers.contracts import Appraiser, Rollouts
from halfway.trainers.learner.backend import apply_gradients, keep_settings, load_tensors, save_tensors, set_lr
from halfway.trainers.learner.batch import Floats, Join, TrainingSequence, make_sequence
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.scoring import before

CRITIC_FILE = "critic.pt"


class ValueHead(nn.Module):
    """A linear map from hidden states (M, D) to values (M,), in float32 at least. Initially all values are 0."""

    def __init__(self, policy: Any):
        super().__init__()
        dtype = torch.promote_types(policy.dtype, torch.float32)
        size = policy.config.get_text_config().hidden_size
        self.linear = nn.Linear(size, 1, dtype=dtype, device=policy.device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden_MD: Tensor) -> Tensor:
        values_M: Tensor = self.linear(hidden_MD.to(self.linear.weight.dtype))[:, 0]
        return values_M


class ValueModel(nn.Module):
    """A copy of the policy's trunk with a value head, from tokens (B, T) to the values of the M masked tokens."""

    def __init__(self, policy: Any):
        super().__init__()
        self.trunk = copy.deepcopy(policy.base_model)
        self.head = ValueHead(policy)

    def forward(self, tokens_BT: Tensor, mask_BT: Tensor) -> Tensor:
        output = self.trunk(input_ids=tokens_BT, use_cache=False)
        values_M: Tensor = self.head(before(output.last_hidden_state, mask_BT))
        return values_M


class Critic:
    """Owns the critic's weights and their optimizer.

    The value of token t is that of the state before it, from tokens 0..t-1, like its log-probability.
    """

    def __init__(self, policy: Any, options: LearnerOptions, accelerator: Accelerator):
        """
        Args:
            policy: the unwrapped policy with the run's initial weights; a separate critic starts as a copy.
        """
        self.options = options
        self.shared = options.critic.kind == "shared"
        self._policy, self._accelerator = policy, accelerator
        module = ValueHead(policy) if self.shared else ValueModel(policy)
        optimizer = torch.optim.AdamW(
            module.parameters(), options.critic.lr, options.betas, options.eps, weight_decay=options.weight_decay
        )
        self._module, self._optimizer = accelerator.prepare(module.eval(), optimizer)
        self._updates = self._steps = 0

    @property
    def warming_up(self) -> bool:
        """True if the next update trains the critic alone."""
        return self._updates < self.options.critic.warmup_steps

    @property
    def steps(self) -> int:
        """Optimizer steps so far."""
        return self._steps

    def values(self, tokens_BT: Tensor, mask_BT: Tensor, hidden_MD: Tensor | None = None) -> Tensor:
        """Values of the masked tokens, (B, T), 0 elsewhere.

        Args:
            tokens_BT: right-padded.
            hidden_MD: hidden states from the policy's pass over these tokens, for a shared trunk; None = run the trunk
                again, which must not be trained through the result.
        """
        if not self.shared:
            values_M = self._module(tokens_BT, mask_BT)
        else:
            if hidden_MD is None:
                trunk = self._policy.base_model
                output = trunk(input_ids=tokens_BT, use_cache=False)
                hidden_MD = before(output.last_hidden_state, mask_BT)
            values_M = self._module(hidden_MD)
        zeros_BT = torch.zeros(mask_BT.shape, dtype=values_M.dtype, device=values_M.device)
        return zeros_BT.masked_scatter(mask_BT, values_M)

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        """Context of a forward and backward pass; only the last pass of a step averages gradients over processes."""
        return nullcontext() if last else self._accelerator.no_sync(self._module)

    def gradient_norm(self) -> float:
        """Clip the gradients; returns their norm before."""
        max_norm = self.options.max_grad_norm or math.inf
        return float(self._accelerator.clip_grad_norm_(self._module.parameters(), max_norm))

    def step(self, lr_factor: float) -> None:
        """Apply the gradients with this share of the peak learning rate, and clear them."""
        set_lr(self._optimizer, self.options.critic.lr * lr_factor)
        apply_gradients(self._accelerator, self._optimizer)
        self._steps += 1

    def end_update(self) -> None:
        """Count an update of the learner."""
        self._updates += 1

    def drop_gradients(self) -> None:
        self._optimizer.zero_grad()

    def state_dict(self) -> dict[str, Tensor]:
        """The critic's own weights."""
        state: dict[str, Tensor] = self._accelerator.unwrap_model(self._module).state_dict()
        return state

    def save(self, folder: Path) -> None:
        """Write weights and optimizer to `critic.pt`. Raises OSError if the file cannot be written."""
        state = {"weights": self.state_dict(), "optimizer": self._optimizer.state_dict()}
        save_tensors({**state, "steps": self._steps, "updates": self._updates}, folder / CRITIC_FILE)

    def load(self, folder: Path) -> None:
        """Restore the checkpoint of `save`.

        Raises:
            UserError: if the checkpoint has no critic, or a critic of another kind.
        """
        file = folder / CRITIC_FILE
        try:
            state = load_tensors(file)
            self._accelerator.unwrap_model(self._module).load_state_dict(state["weights"])
        except (FileNotFoundError, RuntimeError) as error:
            trouble = "does not fit this run's settings" if file.exists() else "is missing"
            raise UserError(
                f"learner: the critic of {folder} {trouble}; resume with the learner.advantage and learner.critic.kind "
                "that wrote the checkpoint"
            ) from error
        self._steps, self._updates = state["steps"], state["updates"]
        self._optimizer.load_state_dict(state["optimizer"])
        keep_settings(self._optimizer, self.options)


@dataclass(frozen=True)
class ValuedRollouts:
    """Adds the critic's values to the tokens of rollouts, for controllers that need them."""

    rollouts: Rollouts
    learner: Appraiser

    @property
    def judge_seconds(self) -> float:
        return self.rollouts.judge_seconds

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return self.learner.with_values(self.rollouts.run(requests, stream))


def generated_sequences(groups: Sequence[Group], join: Join = np.concatenate) -> list[TrainingSequence]:
    """One sequence for each rollout with a generated token; `join` as in `make_sequence`."""
    return [make_sequence(g.prompt_tokens_P, r, 0.0, join) for g in groups for r in g.rollouts if r.num_generated]


def value_groups(groups: Sequence[Group], values: Iterable[Floats]) -> list[Group]:
    """Add values to the turns of groups; a rollout without a generated token gets zeros.

    Args:
        values: one array per sequence of `generated_sequences`, over all its tokens.
    """
    rows = iter(values)

    def value(rollout: Rollout, num_prompt: int) -> Rollout:
        if rollout.num_generated:
            return add_values(rollout, next(rows)[num_prompt:].astype(np.float32))
        length = sum(len(turn.tokens_T) + len(turn.observation_tokens_O) for turn in rollout.turns)
        return add_values(rollout, np.zeros(length, np.float32))

    return [replace(g, rollouts=tuple(value(r, len(g.prompt_tokens_P)) for r in g.rollouts)) for g in groups]


def add_values(rollout: Rollout, values_T: FloatArray) -> Rollout:
    """Add a value to every token of a rollout.

    Args:
        values_T: values of the tokens of all turns and observations in order, without the prompt.
    """
    turns, start = [], 0
    for turn in rollout.turns:
        end = start + len(turn.tokens_T)
        turns.append(replace(turn, values_T=values_T[start:end]))
        start = end + len(turn.observation_tokens_O)
    assert start == len(values_T), "values of another rollout"
    return replace(rollout, turns=tuple(turns))
