"""Compares a GRPO step here with one in TRL's GRPOTrainer: the same model, rollouts, lengths and loss.

    python experiments/results/how_fast_is_it/trl_step.py [--model FOLDER] [--rollouts 256] [--spread even] [--steps 6]
    [--output TIMES.json]

Needs TRL (`pip install 'trl>=1.10,<2'`). Any causal language model will do, with or without a padding
token, such as the folder that `python -m halfway.experiments.starting_models.smollm2` makes. Both trainers generate
with `transformers` in float32, from one prompt for every eight rollouts. The i-th rollout has the same length in both
(between --lengths SHORTEST LONGEST), whatever the policy says. Lengths are evenly spaced, so that padding to the
longest doubles the tokens; with `--spread log` they are evenly spaced in their logarithm, so that most are short and a
few long, like real responses. Both train one optimizer step on all rollouts, normalised over tokens, with advantages
relative to the group's mean and no KL penalty. TRL accumulates gradients over micro-batches of 32 rows, since it cannot
divide them by tokens; Halfway's micro-batches have at most 4,096 tokens, and rows whose lengths differ by at most a
fifth. Activation checkpointing is off.

Prints where the time goes, as medians over the steps after the first. With --output, all times go to a JSON file.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Rollout, Turn
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.scripts import script, script_parser

GROUP_SIZE, MICRO_ROWS, MICRO_TOKENS, PADDING = 8, 32, 4096, 0.2
SPREADS: dict[str, Any] = {"even": np.linspace, "log": np.geomspace}
PARTS = ("generation", "log-probs and loss", "backward", "rest")
QUIET: dict[str, Any] = {
    "shuffle_dataset": False,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}
"""Options of TRL's `GRPOConfig`: on the CPU, in order, with nothing saved or shown."""


