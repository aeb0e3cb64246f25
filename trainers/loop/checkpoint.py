"""Checkpoints: one folder per step, complete or absent."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from halfway.curriculum.support.atomic import WriteError, replacing_folder
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.loop.options import CheckpointOptions

STATE_FILE = "loop.json"


@dataclass(frozen=True)
class Checkpoints:
    """Writes, prunes and finds the checkpoints of one run.

    Attributes:
        folder: holds one sub-folder per checkpoint, "step-00000012" after twelve steps.
        options: how often, and how many are kept.
    """

    folder: Path
    options: CheckpointOptions

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs after `step` finished steps."""
        return step % self.options.every == 0

    def steps(self) -> list[int]:
        """The steps that can be resumed from, oldest first."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(self, step: int, state: Any, save_parts: Callable[[Path], None]) -> None:
        """Write the checkpoint of `step`: `state` as JSON, and whatever `save_parts` puts into the folder.

        The folder is written under another name and renamed when complete, so a run killed here resumes from the
        checkpoint before.

        Raises:
            UserError: if it cannot be written, for example on a full disk; earlier checkpoints stay as they are.
        """
        try:
            with replacing_folder(self.path(step)) as partial:
                save_parts(partial)
                (partial / STATE_FILE).write_text(json.dumps(state))
        except WriteError as error:
            raise UserError(
                f"checkpoint: {self.path(step)} cannot be written ({error.reason}); "
                f"{self._intact()}; make room for it and resume"
            ) from error
        self._prune()

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, or None."""
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    @contextmanager
    def reading(self, folder: Path) -> Iterator[Any]:
        """The state in a checkpoint, while the rest of it is read by others.

        Raises:
            UserError: if a file of the checkpoint is missing or damaged.
        """
        try:
            yield json.loads((folder / STATE_FILE).read_text())
        except Exception as error:
            if not means_damage(error):
                raise
            earlier = [step for step in self.steps() if self.path(step) < folder]
            where = f"from the checkpoint of step {earlier[-1]}" if earlier else "from the start"
            raise UserError(
                f"checkpoint: {folder} cannot be read ({one_line(error)}); mend it, or move this folder elsewhere and "
                f"resume {where}"
            ) from error

    def _intact(self) -> str:
        steps = self.steps()
        return f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no earlier checkpoint"

    def _prune(self) -> None:
        for step in self.steps()[: -self.options.keep]:
            shutil.rmtree(self.path(step))


def means_damage(error: Exception) -> bool:
    """Whether reading a file failed for what is in it, or because it is not there.

    The errors of safetensors and of torch's archives are known by their names and words, since neither is imported
    here.
    """
    if isinstance(error, OSError | ValueError | LookupError | EOFError | UnpicklingError):
        return not isinstance(error, UserError)
    return type(error).__name__ == "SafetensorError" or "PytorchStreamReader" in str(error)
