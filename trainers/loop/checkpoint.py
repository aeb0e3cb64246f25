"""Checkpoints: one folder per step, complete or absent, and checked by its manifest before it is read."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Any

from halfway.curriculum import Group, UserError
from halfway.curriculum.states import Get, Put, from_plain, to_plain
from halfway.curriculum.support.atomic import (
    DAMAGED,
    WriteError,
    read_state,
    replacing_folder,
    require_no_link,
    require_regular_files,
)
from halfway.curriculum.support.extras import one_line
from halfway.trainers.loop.arrays import CheckpointArrays, Place, array_reader
from halfway.trainers.loop.loop_options import CheckpointOptions
from halfway.trainers.loop.manifest import damage, write_manifest
from halfway.trainers.loop.progress import Progress

STATE_FILE = "loop.json"
NAME = re.compile(r"step-(\d{8,})")
MISLED = (*DAMAGED, AssertionError)
"""Errors to which values of a checkpoint may lead."""


@dataclass(frozen=True)
class LoopState:
    """The state of the loop between two steps, as saved in a checkpoint beside the learner's files.

    Attributes:
        session: `Session.state_dict`, plain data.
        carried: surplus groups on which the next step trains.
        waiting: outstanding groups in the order they were drawn, without rollouts while these are sampled.
        log_sizes: bytes of each record file.
    """

    progress: Progress
    session: dict[str, Any]
    carried: tuple[Group, ...] = ()
    waiting: tuple[Group, ...] = ()
    log_sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoints:
    """Writes, prunes and finds the checkpoints of one run.

    Attributes:
        folder: holds one sub-folder per checkpoint, "step-00000012" after twelve steps.
        options: how often to save, and how many to keep.
    """

    folder: Path
    options: CheckpointOptions

    def due(self, step: int) -> bool:
        """True if a checkpoint is due after `step` finished steps."""
        return step % self.options.every == 0

    def steps(self) -> list[int]:
        """The steps that can be resumed from, oldest first."""
        return sorted(int(found[1]) for path in self.folder.glob("step-*") if (found := NAME.fullmatch(path.name)))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(self, step: int, state: Callable[[Put], LoopState], save_parts: Callable[[Path], None]) -> None:
        """Write the checkpoint of `step`: the state of the loop, and the files that `save_parts` writes.

        The state is JSON, with its arrays in a file of their own (`CheckpointArrays`). The folder is renamed to its
        final name when complete, so a run killed before that resumes from the previous checkpoint.

        Raises:
            UserError: if writing fails, for example on a full disk; earlier checkpoints are unchanged.
        """
        require_no_link(self.folder)
        for left in self.folder.glob(".step-*.partial"):  # by a run that was killed, perhaps at another step
            shutil.rmtree(left, ignore_errors=True)
        arrays = CheckpointArrays()
        plain = to_plain(state(arrays.put), arrays.put)
        try:
            with replacing_folder(self.path(step)) as partial:
                save_parts(partial)
                places, known = arrays.write(partial / f"arrays-{step:08d}.bin")
                (partial / STATE_FILE).write_text(json.dumps(plain | {"arrays": places}))
                write_manifest(partial, known)
        except WriteError as error:
            raise UserError(
                f"checkpoint: {self.path(step)} cannot be written ({error.reason}); "
                f"{self._intact()}; make room for it and resume"
            ) from error
        self._prune()

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, or None. Raises UserError if a name in the folder is invalid."""
        for path in self.folder.glob("step-*"):
            if not NAME.fullmatch(path.name):
                raise UserError(f"checkpoint: {path} is not the name of a checkpoint; move it elsewhere and resume")
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def go_back(self, step: int) -> None:
        """Make the checkpoint of `step` the newest, 0 = the start; later ones are renamed: "left-00000012".

        Raises:
            UserError: if there is no such checkpoint, or it is damaged.
        """
        steps = self.steps()
        if step and step not in steps:
            there = f"there are those of {', '.join(map(str, steps))}" if steps else "give 0 (= the start)"
            raise UserError(f"--from: {self.folder} has no checkpoint of step {step}; {there}")
        if step:
            self._require_sound(self.path(step))
        for later in (one for one in steps if one > step):
            aside = self.folder / f"left-{later:08d}"
            shutil.rmtree(aside, ignore_errors=True)
            self.path(later).rename(aside)

    @contextmanager
    def reading(self, folder: Path, ids: Sequence[str] = ()) -> Iterator[tuple[LoopState, Get]]:
        """Open a checkpoint in a `with` block: yields the state of the loop, and a reader of its session's arrays.

        All files are verified before anything is read.

        Args:
            ids: those of all problems, with which the state may grow.

        Raises:
            UserError: if a file of the checkpoint is missing or damaged; the message names the file, and the newest
                earlier checkpoint that is intact.
        """
        self._require_sound(folder)
        with self.trusting(folder):
            plain = read_state(folder / STATE_FILE, ids)
            get = array_reader(folder, [Place(*place) for place in plain.get("arrays", ())])
            yield from_plain(LoopState, plain, get), get

    @contextmanager
    def trusting(self, folder: Path | None, errors: tuple[type[Exception], ...] = MISLED) -> Iterator[None]:
        """A scope for what a checkpoint, if any, says: another version may have written it, or a stranger.

        Raises:
            UserError: if that leads to one of these errors; it names the line of the program.
        """
        try:
            yield
        except errors as error:
            if folder is None or isinstance(error, UserError):
                raise
            *_, last = walk_tb(error.__traceback__)
            place = f"{Path(last[0].f_code.co_filename).name}:{last[1]}"
            raise UserError(
                f"checkpoint: {folder} cannot be read ({one_line(error)}, {place}); {self._way_out(folder)}"
            ) from error

    def _require_sound(self, folder: Path) -> None:
        require_regular_files(folder)  # the manifest need not name them
        if trouble := damage(folder):
            raise UserError(f"checkpoint: {folder}: {trouble}; {self._way_out(folder)}")

    def _way_out(self, folder: Path) -> str:
        earlier = [step for step in self.steps() if self.path(step) < folder]
        sound = next((step for step in reversed(earlier) if not damage(self.path(step))), 0)
        where = f"from the checkpoint of step {sound}" if sound else "from the start"
        return (
            f"fix it, or move this folder elsewhere and resume {where} "
            f"(`halfway resume {shlex.quote(str(self.folder.parent))} --from {sound}` does both)"
        )

    def _intact(self) -> str:
        steps = self.steps()
        return f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no earlier checkpoint"

    def _prune(self) -> None:
        for step in self.steps()[: -self.options.keep]:
            shutil.rmtree(self.path(step))
