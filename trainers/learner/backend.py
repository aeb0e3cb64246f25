"""Optimizer steps, on a whole or a sharded model."""

import copy
import errno
import math
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import ANOTHER, read_json
from halfway.curriculum.support.extras import one_line
from halfway.trainers.distributed.ports import use_interface_towards
from halfway.trainers.learner.adapters import adapter_parameters, has_adapters, load_adapters, save_adapters
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.weights import full_tensor, is_partitioned, named_weights
from halfway.trainers.model_folder import MERGE

POLICY_FOLDER = "policy"
OPTIMIZER_FILE = "optimizer.pt"
FORM = "deepspeed.json"
"""Describes a checkpoint that DeepSpeed wrote."""


class Backend(Protocol):
    """Owns the model and its optimizer. On several processes, all make the same calls."""

    accelerator: Accelerator
    model: nn.Module

    @property
    def policy(self) -> Any:
        """The model itself, unwrapped."""
        ...

    def microbatch(self, last: bool) -> AbstractContextManager[None]:
        """Context of one forward and `backward` pass. `last`: it is the last pass of its optimizer step."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss. Gradients are averaged over the processes at the last micro-batch."""
        ...

    def gradient_norm(self) -> float | None:
        """Clip the gradients to options.max_grad_norm; returns the global norm before. None: only `step` knows it."""
        ...

    def step(self, lr: float) -> float | None:
        """Apply and drop the gradients. Returns their norm before clipping if `gradient_norm` did not."""
        ...

    def drop_gradients(self) -> None: ...

    def save(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder and the optimizer beside it. Raises OSError, as on a full disk."""
        ...

    def load(self, folder: Path) -> None:
        """Restore the checkpoint of `save`. Raises UserError if it belongs to another model."""
        ...


class PlainBackend:
    """Every process holds the whole model and optimizer; with several, torch's DistributedDataParallel."""

    def __init__(self, policy: nn.Module, options: LearnerOptions, accelerator: Accelerator | None = None):
        self.accelerator = accelerator or build_accelerator()
        self.options = options
        self.model, self.optimizer = self.accelerator.prepare(policy, build_optimizer(policy, options))
        if isinstance(self.model, DistributedDataParallel):
            # Buffers are equal everywhere. A process that reads a shared context makes one more forward pass, in which
            # others would wait for an exchange.
            self.model.broadcast_buffers = False

    @property
    def policy(self) -> Any:
        return self.accelerator.unwrap_model(self.model)

    def microbatch(self, last: bool) -> AbstractContextManager[None]:
        scope: AbstractContextManager[None] = nullcontext() if last else self.accelerator.no_sync(self.model)
        return scope

    def backward(self, loss: Tensor) -> None:
        self.accelerator.backward(loss)

    def gradient_norm(self) -> float | None:
        max_norm = self.options.max_grad_norm or math.inf
        return float(self.accelerator.clip_grad_norm_(self.model.parameters(), max_norm))

    def step(self, lr: float) -> float | None:
        set_lr(self.optimizer, lr)
        apply_gradients(self.accelerator, self.optimizer)
        return None

    def drop_gradients(self) -> None:
        self.optimizer.zero_grad()

    def save(self, folder: Path) -> None:
        if not self.accelerator.is_main_process:
            return
        save_policy(self.policy, folder, True)
        save_tensors(self.optimizer.state_dict(), folder / OPTIMIZER_FILE)

    def load(self, folder: Path) -> None:
        require_stage(folder, None)
        policy = self.policy
        try:
            if has_adapters(policy):
                load_adapters(policy, folder)
            else:
                # With this run's configuration: a folder without one would load as a model of the default size.
                config = copy.deepcopy(policy.config)
                saved = type(policy).from_pretrained(
                    folder / POLICY_FOLDER, config=config, dtype=policy.dtype, use_safetensors=True
                )
                policy.load_state_dict(saved.state_dict())
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"learner: {folder} holds no policy in safetensors ({one_line(error)}); resume from a checkpoint of "
                "Halfway"
            ) from error
        except RuntimeError as error:
            raise other_model(folder) from error
        self.optimizer.load_state_dict(load_tensors(folder / OPTIMIZER_FILE))
        keep_settings(self.optimizer, self.options)


