"""The callback that saves the session in TRL's checkpoints, and restores it from them."""

from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback

from halfway.curriculum import UserError
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.trl.observer import Observer
from halfway.trainers.hosts.trl.rollout_func import ends_of
from halfway.trainers.hosts.trl.settings import between_generations

Base: Any = TrainerCallback


class Forgets(Protocol):
    """A source of rows or rollouts that may hold tickets drawn ahead of their use."""

    def forget(self) -> None:
        """Drop tickets drawn ahead: a session restored from a checkpoint draws them again."""


class HalfwayCallback(Base):  # type: ignore[misc]
    """Saves the session with every checkpoint, and restores it when the trainer resumes from one.

    Attributes:
        hosting: the session and its records; only the adapter may change them.
    """

    def __init__(self, hosting: Hosting, observer: Observer, source: Forgets):
        self.hosting, self._observer, self._source = hosting, observer, source

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._observer.ends = ends_of(kwargs["processing_class"], kwargs["model"])
        self.hosting.decode = kwargs["processing_class"].decode
        if state.global_step == 0:
            self.hosting.begin()
            return
        if not between_generations(args, state.global_step):
            raise UserError(
                f"resume_from_checkpoint: checkpoint-{state.global_step} was saved inside a generation; resume from "
                "one that was saved between two"
            )
        self.hosting.load(checkpoint(args, state))
        self._source.forget()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if between_generations(args, state.global_step):
            self.hosting.save(checkpoint(args, state))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.hosting.end()


def checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
