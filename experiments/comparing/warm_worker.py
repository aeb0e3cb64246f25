"""A process that imports what training needs once, and then trains one run after another, each in a separate fork.

The worker itself computes nothing and starts no thread, so its forks begin in the state of a process that has just
finished its imports. So no run can see what an earlier run left behind (random state, thread settings, caches,
environment), and a run that dies takes nothing with it.

It reads requests from standard input, one JSON object per line, and answers each on standard output with the exit
status of the run, negative if a signal ended it. It ends when its input does; the run in progress then ends too.
"""

import gc
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from halfway.experiments.running.runs import LOG

# Modules that every run imports sooner or later. A missing one only costs each run its own import.
MODULES = (
    "accelerate",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "halfway.experiments.running.build",
    "halfway.trainers.engines.transformers.engine",
    "halfway.trainers.learner.learner",
    "halfway.trainers.loop.checkpoint",
    "halfway.trainers.loop.evaluation",
    "halfway.trainers.loop.training",
    "halfway.trainers.rollouts.collector",
)


def serve(command: Callable[[str], object]) -> None:
    """Train the runs that standard input names, until it ends.

    Args:
        command: trains the run in a directory as a separate command would, up to the SystemExit at its end.
    """
    for module in MODULES:
        import_module(module)
    lifeline, held = os.pipe()  # only this process holds the other end, so it closes when the worker dies
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        redirect_errors(Path(request["folder"]) / LOG)
        import_model(request["model"])
        gc.collect()
        gc.freeze()  # so that a collection in the child does not copy the pages that it shares with this process
        child = os.fork()
        if child == 0:
            os.close(held)
            # Skips the interpreter's own cleanup, which takes as long as the start.
            os._exit(train(command, request["folder"], lifeline))
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


def redirect_errors(log: Path) -> None:
    """Send this process's errors to the log of the run that it is about to train."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 2)
    os.close(file)


def import_model(path: str) -> None:
    """Import the classes of a model in a folder. If something is wrong with it, the run will report that."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    with suppress(Exception):
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def train(command: Callable[[str], object], folder: str, lifeline: int) -> int:
    """Train one run and return its exit status."""
    os.dup2(2, 1)
    threading.Thread(target=end_with, args=(0, lifeline), daemon=True).start()
    status = 0
    try:
        command(folder)
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def end_with(*files: int) -> None:
    """End this process once one of the files reaches its end, because the process at the other end is gone."""
    select.select(files, (), ())
    os.kill(os.getpid(), signal.SIGTERM)
