"""Trains on the reference solutions that a run's hints are cut from, as a yardstick for the hints.

A recipe's starting policy learns the reference solutions of the recipe's own training problems by cross-entropy, and is
evaluated on the held-out problems at evenly spaced points. Nothing is generated for training, so the cost consists of
the tokens that the updates pass over, prompts included. Every learning rate is tried with the first seed; the rate with
the largest area under the curve is used with the other seeds, and only these enter the means.

    python -m halfway.experiments.studies.supervised experiments/recipes/lab/skills.yaml --out runs/supervised
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.statistics.intervals import over_seeds
from halfway.experiments.report.tables.text import TextTable, interval
from halfway.experiments.scripts import script, script_parser

if TYPE_CHECKING:
    from halfway.trainers.loop.training import Training

IGNORED = -100  # the label that torch's cross-entropy ignores
POINTS = 10


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation.

    Attributes:
        lr: the learning rate.
        epoch: passes over the references so far.
        trained_tokens: tokens of whole sequences that were trained on so far, prompts included.
        score: held-out pass@1.
    """

    lr: float
    seed: int
    epoch: float
    trained_tokens: int
    score: float


def learn(config: RunConfig, lr: float, epochs: int, batch: int) -> Iterator[Point]:
    """Train on the references, yielding an evaluation at the start and then `POINTS` more.

    Args:
        epochs: passes over the references.
        batch: references per update.

    Raises:
        UserError: if there are no held-out problems, or a training problem has no reference solution.
    """
    import torch

    from halfway.experiments.running.build import build_run

    with tempfile.TemporaryDirectory() as folder:
        training = build_run(config, Path(folder))
    if training.evaluate is None:
        raise UserError(f"evaluation.problems: {config.evaluation.problems} leaves nothing to evaluate on; give some")
    pairs = references(training)
    policy: Any = training.learner.policy  # type: ignore[attr-defined]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr, weight_decay=config.learner.weight_decay)
    steps = epochs * -(-len(pairs) // batch)
    generator, order, tokens = Stream(config.seed).at("references").generator(), np.zeros(0, np.int64), 0
    for step in range(steps + 1):
        if step * POINTS // steps != (step - 1) * POINTS // steps or step == 0:
            policy.eval()
            training.sync()
            yield Point(lr, config.seed, step * batch / len(pairs), tokens, training.evaluate().pass_at_1)
        if len(order) == 0:
            order = generator.permutation(len(pairs))
        chosen, order = [pairs[place] for place in order[:batch]], order[batch:]
        ids, labels = padded(chosen)
        logits = policy(input_ids=ids).logits[:, :-1]
        target = labels[:, 1:].flatten()
        loss: Any = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config.learner.max_grad_norm)
        optimizer.step()
        tokens += sum(len(prompt) + len(response) for prompt, response in chosen)


def references(training: "Training") -> list[tuple[list[int], list[int]]]:
    """The tokens of every training problem's prompt, and of its reference followed by the end-of-response token."""
    prompts: Any = training.rollouts.prompts  # type: ignore[attr-defined]
    problems: Sequence[Problem] = list(training.session.problems)
    if not all(problem.solution for problem in problems):
        raise UserError("problems.source: some problem has no reference solution; there is nothing to learn from")
    end = training.learner.policy.generation_config.eos_token_id  # type: ignore[attr-defined]
    ends = [end] if isinstance(end, int) else list(end)
    encode = prompts.tokenizer.encode
    return [
        (prompts.of_problem(problem).tolist(), [*encode(problem.solution, add_special_tokens=False), ends[0]])
        for problem in problems
    ]


def padded(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Any, Any]:
    """Token ids and labels, (batch, longest) each, with `IGNORED` as the label of prompts and padding.

    Padding is on the right, where causal attention never looks, so no attention mask is needed.
    """
    import torch

    longest = max(len(prompt) + len(response) for prompt, response in pairs)
    ids = torch.zeros((len(pairs), longest), dtype=torch.long)
    labels = torch.full((len(pairs), longest), IGNORED)
    for row, (prompt, response) in enumerate(pairs):
        ids[row, : len(prompt) + len(response)] = torch.tensor(prompt + response)
        labels[row, len(prompt) : len(prompt) + len(response)] = torch.tensor(response)
    return ids, labels


def supervised_table(points: Sequence[Point], name: str) -> TextTable:
    """Means over seeds, one row per evaluation."""
    seeds = {point.seed for point in points}
    rows = []
    for epoch in sorted({point.epoch for point in points}):
        here = [point for point in points if point.epoch == epoch]
        tokens = round(fmean(point.trained_tokens for point in here))
        rows.append((f"{epoch:.1f}", f"{tokens:,}", interval(over_seeds([point.score for point in here]))))
    return TextTable(
        f"Supervised steps on the references of {name}",
        ("passes over the references", "trained tokens", "pass@1"),
        tuple(rows),
        f"lr {points[0].lr:g}; {len(seeds)} seeds, 95 % intervals over them. No rollout trains.",
    )


@script
def main() -> int:
    """Choose the learning rate, train, print the table, and write the table and its numbers."""
    parser = script_parser(__doc__)
    parser.add_argument("recipe", type=Path, help="a run's file")
    parser.add_argument("overrides", nargs="*", help="FIELD=VALUE")
    parser.add_argument("--lrs", type=float, nargs="+", default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 0, 1, 2], help="the first chooses the rate")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="references in an update")
    parser.add_argument("--out", type=Path, default=Path("runs/supervised"))
    arguments = parser.parse_args()
    config = load_run_config(arguments.recipe, arguments.overrides)
    first, *others = arguments.seeds
    tried = {}
    for lr in track(arguments.lrs, "learning rates"):
        tried[lr] = list(learn(replace(config, seed=first), lr, arguments.epochs, arguments.batch))
    best = max(tried, key=lambda lr: fmean(point.score for point in tried[lr]))
    points = [
        point
        for seed in track(others, "seeds")
        for point in learn(replace(config, seed=seed), best, arguments.epochs, arguments.batch)
    ]
    table = supervised_table(points or tried[best], config.name)
    Console().print(table.rich())
    arguments.out.mkdir(parents=True, exist_ok=True)
    sweep = {f"{lr:g}": fmean(point.score for point in found) for lr, found in tried.items()}
    record = {"mean_score_by_lr": sweep, "points": [asdict(point) for point in points]}
    write_text(arguments.out / "supervised.md", table.markdown())
    write_text(arguments.out / "supervised.json", json.dumps(record, indent=1) + "\n")
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
