"""Trains the lab in two of TRL's trainers, with a chain and without, which take turns step by step."""

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halfway.controllers.greso import Greso
from halfway.controllers.uniform import Uniform
from halfway.curriculum.controller import chain
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.registries import SOURCES
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.verifiers import verify_all
from halfway.experiments.config.paths import REPOSITORY

MODEL = REPOSITORY / "experiments" / "starting_models" / "sums"
QUIET: Mapping[str, Any] = {
    "shuffle_dataset": False,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}
"""Options of TRL's `GRPOConfig` for measurements: on the CPU, in order, with nothing saved or shown."""
GROUPS, SIZE, LENGTH, FIRST = 16, 8, 32, 2
CHAIN = chain(("uniform", Uniform()), ("greso", Greso()))


class Spent:
    """Counts the CPU seconds spent inside the functions that it wraps."""

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
    """Running sums with prompts of equal length, so that a chain's choice among them makes no step shorter."""
    found = SOURCES.get("running_sums")().load(50 * number, Stream(0)).problems
    [(length, most)] = Counter(len(problem.prompt) for problem in found).most_common(1)
    assert most >= number, f"{most} problems of {number} have equally long prompts"
    return ProblemSet([problem for problem in found if len(problem.prompt) == length][:number])


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
        **QUIET,
    )


class Turn:
    """A trainer's turns; each lasts from when the trainer may run to the end of its next step.

    Attributes:
        seconds: CPU seconds of each turn.
    """

    def __init__(self, mine: threading.Semaphore, other: threading.Semaphore, steps: int):
        self.mine, self.other, self.steps = mine, other, steps
        self.seconds: list[float] = []
        self.start = 0.0

    def train(self, trainer: Any) -> None:
        """Train the whole run, in turns."""
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
    """A trainer that ends its turn after every step."""
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
    """CPU seconds of each plain step, of each hosted step, and of all hosted steps inside Halfway's functions."""
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
