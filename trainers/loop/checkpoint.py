"""Checkpoints: one folder per step, complete or absent."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import WriteError, replacing_folder
from halfway.curriculum.support.errors import UserError
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

    def read_latest(self) -> tuple[Path, Any] | None:
        """Folder and state of the newest checkpoint, or None."""
        steps = self.steps()
        if not steps:
            return None
        folder = self.path(steps[-1])
        return folder, json.loads((folder / STATE_FILE).read_text())

    def _intact(self) -> str:
        steps = self.steps()
        return f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no earlier checkpoint"

    def _prune(self) -> None:
        for step in self.steps()[: -self.options.keep]:
            shutil.rmtree(self.path(step))
