"""Handles SIGTERM and Ctrl-C: the first signal ends a run after its step, with a checkpoint; a second ends it at once.

A signal that was ignored when the process started stays ignored: shells start background jobs of a script that way, so
that Ctrl-C ends only the foreground job.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)
LEAVE_SECONDS = 12.0
"""Seconds after the first signal at which a step is abandoned. Slurm and Kubernetes kill after 30 s by default."""


def list_signals() -> list[signal.Signals]:
    """The signals that this process does not ignore."""
    return [number for number in NUMBERS if signal.getsignal(number) != signal.SIG_IGN]


class Interrupted(KeyboardInterrupt):
    """A signal ended the run.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int = signal.SIGINT):
        super().__init__(number)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """The exit code of a process that a signal ended, as a shell reports it: 130 or 143."""
    return 128 + getattr(error, "number", signal.SIGINT)


class Ending:
    """Record of the signals that ask this process to end.

    Attributes:
        number: the first signal; 0 = none yet.
    """

    def __init__(self, supervised: bool, leaves: bool):
        """
        Args:
            supervised: true = another process forwards signals and finally kills this one. So a repeated signal is not
                a second one, and Ctrl-C is left to that process.
            leaves: true = a step that takes too long is abandoned.
        """
        self.number = 0
        self._supervised, self._leaves, self._late = supervised, leaves, False

    def __call__(self) -> bool:
        return self.number != 0

    def hear(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: the first asks for an orderly end, the second ends the run at once."""
        if self._late:
            self._late = False
            raise Interrupted(self.number)
        if not self.number:
            self.number = number
            if self._leaves:
                timer = threading.Timer(LEAVE_SECONDS, self._leave)
                timer.daemon = True
                timer.start()
        elif not self._supervised:
            end_at_once(number)

    def _leave(self) -> None:
        if signal.getsignal(self.number) == self.hear:  # the run is still under way
            self._late = True
            os.kill(os.getpid(), self.number)


@contextmanager
def heed_signals(supervised: bool = False, leaves: bool = True) -> Iterator[Ending]:
    """Handle signals in a `with` block as `Ending` says; outside the main thread, handle none."""
    ending = Ending(supervised, leaves)
    with _handling(ending.hear):
        if supervised and signal.getsignal(signal.SIGINT) == ending.hear:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        yield ending


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise `Interrupted` at the first signal in a `with` block, to end children first; a second signal ends all."""

    def hear(number: int, _: FrameType | None) -> None:
        for one in list_signals():
            signal.signal(one, lambda number, _: end_at_once(number))
        raise Interrupted(number)

    with _handling(hear):
        yield


@contextmanager
def _handling(hear: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a function handle the signals that this process does not ignore; outside the main thread, none."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (list_signals() if main else ())}
    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(number: int) -> None:
    """End this process and its children now."""
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # a progress display hides the cursor
    os._exit(128 + number)
