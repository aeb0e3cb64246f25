"""Compares a GRPO step with one of TRL's GRPOTrainer: the same model, rollouts, lengths and loss.

    python experiments/results/how_fast_is_it/beside_trl.py [--model FOLDER] [--rollouts 256] [--group 8]
    [--prompt 0] [--lengths 4 96] [--spread even] [--steps 6] [--threads 1] [--output TIMES.json]

Needs TRL. Any causal language model will do, such as the folder that
`python -m halfway.experiments.starting_models.smollm2` makes. Both trainers generate with `transformers` in float32,
from one prompt for every group. The i-th rollout has the same length in both, whatever the policy says: lengths are
evenly spaced, so that padding to the longest doubles the tokens, or with `--spread log` evenly in their logarithm, so
that most are short and a few long, like real responses. `--prompt` makes prompts of that many tokens at least. Both
train one optimizer step on all rollouts, normalised over tokens, with advantages relative to the group's mean and no
penalty. TRL accumulates gradients over micro-batches of 32 rows, since it cannot divide them by tokens; Halfway's
micro-batches have at most 4,096 tokens, and rows whose lengths differ by at most a fifth.

First both take the loss and the gradients of the same rollouts, in float64; exits with 1 if they differ by more than
1e-5 of their norm. Then the two take turns of a few steps each, Halfway first, so that other work on the machine
slows both alike. Prints where processor time goes, as medians over the steps after the first of each turn.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.scripts import script, script_parser

now = time.process_time
MICRO_ROWS, MICRO_TOKENS, PADDING = 32, 4096, 0.2
SPREADS: dict[str, Any] = {"even": np.linspace, "log": np.geomspace}
PARTS = ("generation", "log-probs and loss", "backward", "rest")
EQUAL = 1e-5
QUIET: dict[str, Any] = {
    "shuffle_dataset": False,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
    "logging_steps": 10**6,
}
"""Options of TRL's `GRPOConfig`: on the CPU, in order, with nothing saved or shown."""