def build_accelerator() -> Accelerator:
    """Make the accelerator for whole models, which compute in the type of their weights.

    Without CUDA it is the CPU: Apple's GPUs have no float64.

    Raises:
        UserError: if another trainer has set up accelerate differently in this process, which cannot be undone.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        use_interface_towards(os.environ.get("MASTER_ADDR", ""))
    try:
        return Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no")
    except ValueError:
        state = AcceleratorState()
        raise UserError(
            f"learner: this process already uses accelerate with mixed_precision={state.mixed_precision} on "
            f"{state.device}, set up by another trainer; start Halfway in a process of its own"
        ) from None


def build_optimizer(policy: nn.Module, options: LearnerOptions) -> torch.optim.AdamW:
    """Make AdamW over the trainable weights. Raises UserError if there are none."""
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    if not trained:
        raise UserError(f"model.path: all weights are frozen, as by an adapter in the folder; {MERGE}")
    return torch.optim.AdamW(trained, options.lr, options.betas, options.eps, weight_decay=options.weight_decay)


def apply_gradients(accelerator: Accelerator, optimizer: Any) -> None:
    """Take one step of a prepared optimizer, and drop its gradients."""
    # All accelerators of a process share this switch. A trainer stopped between the micro-batches of a step leaves it
    # off, and accelerate would then silently skip our steps.
    accelerator.sync_gradients = True
    optimizer.step()
    optimizer.zero_grad()


def keep_settings(optimizer: Any, options: LearnerOptions) -> None:
    """Restore AdamW's settings of this run, which loading a state has replaced."""
    for group in optimizer.param_groups:
        group |= {"betas": options.betas, "eps": options.eps, "weight_decay": options.weight_decay}


def set_lr(optimizer: Any, lr: float) -> None:
    """Give all parameters one learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def save_tensors(state: object, path: Path) -> None:
    """`torch.save`, but raises OSError if the file cannot be written; torch raises an internal error on a full disk."""
    with path.open("wb") as file:  # not by its path: then torch hides the system's error
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def load_tensors(path: Path) -> dict[str, Any]:
    """Load a file of `save_tensors`: tensors and plain data.

    Raises:
        UserError: if the file contains anything else, which could run code.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"{path}: holds more than tensors and plain data, which could run code; resume from a checkpoint of Halfway"
        ) from error
    except RuntimeError as error:
        raise UserError(f"{path}: is damaged ({one_line(error)}); resume from another checkpoint") from error
    return state


def save_policy(policy: Any, folder: Path, writes: bool) -> None:
    """Write a plain Hugging Face folder with adapters merged in, and the adapters in a separate folder.

    Weights sharded by ZeRO-3 are gathered, so then every process must call this.

    Args:
        writes: whether this process writes.

    Raises:
        OSError: if a file cannot be written.
    """
    adapters = adapter_parameters(policy)
    weights: dict[str, Tensor] | None = None
    if adapters or any(map(is_partitioned, policy.parameters())):
        weights = {name: weight.to("cpu", copy=True) for name, weight in named_weights(policy) if writes}
    small = {name: full_tensor(parameter).to("cpu", copy=True) for name, parameter in adapters.items()}
    if not writes:
        return
    with os_errors():
        policy.save_pretrained(folder / POLICY_FOLDER, state_dict=weights)
        if adapters:
            save_adapters(policy, small, folder)


@contextmanager
def os_errors() -> Iterator[None]:
    """Turn a failed write of safetensors or tokenizers, which name the system's error in a text, into an OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # tokenizers raises no other class
        number = re.search(r"os error (\d+)", str(error))
        if number is None and not isinstance(error, SafetensorError):
            raise
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error


def require_stage(folder: Path, stage: int | None) -> dict[str, Any]:
    """Read how DeepSpeed wrote a checkpoint; empty if it did not. Raises UserError for another stage of ZeRO."""
    form = read_json(folder / FORM, ANOTHER) if (folder / FORM).exists() else {"zero_stage": None}
    if form["zero_stage"] != stage:
        own, written = ("null" if each is None else each for each in (stage, form["zero_stage"]))
        raise UserError(
            f"learner.deepspeed.zero_stage: {own} cannot read {folder}, written with {written}; "
            f"resume with learner.deepspeed.zero_stage={written}"
        )
    return form


def other_model(folder: Path) -> UserError:
    """The error for a checkpoint that does not fit."""
    return UserError(f"learner: {folder} is a checkpoint of another model; resume with the model that wrote it")
