"""Models and checkpoints."""

import hashlib
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

from paths import REPOSITORY

from strangers.files import PLAIN_RUN, RECIPES, TINY, make_run
from strangers.kinds import Kind, every_file

MODEL = REPOSITORY / "experiments" / "starting_models" / "sums"
LORA = ["model.lora.rank=2", "model.lora.alpha=4"]
LORA_RUN = partial(make_run, LORA)


def hash_of(tensors: Any) -> str:
    import torch

    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(name.encode())
        plain = torch.is_tensor(value) and value.ndim
        digest.update(
            value.detach().contiguous().view(torch.uint8).numpy().tobytes() if plain else repr(value).encode()
        )
    return digest.hexdigest()


def make_model(folder: Path) -> None:
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)


def weights(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def read_model(folder: Path) -> Any:
    """As a run does before its first step, with the first prompt."""
    from halfway.trainers.policy import ModelOptions, load_policy

    policy = load_policy(ModelOptions(path=str(folder)), str(folder))
    tokens = policy.tokenizer.encode("^1/0a1b2=", add_special_tokens=False)
    return (
        hash_of(policy.model.state_dict()),
        policy.end_tokens,
        policy.padding,
        tokens,
        policy.tokenizer.decode(tokens, skip_special_tokens=True),
    )


# ---------------------------------------------------------------- checkpoints


def checkpoint_files(folder: Path) -> list[Path]:
    return [path for path in every_file(folder) if "checkpoints" in path.parts]


def reseal(folder: Path) -> None:
    """Write the checksums again, as who changes a folder can, but of a file without end."""
    from halfway.trainers.loop.manifest import MANIFEST, write_manifest

    [checkpoint] = (folder / "run" / "checkpoints").glob("step-*")
    if max(path.stat().st_size for path in every_file(checkpoint)) < 1 << 30 and (checkpoint / MANIFEST).is_file():
        write_manifest(checkpoint)


@cache
def training(lora: bool) -> Any:
    """A run before it looks for its checkpoint."""
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.build import build_run

    changes = [*TINY, *(LORA if lora else [])]
    config = load_run_config(RECIPES / "lab" / "sums.yaml", changes)
    return build_run(config, Path(tempfile.mkdtemp()) / "run")


def warm(folder: Path) -> None:
    training(False)


def warm_lora(folder: Path) -> None:
    training(True)


def read_checkpoint(folder: Path) -> Any:
    """As `halfway resume` does before its first step."""
    return _resumed(folder, False)


def read_lora_checkpoint(folder: Path) -> Any:
    return _resumed(folder, True)


def _resumed(folder: Path, lora: bool) -> Any:
    from dataclasses import replace

    from halfway.trainers.loop.checkpoint import Checkpoints
    from halfway.trainers.loop.records import RunLog

    run = training(lora)
    run.folder = folder / "run"
    run.checkpoints = Checkpoints(run.folder / "checkpoints", run.checkpoints.options)
    run.log = replace(run.log, folder=run.folder) if hasattr(run.log, "__dataclass_fields__") else RunLog(run.folder)
    run.resume()
    learner = run.learner
    optimizer = learner._backend.optimizer.state_dict()["state"]
    return (
        hash_of(learner.policy.state_dict()),
        [hash_of(state) for state in optimizer.values()],
        learner.policy_version,
        run.session.state_dict(),
        run.progress,
    )


MODELS: dict[str, Kind] = {
    "model": Kind(make_model, read_model),
    "model's weights": Kind(make_model, read_model, weights, binary=True),
    "checkpoint": Kind(PLAIN_RUN, read_checkpoint, checkpoint_files, True, True, warm=warm),
    "checkpoint, checksums written again": Kind(PLAIN_RUN, read_checkpoint, checkpoint_files, after=reseal, warm=warm),
    "adapter's checkpoint": Kind(LORA_RUN, read_lora_checkpoint, checkpoint_files, True, True, warm=warm_lora),
    "adapter's checkpoint, checksums written again": Kind(
        LORA_RUN, read_lora_checkpoint, checkpoint_files, after=reseal, warm=warm_lora
    ),
}