@dataclass(frozen=True)
class Task:
    """The shared work: the model, a prompt for every group, and the length of every rollout, group by group."""

    model: str
    prompts: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def group(self) -> int:
        return len(self.lengths) // len(self.prompts)

    @property
    def rewards(self) -> list[float]:
        """The rewards of all rollouts: group g has g % (N - 1) + 1 passing ones."""
        size = self.group
        return [float(i % size <= (i // size) % (size - 1)) for i in range(len(self.lengths))]


@dataclass
class Clock:
    """The processor seconds of every step by part, of all threads."""

    steps: list[dict[str, float]] = field(default_factory=list)
    current: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        start = now()
        yield
        self.current[part] += now() - start

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.time(part):
                return function(*args, **kwargs)

        return wrapped

    def end_step(self, total: float) -> None:
        self.current["rest"] = total - sum(self.current.values())
        self.steps.append(dict(self.current))
        self.current = defaultdict(float)


@dataclass
class Step:
    """One optimizer step: its rollouts, its loss and its gradients by name."""

    prompts: list[list[int]] = field(default_factory=list)
    completions: list[list[int]] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    loss: float = 0.0
    gradients: dict[str, Any] = field(default_factory=dict)


def load(path: str, dtype: str = "float32") -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    return tokenizer, model


def gradients_of(model: Any) -> dict[str, Any]:
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def build_learner(model: Any) -> Any:
    from halfway.trainers.learner.learner import PolicyGradientLearner
    from halfway.trainers.learner.learner_options import LearnerOptions

    options = LearnerOptions(
        lr=1e-6,
        advantage="mean",
        compact_filtering=False,
        max_microbatch_tokens=MICRO_TOKENS,
        max_padding=PADDING,
        max_grad_norm=0.0,
    )
    return PolicyGradientLearner(model, options, 0)


def run_halfway(task: Task, steps: int, clock: Clock) -> None:
    from halfway.trainers.engines.contract import EngineSetup
    from halfway.trainers.engines.transformers.engine import TransformersEngine

    tokenizer, model = load(task.model)
    learner = build_learner(model)
    engine = TransformersEngine(EngineSetup(learner.policy, task.model, [-1], 0))
    passes, backend = learner._passes, learner._backend
    vars(passes)["loss"] = clock.timed("log-probs and loss", passes.loss)
    vars(backend)["backward"] = clock.timed("backward", backend.backward)
    prompts = [np.asarray(tokenizer.encode(prompt), np.int32) for prompt in task.prompts]
    for step in range(steps):
        start = now()
        each = [prompt for prompt in prompts for _ in range(task.group)]
        with clock.time("generation"):
            done = engine.generate(each, list(task.lengths), [step * len(each) + i for i in range(len(each))])
        tokenizer.batch_decode([completion.tokens_T.tolist() for completion in done])
        turns = [Turn(c.tokens_T, c.logprobs_T, c.entropies_T, c.policy_version) for c in done]
        learner.update(groups_of(prompts, turns, task.rewards), Stream(0).at(step))
        engine.sync(learner.policy, learner.policy_version)
        clock.end_step(now() - start)


def groups_of(prompts: Sequence[Any], turns: Sequence[Turn], rewards: Sequence[float]) -> list[Group]:
    """A group for each prompt, with as many rollouts each."""
    rollouts = [Rollout((turn,), reward > 0) for turn, reward in zip(turns, rewards, strict=True)]
    size = len(rollouts) // len(prompts)
    return [
        Group(
            Request(Problem(str(i), "", ""), size),
            np.asarray(prompt, np.int32),
            tuple(rollouts[i * size : (i + 1) * size]),
        )
        for i, prompt in enumerate(prompts)
    ]


def run_trl(task: Task, steps: int, clock: Clock, seen: Step | None = None) -> None:
    """
    Args:
        seen: takes what the first step had, in float64.
    """
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    tokenizer, model = load(task.model, "float32" if seen is None else "float64")
    rows = min(MICRO_ROWS, len(task.lengths))
    base: Any = TrainerCallback

    class Steps(base):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = now()

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            if seen is not None:
                seen.gradients = gradients_of(model)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.end_step(now() - self.start)

    def reward(completions: list[str], **_: Any) -> list[float | None]:
        return [*task.rewards[: len(completions)]]

    with tempfile.TemporaryDirectory() as folder:
        options = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=len(task.lengths) // rows,
            num_generations=task.group,
            max_completion_length=max(task.lengths),
            max_steps=steps,
            learning_rate=1e-6,
            max_grad_norm=0.0,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            loss_type="dapo",
            scale_rewards="none",
            temperature=1.0,
            top_k=0,
            **QUIET,
        )
        prompts = Dataset.from_list([{"prompt": prompt} for prompt in task.prompts])
        trainer: Any = GRPOTrainer(
            model,
            reward_funcs=reward,
            args=options,
            train_dataset=prompts,
            processing_class=tokenizer,
            callbacks=[Steps()],
        )
        compute, backward, generate = trainer.compute_loss, trainer.accelerator.backward, model.generate
        end = ends_at(torch, task.lengths, tokenizer.eos_token_id)

        def compute_loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if seen is not None:
                for name, into in (("prompt", seen.prompts), ("completion", seen.completions)):
                    for tokens, mask in zip(inputs[f"{name}_ids"], inputs[f"{name}_mask"], strict=True):
                        into.append(tokens[mask.bool()].tolist())
                seen.advantages += inputs["advantages"].tolist()
            return compute(model, inputs, *args, **kwargs)

        def take_back(loss: Any, **kwargs: Any) -> None:
            if seen is not None:
                seen.loss += float(loss.detach())
            backward(loss, **kwargs)

        vars(trainer)["compute_loss"] = clock.timed("log-probs and loss", compute_loss)
        vars(trainer.accelerator)["backward"] = clock.timed("backward", take_back)
        vars(model)["generate"] = clock.timed(
            "generation", lambda *a, **k: generate(*a, **k, logits_processor=[end(k)])
        )
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


def compare(task: Task) -> tuple[float, float]:
    """By how much the losses and the gradients of TRL's first step differ, as shares of their norms."""
    theirs = Step()
    run_trl(task, 1, Clock(), theirs)
    _, model = load(task.model, "float64")
    learner = build_learner(model)
    ours = Step()

    def keep(lr: float) -> float:
        ours.gradients = gradients_of(model)
        return 0.0

    vars(learner._backend)["step"] = keep
    rows: dict[tuple[int, ...], list[int]] = defaultdict(list)  # TRL shuffles the rollouts
    for i, prompt in enumerate(theirs.prompts):
        rows[tuple(prompt)].append(i)
    order = [i for group in rows.values() for i in group]
    lengths = [len(theirs.completions[i]) for i in order]
    assert sorted(lengths) == sorted(task.lengths), "TRL has sampled other lengths"
    turns = [
        Turn(np.asarray(theirs.completions[i], np.int32), zeros, zeros, 0)
        for i, length in zip(order, lengths, strict=True)
        for zeros in [np.zeros(length, np.float32)]
    ]
    groups = groups_of(list(rows), turns, [float(theirs.advantages[i] > 0) for i in order])
    ours.loss = learner.update(groups, Stream(0))["loss"]
    names = ours.gradients.keys() & theirs.gradients.keys()
    assert names and len(names) == len(ours.gradients) == len(theirs.gradients)
    norm = sum(float(theirs.gradients[name].norm()) ** 2 for name in names) ** 0.5
    apart = sum(float((ours.gradients[name] - theirs.gradients[name]).norm()) ** 2 for name in names) ** 0.5
    scale = sum(abs(theirs.advantages[i]) * length for i, length in zip(order, lengths, strict=True)) / sum(lengths)
    return abs(ours.loss - theirs.loss) / scale, apart / norm


def make_task(model: str, rollouts: int, group: int, spread: str, lengths: tuple[int, int], prompt_tokens: int) -> Task:
    """A task with sums as prompts, and with shuffled lengths from the shortest to the longest."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    random = np.random.default_rng(0)
    prompts = []
    for _ in range(rollouts // group):
        prompt = ""
        while not prompt or len(tokenizer.encode(prompt)) < prompt_tokens:
            prompt += "{}+{}=".format(*random.integers(10, 100, 2))
        prompts.append(prompt)
    shuffled = random.permutation(SPREADS[spread](*lengths, rollouts).round().astype(int))
    return Task(model, tuple(prompts), tuple(shuffled.tolist()))


def medians(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    parts = {part: statistics.median(step.get(part, 0.0) for step in steps) for part in PARTS}
    return {**parts, "step": statistics.median(sum(step.values()) for step in steps)}


def table(title: str, steps: dict[str, list[dict[str, float]]]) -> TextTable:
    """The median seconds, and their ratios."""
    ours, theirs = medians(steps["Halfway"]), medians(steps["TRL"])
    rows = [(name, *(f"{s:.3g}" for s in found.values())) for name, found in (("TRL", theirs), ("Halfway", ours))]
    ratios = ("ratio", *(f"{ours[part] / max(theirs[part], 1e-9):.2f}" for part in ours))
    return TextTable(title, ("seconds", *ours), (*rows, ratios))


@script
def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="experiments/starting_models/sums")
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=0, help="shortest prompt, in tokens")
    parser.add_argument("--lengths", type=int, nargs=2, default=(4, 96), metavar=("SHORTEST", "LONGEST"))
    parser.add_argument("--spread", choices=SPREADS, default="even")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each trainer, without warm-up")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON file for all times")
    options = parser.parse_args()
    import torch
    import trl
    from rich.console import Console

    torch.set_num_threads(options.threads)
    sizes = (options.rollouts, options.group, options.spread, tuple(options.lengths), options.prompt)
    task = make_task(options.model, *sizes)
    loss, gradient = compare(task)
    print(f"losses differ by {loss:.1e}, gradients by {gradient:.1e}")
    steps: dict[str, list[dict[str, float]]] = {"Halfway": [], "TRL": []}
    for _ in range(options.turns):
        for name, run in (("Halfway", run_halfway), ("TRL", run_trl)):
            clock = Clock()
            run(task, 1 + -(-options.steps // options.turns), clock)
            steps[name] += clock.steps[1:]
    title = f"{len(task.lengths)} rollouts, {sum(task.lengths):,} tokens, TRL {trl.__version__}"
    Console().print(table(title, steps))
    if options.output:
        write_json(options.output, steps)
    return int(max(loss, gradient) > EQUAL)


if __name__ == "__main__":
    sys.exit(main())
