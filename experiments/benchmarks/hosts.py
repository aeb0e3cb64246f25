"""What a hosted chain costs beside the plain host: two of TRL's trainers on the lab, one with a chain, step by step.

    python -m halfway.experiments.benchmarks.hosts [--steps 24] [--problems 1000000] [--output NAME]

Both train the same policy on the same problems with the same reward; all responses have the same length, so that steps
differ by what surrounds them. The trainers live in one process, of which one runs at a time. What is counted are CPU
seconds, since other programs may be busy on the machine. Prints the median over steps of hosted / plain, a hosted
step and the plain one just before it, with an interval for the median, and what was spent inside Halfway's
functions. Then how long a data set of many problems takes to start, and to save in a checkpoint.
"""

import argparse
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from halfway.controllers.greso import Greso
from halfway.controllers.uniform import Uniform
from halfway.curriculum.controller import chain
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.tasks.sources import SOURCES
from halfway.curriculum.tasks.verifiers import verify_all
from halfway.experiments.config.paths import REPOSITORY

MODEL = REPOSITORY / "experiments" / "lab" / "base"
GROUPS, SIZE, LENGTH, FIRST = 16, 8, 32, 2
CHAIN = chain(("uniform", Uniform()), ("greso", Greso()))


class Spent:
    """CPU seconds inside some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            result = function(*arguments, **options)
            self.seconds += time.process_time() - start
            return result

        return wrapped


def problems(number: int) -> ProblemSet:
    return ProblemSet(SOURCES.get("running_sums")().load(number, Stream(0)).problems)


def reward_of(known: ProblemSet) -> Callable[..., list[float]]:
    def passed(completions: Sequence[str], id: Sequence[str], **_: Any) -> list[float]:
        asked = [known[known.position(name)] for name in id]
        return [float(good) for good in verify_all(asked, completions)]

    return passed


def settings(folder: str, steps: int) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=GROUPS * SIZE // 2,
        gradient_accumulation_steps=2,
        num_generations=SIZE,
        max_completion_length=LENGTH,
        generation_kwargs={"min_new_tokens": LENGTH},
        max_steps=steps,
        learning_rate=1e-6,
        beta=0.0,
        shuffle_dataset=False,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )


class Turn:
    """A trainer's part in taking turns. It runs from when it is let to the end of its next step.

    Attributes:
        seconds: CPU seconds of each turn.
    """

    def __init__(self, mine: threading.Semaphore, other: threading.Semaphore, steps: int):
        self.mine, self.other, self.steps = mine, other, steps
        self.seconds: list[float] = []
        self.start = 0.0

    def train(self, trainer: Any) -> None:
        """The whole run, in turns."""
        self.begin()
        trainer.train()

    def begin(self) -> None:
        self.mine.acquire()
        self.start = time.process_time()

    def end(self) -> None:
        self.seconds.append(time.process_time() - self.start)
        self.other.release()
        if len(self.seconds) < self.steps:
            self.begin()


def trainer_of(known: ProblemSet, folder: str, turn: Turn, hosted: bool) -> Any:
    """A trainer that ends a turn with every step."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl.trainer.grpo_trainer import GRPOTrainer

    import halfway

    base: Any = TrainerCallback

    class Ends(base):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            turn.end()

    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    model: Any = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
    args, reward = settings(folder, turn.steps), reward_of(known)
    rows = [{"prompt": problem.prompt, "id": problem.id} for problem in known]
    plain: dict[str, Any] = {"reward_funcs": reward, "args": args, "train_dataset": Dataset.from_list(rows * 8)}
    given = halfway.trl(CHAIN, known, reward, args) if hosted else plain
    trainer: Any = GRPOTrainer(model, **given, processing_class=tokenizer)
    trainer.add_callback(Ends())
    return trainer


def compared(steps: int, known: ProblemSet) -> tuple[list[float], list[float], float]:
    """CPU seconds of each plain step and of each hosted one, and those of all hosted steps inside Halfway."""
    from halfway.trainers.hosts.trl import rewards
    from halfway.trainers.hosts.trl.late_rows import LateRows

    inside = Spent()
    rows, observer = LateRows, rewards.Observer
    vars_of: Any = rows
    vars_of.fill = inside.timed(rows.fill)
    judging: Any = observer
    judging._observe = inside.timed(observer._observe)
    locks = [threading.Semaphore(0), threading.Semaphore(0)]
    turns = [Turn(locks[i], locks[1 - i], steps) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        threads = []
        for i, turn in enumerate(turns):
            trainer = trainer_of(known, f"{folder}/{i}", turn, hosted=bool(i))
            threads.append(threading.Thread(target=turn.train, args=(trainer,)))
        for thread in threads:
            thread.start()
        locks[0].release()
        for thread in threads:
            thread.join()
    plain, hosted = (turn.seconds for turn in turns)
    return plain, hosted, inside.seconds


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """An interval for the median without assumptions, between order statistics: binomial(n, 1/2) of the values lie
    below it."""
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while below + math.comb(n, k) / 2**n <= (1 - level) / 2:
        below += math.comb(n, k) / 2**n
        k += 1
    place = max(0, k - 1)
    return ordered[place], ordered[n - 1 - place]


def start_up(number: int) -> tuple[float, float]:
    """CPU seconds until a data set of so many problems is ready, and to save its session."""
    from datasets import Dataset

    import halfway

    texts = [f"{i}+{i}=" for i in range(number)]
    rows = Dataset.from_dict({"prompt": texts, "id": [str(i) for i in range(number)]})
    with tempfile.TemporaryDirectory() as folder:
        args = settings(folder, 4)
        start = time.process_time()
        given = halfway.trl(CHAIN, rows, reward_of(problems(8)), args)
        given["train_dataset"][0]
        ready = time.process_time()
        given["callbacks"][0].hosting.save(Path(folder))
        return ready - start, time.process_time() - ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--problems", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="where to write what is printed")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    plain, hosted, inside = compared(options.steps + FIRST, problems(64))
    ratios = [h / p for p, h in zip(plain[FIRST:], hosted[FIRST:], strict=True)]
    low, high = median_interval(ratios)
    ready, saved = start_up(options.problems)
    medians = " and ".join(f"{statistics.median(seconds[FIRST:]):.3f}" for seconds in (plain, hosted))
    found = (
        f"TRL, {options.steps} steps each in turn, {GROUPS} groups of {SIZE} responses of {LENGTH} tokens, "
        "CPU seconds.\n\n"
        f"- plain and hosted: {medians} per step (medians)\n"
        f"- hosted / plain: {statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}] (median of the steps' ratios)\n"
        f"- inside Halfway's functions: {inside / sum(hosted):.2%} of the hosted steps\n"
        f"- {options.problems:,} problems: ready after {ready:.1f} s, saved in {saved:.1f} s\n"
    )
    print(found)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.output, found)


if __name__ == "__main__":
    main()