@dataclass(frozen=True)
class Task:
    """What both trainers do: the model, the prompts, and the length of every rollout, group by group."""

    model: str
    prompts: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def rewards(self) -> list[float]:
        """The rewards of all rollouts; group g has g % (GROUP_SIZE - 1) + 1 passing rollouts."""
        return [float(i % GROUP_SIZE <= (i // GROUP_SIZE) % (GROUP_SIZE - 1)) for i in range(len(self.lengths))]


@dataclass
class Clock:
    """The seconds of every step by part, measured with the clock `now`."""

    now: Callable[[], float]
    steps: list[dict[str, float]] = field(default_factory=list)
    current: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        start = self.now()
        yield
        self.current[part] += self.now() - start

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.time(part):
                return function(*args, **kwargs)

        return wrapped

    def end_step(self, total: float) -> None:
        self.current["rest"] = total - sum(self.current.values())
        self.steps.append(dict(self.current))
        self.current = defaultdict(float)


def load(path: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype="float32")
    return tokenizer, model


def halfway(task: Task, steps: int, clock: Clock) -> None:
    from halfway.trainers.engines.transformers.engine import TransformersEngine
    from halfway.trainers.learner.learner import PolicyGradientLearner
    from halfway.trainers.learner.options import LearnerOptions

    tokenizer, model = load(task.model)
    options = LearnerOptions(
        lr=1e-6,
        advantage="mean",
        compact_filtering=False,
        max_microbatch_tokens=MICRO_TOKENS,
        max_padding=PADDING,
    )
    learner = PolicyGradientLearner(model, options, 0)
    engine = TransformersEngine(learner.policy, [-1], 0, 1.0)  # no end token, so lengths are the limits
    passes, backend = learner._passes, learner._backend
    vars(passes)["loss"] = clock.timed("log-probs and loss", passes.loss)
    vars(backend)["backward"] = clock.timed("backward", backend.backward)
    for step in range(steps):
        start = clock.now()
        groups = generate(engine, tokenizer, task, clock, step)
        learner.update(groups, Stream(0).at(step))
        engine.sync(learner.policy, learner.policy_version)
        clock.end_step(clock.now() - start)


def generate(engine: Any, tokenizer: Any, task: Task, clock: Clock, step: int) -> list[Group]:
    """Sample, decode and score the groups of one step."""
    contexts = [np.asarray(tokenizer.encode(prompt), np.int32) for prompt in task.prompts]
    with clock.time("generation"):
        each = [context for context in contexts for _ in range(GROUP_SIZE)]
        seeds = [step * len(each) + i for i in range(len(each))]
        done = engine.generate(each, list(task.lengths), seeds)
    tokenizer.batch_decode([completion.tokens_T.tolist() for completion in done])
    rollouts = [
        Rollout((Turn(c.tokens_T, c.logprobs_T, c.entropies_T, c.policy_version),), reward > 0)
        for c, reward in zip(done, task.rewards, strict=True)
    ]
    return [
        Group(Request(Problem(str(i), prompt, ""), GROUP_SIZE), contexts[i], tuple(group))
        for i, (prompt, group) in enumerate(zip(task.prompts, batched(rollouts, GROUP_SIZE), strict=True))
    ]


def trl(task: Task, steps: int, clock: Clock) -> None:
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    tokenizer, model = load(task.model)
    rollouts = len(task.lengths)
    options = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=min(MICRO_ROWS, rollouts),
        gradient_accumulation_steps=max(1, rollouts // MICRO_ROWS),
        num_generations=GROUP_SIZE,
        max_completion_length=max(task.lengths),
        max_steps=steps,
        learning_rate=1e-6,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        scale_rewards="none",
        temperature=1.0,
        top_k=0,
        logging_steps=10**6,
        **QUIET,
    )
    base: Any = TrainerCallback

    class Steps(base):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = clock.now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.end_step(clock.now() - self.start)

    def reward(completions: list[str], **_: Any) -> list[float | None]:
        return [*task.rewards[: len(completions)]]

    prompts = Dataset.from_list([{"prompt": prompt} for prompt in task.prompts])
    trainer: Any = GRPOTrainer(
        model, reward_funcs=reward, args=options, train_dataset=prompts, processing_class=tokenizer, callbacks=[Steps()]
    )
    vars(trainer)["compute_loss"] = clock.timed("log-probs and loss", trainer.compute_loss)
    accelerator = trainer.accelerator
    vars(accelerator)["backward"] = clock.timed("backward", accelerator.backward)
    end = ends_at(torch, task.lengths, tokenizer.eos_token_id)
    inner = model.generate
    vars(model)["generate"] = clock.timed("generation", lambda *a, **k: inner(*a, **k, logits_processor=[end(k)]))
    trainer.train()


def ends_at(torch: Any, lengths: Sequence[int], eos: int) -> Callable[[Any], Callable[[Any, Any], Any]]:
    """A logits processor for `generate` that ends each row at exactly its length."""

    def make(arguments: Any) -> Callable[[Any, Any], Any]:
        num_prompt = arguments["input_ids"].shape[1]
        lengths_B = torch.as_tensor(lengths)

        def process(tokens_BT: Any, logits_BV: Any) -> Any:
            last_B = lengths_B <= tokens_BT.shape[1] - num_prompt + 1
            kept_B = logits_BV[:, eos].clone()
            logits_BV[:, eos] = -torch.inf
            logits_BV[last_B] = -torch.inf
            logits_BV[last_B, eos] = kept_B[last_B].clamp(min=-1e4)
            return logits_BV

        return process

    return make


def batched(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def make_task(model: str, rollouts: int, spread: str, shortest: int, longest: int) -> Task:
    """A task with sums as prompts, and with shuffled lengths from shortest to longest."""
    rng = np.random.default_rng(0)
    prompts = tuple(f"{a}+{b}=" for a, b in rng.integers(10, 100, (rollouts // GROUP_SIZE, 2)))
    lengths = SPREADS[spread](shortest, longest, rollouts).round().astype(int)
    return Task(model, prompts, tuple(int(length) for length in rng.permutation(lengths)))


def medians(clock: Clock) -> dict[str, float]:
    """Median seconds of each part and of the whole step, over the steps after the first."""
    steps = clock.steps[1:] or clock.steps
    parts = {part: statistics.median(step.get(part, 0.0) for step in steps) for part in PARTS}
    return {**parts, "step": statistics.median(sum(step.values()) for step in steps)}


def table(title: str, clocks: dict[str, Clock]) -> str:
    """The median times as a table in Markdown, under a title."""
    seconds = {name: medians(clock) for name, clock in clocks.items()}
    columns = list(seconds["TRL"])
    lines = [title, "", f"| seconds, median | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, parts in seconds.items():
        lines.append(f"| {name} | {' | '.join(f'{parts[column]:.2f}' for column in columns)} |")
    ratios = (seconds["Halfway"][column] / max(seconds["TRL"][column], 1e-9) for column in columns)
    return "\n".join([*lines, f"| Halfway / TRL | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |", ""])


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="experiments/starting_models/sums")
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--lengths", type=int, nargs=2, default=(4, 96), metavar=("SHORTEST", "LONGEST"))
    parser.add_argument("--spread", choices=SPREADS, default="even")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="seconds of computing, all threads: for a busy machine")
    parser.add_argument("--output", type=Path, help="where to write all times, as JSON")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    task = make_task(options.model, options.rollouts, options.spread, *options.lengths)
    now = time.process_time if options.cpu_time else time.perf_counter
    clocks = {"TRL": Clock(now), "Halfway": Clock(now)}
    trl(task, options.steps, clocks["TRL"])
    halfway(task, options.steps, clocks["Halfway"])
    shape = (
        f"{options.rollouts} rollouts of {min(task.lengths)} to {max(task.lengths)} tokens, {sum(task.lengths)} in all"
    )
    print(table(f"{shape}; {options.threads} threads, {options.steps} steps.", clocks))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.output, {name: clock.steps for name, clock in clocks.items()})


if __name__ == "__main__":
    main()
