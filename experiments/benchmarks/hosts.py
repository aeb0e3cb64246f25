"""What a hosted chain costs beside the plain host: TRL's GRPOTrainer on the lab, with a chain and without, by turns.

    python -m halfway.experiments.benchmarks.hosts [--steps 10] [--rounds 3] [--problems 1000000]

Both train the same policy on the same kind of problems, with the same reward. Prints CPU seconds of a step, since other
programs may be busy on the machine: of the plain run, of the hosted one, their ratio, and what was spent inside
Halfway's own functions. Then how long a data set of many problems takes to start.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from halfway.controllers.greso import Greso
from halfway.controllers.uniform import Uniform
from halfway.curriculum.controller import chain
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.sources import SOURCES
from halfway.curriculum.tasks.verifiers import verify_all
from halfway.experiments.config.paths import REPOSITORY

MODEL = REPOSITORY / "experiments" / "lab" / "base"
GROUPS, SIZE = 16, 8
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
        max_completion_length=64,
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


def cpu_seconds(steps: int, known: ProblemSet, hosted: bool) -> tuple[float, float]:
    """CPU seconds of a step, and those of them inside Halfway."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.grpo_trainer import GRPOTrainer

    import halfway
    from halfway.trainers.hosts.trl import rewards
    from halfway.trainers.hosts.trl.late_rows import LateRows

    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    model: Any = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
    inside, reward = Spent(), reward_of(known)
    fill, observe = LateRows.fill, rewards.Observer._observe
    with tempfile.TemporaryDirectory() as folder:
        args = settings(folder, steps)
        rows = [{"prompt": problem.prompt, "id": problem.id} for problem in known]
        given: dict[str, Any] = {"reward_funcs": reward, "args": args, "train_dataset": Dataset.from_list(rows * 8)}
        if hosted:
            vars_of: Any = LateRows
            vars_of.fill = inside.timed(fill)
            observer: Any = rewards.Observer
            observer._observe = inside.timed(observe)
            given = halfway.trl(CHAIN, known, reward, args)
        trainer: Any = GRPOTrainer(model, **given, processing_class=tokenizer)
        start = time.process_time()
        trainer.train()
        seconds = time.process_time() - start
    vars_of, observer = LateRows, rewards.Observer
    vars_of.fill, observer._observe = fill, observe
    return seconds / steps, inside.seconds / steps


def start_up(number: int) -> float:
    """Seconds until a data set of so many problems is ready."""
    from datasets import Dataset

    import halfway

    texts = [f"{i}+{i}=" for i in range(number)]
    rows = Dataset.from_dict({"prompt": texts, "id": [str(i) for i in range(number)]})
    with tempfile.TemporaryDirectory() as folder:
        args = settings(folder, 4)
        start = time.process_time()
        given = halfway.trl(CHAIN, rows, reward_of(problems(8)), args)
        given["train_dataset"][0]
        return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problems", type=int, default=1_000_000)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    known = problems(64)
    cpu_seconds(1, known, hosted=True)  # warms up
    plain, hosted, inside = [], [], []
    for _ in range(options.rounds):
        plain.append(cpu_seconds(options.steps, known, hosted=False)[0])
        seconds, own = cpu_seconds(options.steps, known, hosted=True)
        hosted.append(seconds)
        inside.append(own / seconds)
    print(f"{options.rounds} x {options.steps} steps of {GROUPS} groups of {SIZE}, CPU seconds of a step:")
    print(f"plain TRL {', '.join(f'{s:.3f}' for s in plain)}; hosted {', '.join(f'{s:.3f}' for s in hosted)}")
    print(f"ratio of medians {statistics.median(hosted) / statistics.median(plain):.3f}")
    print(f"inside Halfway {', '.join(f'{share:.2%}' for share in inside)} of a step")
    print(f"{options.problems} problems are ready after {start_up(options.problems):.1f} CPU seconds")


if __name__ == "__main__":
    main()
