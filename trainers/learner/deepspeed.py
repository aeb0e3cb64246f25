"""The learner on DeepSpeed, through accelerate: optimizer, gradients and weights sharded over processes (ZeRO)."""

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from torch import Tensor, nn

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.distributed.ports import free_port, use_interface_towards
from halfway.trainers.learner.backend import (
    FORM,
    build_optimizer,
    keep_settings,
    other_model,
    require_stage,
    save_policy,
    set_lr,
)
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.shards import SHARDS, TAG, UNIVERSAL, convert, opening_safely

NEEDED_BY = "learner.deepspeed"
# Between two collectives of the training group, one process may broadcast a part of the weights to servers for up to
# `vllm_servers.seconds`. DeepSpeed's own timeout, ten minutes, could end the waiting processes.
TRAINING_PATIENCE = timedelta(hours=1)
# DeepSpeed's converter refuses ZeRO-1 and -2 checkpoints without it.
UNIVERSAL_INFO = {"universal_checkpoint_info": {"universal_checkpoint_version": 0.2}}


def deepspeed_config(options: LearnerOptions, bfloat16: bool) -> dict[str, Any]:
    """Build DeepSpeed's own configuration.

    The learner makes the micro-batches and marks the last one of a step for DeepSpeed, which does not count them.
    """
    chosen = options.deepspeed
    assert chosen.zero_stage is not None
    zero: dict[str, Any] = {"stage": chosen.zero_stage}
    if chosen.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    if chosen.offload_parameters:
        zero["offload_param"] = {"device": "cpu"}
    if chosen.zero_stage == 3:
        zero["stage3_param_persistence_threshold"] = chosen.persistence_threshold
    # Type in which gradients accumulate. At stage 1 it would change DeepSpeed's optimizer; stage 0 ignores it.
    accumulation = {"grad_accum_dtype": "fp32"} if bfloat16 and chosen.zero_stage in (2, 3) else {}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.max_grad_norm,
        "zero_optimization": zero,
        "bf16": {"enabled": bfloat16},
        "data_types": accumulation,
        # DeepSpeed would compile its own Adam for the CPU at first use; torch's is equal but slower.
        "zero_force_ds_cpu_optimizer": torch.cuda.is_available(),
        "zero_allow_untested_optimizer": True,
        "steps_per_print": sys.maxsize,
    }


def build_accelerator(options: LearnerOptions, bfloat16: bool) -> Accelerator:
    """Make the accelerator that prepares models with DeepSpeed.

    Raises:
        UserError: if DeepSpeed is not installed.
    """
    # DeepSpeed's compiler looks for programs on PATH, which has this environment's only if it was activated.
    os.environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", "")
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    if "RANK" not in os.environ:
        single = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        os.environ.update({name: str(value) for name, value in single.items()})
    load_extra("ninja", NEEDED_BY, "deepspeed")
    deepspeed = load_extra("deepspeed", NEEDED_BY, "deepspeed")
    if os.environ.get("LOCAL_RANK") == "0":
        report_locks()
    if not torch.distributed.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        use_interface_towards(os.environ.get("MASTER_ADDR", ""))
        deepspeed.init_distributed(
            dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=TRAINING_PATIENCE
        )
    from accelerate.utils import DeepSpeedPlugin

    plugin = DeepSpeedPlugin(hf_ds_config=deepspeed_config(options, bfloat16), zero3_init_flag=False)
    if not torch.cuda.is_available():
        # Accelerator(cpu=True) would leave DeepSpeed out; without this state it would see only one process.
        PartialState(cpu=True)
    return Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16" if bfloat16 else "no")


def report_locks() -> None:
    """Report on stderr the locks of processes that compile for DeepSpeed.

    torch waits as long as a lock exists, and a killed process leaves its lock behind.
    """
    from torch.utils.cpp_extension import get_default_build_root

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in sorted(root.glob("**/deepspeed_*/lock")):
        print(f"DeepSpeed: waits for another process to compile; if none is running, remove {lock}", file=sys.stderr)


class DeepSpeedBackend:
    """A DeepSpeed engine, driven one micro-batch at a time. See `halfway.trainers.learner.backend.Backend`.

    With bfloat16 weights the optimizer keeps float32 copies of them.
    """

    def __init__(self, policy: nn.Module, options: LearnerOptions, accelerator: Accelerator | None = None):
        dtype = next(policy.parameters()).dtype
        self.options = options
        self.accelerator = accelerator or build_accelerator(options, dtype == torch.bfloat16)
        self.model, self._optimizer = self.accelerator.prepare(policy, build_optimizer(policy, options))
        self._engine: Any = self.model
        self._stage = options.deepspeed.zero_stage

    @property
    def policy(self) -> Any:
        return self._engine.module

    @contextmanager
    def microbatch(self, last: bool) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(is_boundary=last)
        yield

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss)

    def gradient_norm(self) -> float | None:
        """See `Backend`. Known before the step only at stage 0 in float32, where every process has all gradients."""
        if self._stage != 0 or self.policy.dtype != torch.float32:
            return None
        gradients = [p.grad for p in self.policy.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    def step(self, lr: float) -> float | None:
        set_lr(self._optimizer, lr)
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        return None if norm is None else float(norm)

    def drop_gradients(self) -> None:
        self._engine.zero_grad()

    def save(self, folder: Path) -> None:
        """Write every process's shards; the main process also writes the policy, gathered tensor by tensor."""
        with full_disks():
            self._engine.save_checkpoint(str(folder / SHARDS), tag=TAG, client_state=dict(UNIVERSAL_INFO))
        save_policy(self.policy, folder, self.accelerator.is_main_process)
        if self.accelerator.is_main_process:
            form = {"zero_stage": self._stage, "processes": self.accelerator.num_processes}
            (folder / FORM).write_text(json.dumps(form))
        wait_for_all()  # with a long timeout: the main process writes the whole policy alone

    def load(self, folder: Path) -> None:
        """Restore a checkpoint; one from another number of processes is converted first, beside its shards."""
        form = require_stage(folder, self._stage)
        universal = form["processes"] != self.accelerator.num_processes and self._stage != 0
        if universal and self.accelerator.is_main_process and not (folder / UNIVERSAL).exists():
            convert(folder)
        wait_for_all()  # with a long timeout: converting a large model is slow
        shards = folder / (UNIVERSAL if universal else SHARDS)
        if not any((shards / TAG).glob("*model_states.pt")):  # DeepSpeed asserts this without a message
            raise UserError(f"learner.deepspeed: {folder} holds no shards of DeepSpeed; resume from another checkpoint")
        config = self._engine._config
        config.load_universal_checkpoint = universal
        try:
            with opening_safely():
                self._engine.load_checkpoint(str(shards), tag=TAG)
        except RuntimeError as error:
            raise other_model(folder) from error
        finally:
            config.load_universal_checkpoint = False
        optimizer = self._engine.optimizer
        keep_settings(optimizer, self.options)
        if hasattr(optimizer, "clip_grad"):  # without a wrapper the engine clips, by its own configuration
            optimizer.clip_grad = self.options.max_grad_norm


@contextmanager
def full_disks() -> Iterator[None]:
    """Raise OSError where torch reports an unwritable file as an internal error."""
    try:
        yield
    except RuntimeError as error:
        if not any(part in str(error) for part in ("inline_container", "PytorchStreamWriter")):
            raise
        raise OSError(f"torch could not write a file, as on a full disk: {one_line(error)}") from error
