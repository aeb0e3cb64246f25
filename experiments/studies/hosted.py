"""Compares one recipe in Halfway's own trainer with the same chain hosted in TRL: do both learn alike?

The starting policy, problems, verifier, chain, seeds and evaluation are the same; sampling, batching, loss and
optimizer are each trainer's own. The recipe must match what TRL does: plain batches that keep degenerate groups,
advantages relative to the group's mean, normalisation over tokens, and no KL penalty.

    python -m halfway.experiments.studies.hosted experiments/recipes/lab/hosted.yaml [--seeds 0 1 2] [--out runs/hosted]

Finished runs are not repeated. The table's differences are TRL minus Halfway at equal rollouts, with 95 % intervals
over seeds and held-out problems.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from halfway.curriculum.controller import chain
from halfway.curriculum.support.atomic import write_json, write_text
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.tasks.verifiers import verify_all
from halfway.experiments.benchmarks.hosts_in_turn import QUIET
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.statistics.crossed import crossed_difference
from halfway.experiments.report.statistics.intervals import over_seeds
from halfway.experiments.report.tables.text import TextTable, interval
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.hosts.hosting import RECORDS

if TYPE_CHECKING:
    from halfway.trainers.loop.training import Training


@dataclass(frozen=True)
class Run:
    """The results of one run.

    Attributes:
        rollouts_E: rollouts before each evaluation.
        rates_EP: pass rates of the held-out problems at each evaluation.
        generated: number of generated tokens.
        degenerate, prefixed: shares of its groups that were degenerate, and that were behind a prefix.
        fresh_T: pass rate of the fresh groups of each step that has any.
    """

    rollouts_E: tuple[int, ...]
    rates_EP: NDArray[np.float64]
    generated: int
    degenerate: float
    prefixed: float
    fresh_T: NDArray[np.float64]


def check(config: RunConfig) -> None:
    """Refuse a recipe that TRL cannot train in the same way.

    Raises:
        UserError: naming the field, its value and the remedy.
    """
    fill, learner = config.fill, config.learner
    require(fill.policy == "once", "fill.policy", fill.policy, "give once: TRL's batches have a fixed size")
    require(fill.degenerate == "keep", "fill.degenerate", fill.degenerate, "give keep: TRL trains on all groups")
    require(learner.advantage == "mean", "learner.advantage", learner.advantage, "give mean")
    require(learner.kl_coefficient == 0, "learner.kl_coefficient", learner.kl_coefficient, "give 0: no penalty")
    kind = learner.normalization
    require(kind == "token", "learner.normalization", kind, "give token, which is TRL's loss_type=dapo")
    per_step = fill.groups * config.rollouts.num_rollouts
    rest = config.budget.rollouts % (per_step * max(1, config.evaluation.points)) if config.budget.rollouts else 1
    require(rest == 0, "budget.rollouts", config.budget.rollouts, f"give whole steps of {per_step} between evaluations")
    require(config.evaluation.points > 0, "evaluation.points", config.evaluation.points, "give one or more")


def in_halfway(config: RunConfig, folder: Path) -> list[list[int]]:
    """Train in Halfway's trainer; returns the passes of each held-out problem at every evaluation."""
    from halfway.experiments.running.build import build_run

    training = build_run(config, folder)
    found, evaluate = list[list[int]](), evaluation_of(training)

    def kept() -> Any:
        result = evaluate()
        found.append(list(result.passed_G))
        return result

    training.evaluate = kept
    training.train()
    return found


def rollouts_of(config: RunConfig) -> int:
    """The budget in rollouts; `check` has made sure that the recipe has one."""
    assert config.budget.rollouts is not None
    return config.budget.rollouts


def in_trl(config: RunConfig, folder: Path) -> list[list[int]]:
    """Train in TRL; returns the passes of each held-out problem at every evaluation.

    The policy, problems and evaluation come from a run that is built from the recipe but not trained.
    """
    from transformers import TrainerCallback
    from trl.trainer.grpo_trainer import GRPOTrainer

    import halfway
    from halfway.experiments.running.build import build_run

    training = build_run(config, folder / "unused")
    evaluate = evaluation_of(training)
    policy: Any = training.learner.policy  # type: ignore[attr-defined]
    problems, per_step = training.session.problems, config.fill.groups * config.rollouts.num_rollouts
    steps, found = rollouts_of(config) // per_step, list[list[int]]()
    every = steps // config.evaluation.points
    base: Any = TrainerCallback

    class Evaluates(base):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            policy.eval()
            training.sync()
            found.append(list(evaluate().passed_G))
            policy.train()

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step % every == 0:
                self.on_train_begin()

    def passed(completions: Sequence[str], id: Sequence[str], **_: Any) -> list[float]:
        asked = [problems[problems.position(name)] for name in id]
        return [float(good) for good in verify_all(asked, completions)]

    hosted = halfway.trl(chain(*config.members()), problems, passed, arguments(config, folder, steps))
    tokenizer: Any = training.rollouts.prompts.tokenizer  # type: ignore[attr-defined]
    trainer: Any = GRPOTrainer(policy, **hosted, processing_class=tokenizer)
    trainer.add_callback(Evaluates())
    trainer.train()
    return found


def arguments(config: RunConfig, folder: Path, steps: int) -> Any:
    """A recipe's settings as TRL's GRPOConfig."""
    from trl.trainer.grpo_config import GRPOConfig

    learner, rollouts = config.learner, config.rollouts
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=config.fill.groups * rollouts.num_rollouts,
        gradient_accumulation_steps=1,
        num_generations=rollouts.num_rollouts,
        max_completion_length=rollouts.max_response_tokens,
        temperature=rollouts.temperature,
        top_k=0,
        max_steps=steps,
        learning_rate=learner.lr,
        lr_scheduler_type="constant",
        adam_beta1=learner.betas[0],
        adam_beta2=learner.betas[1],
        adam_epsilon=learner.eps,
        weight_decay=learner.weight_decay,
        max_grad_norm=learner.max_grad_norm,
        epsilon=learner.clip_low,
        epsilon_high=learner.clip_high,
        beta=learner.kl_coefficient,
        loss_type="dapo",
        scale_rewards="group" if learner.divide_by_std else "none",
        mask_truncated_completions=learner.compact_filtering,
        seed=config.seed,
        logging_steps=steps,
        **QUIET,
    )


def evaluation_of(training: "Training") -> Callable[[], Any]:
    if training.evaluate is None:
        raise UserError("evaluation.problems: 0 leaves nothing to evaluate on; give some")
    return training.evaluate


NAMES = {"halfway": "Halfway", "trl": "TRL"}
TRAINERS: dict[str, Callable[[RunConfig, Path], list[list[int]]]] = {"halfway": in_halfway, "trl": in_trl}


def run(config: RunConfig, trainer: str, folder: Path) -> Run:
    """Train a run, unless its folder holds the results already, and return its results."""
    path = folder / "passes.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, TRAINERS[trainer](config, folder))
    passes_EP = np.array(json.loads(path.read_text()), np.float64)
    records = folder / RECORDS if trainer == "trl" else folder
    lines = [json.loads(line) for line in (records / "decisions.jsonl").read_text().splitlines()]
    groups = [line for line in lines if line["outcome"] != "skipped"]
    return Run(
        rollouts_E=tuple(rollouts_of(config) * i // config.evaluation.points for i in range(len(passes_EP))),
        rates_EP=passes_EP / config.evaluation.samples,
        generated=sum(group["tokens"] for group in groups),
        degenerate=sum(group["k"] in (0, group["n"]) for group in groups) / len(groups),
        prefixed=sum(bool(group["prefix_tokens"]) for group in groups) / len(groups),
        fresh_T=np.array(
            [
                sum(group["k"] for group in fresh) / sum(group["n"] for group in fresh)
                for step in range(groups[-1]["step"] + 1)
                if (fresh := [group for group in groups if group["step"] == step and group["origin"] == "fresh"])
            ]
        ),
    )


def curves_table(own: Sequence[Run], hosted: Sequence[Run], name: str) -> TextTable:
    """Held-out pass@1 in both trainers and the difference, one row per evaluation."""
    rows = []
    for i, rollouts in enumerate(own[0].rollouts_E):
        left, right = (np.array([run.rates_EP[i] for run in runs]) for runs in (own, hosted))
        means = [interval(over_seeds(values.mean(axis=1).tolist())) for values in (left, right)]
        difference = crossed_difference(right, left).estimate
        rows.append((f"{rollouts:,}", *means, interval(difference, signed=True)))
    return TextTable(
        f"Held-out pass@1 of {name}, in Halfway's trainer and in TRL",
        ("rollouts", "Halfway", "TRL", "TRL - Halfway"),
        tuple(rows),
        f"{len(own)} seeds, 95 % intervals: over seeds, and of the difference over seeds and held-out problems.",
    )


def shares_table(runs: Mapping[str, Sequence[Run]]) -> TextTable:
    """What the chain did in each trainer, one row per trainer."""
    columns = ("trainer", "generated tokens", "degenerate groups", "groups behind a prefix")
    rows = [
        (
            NAMES[name],
            interval(over_seeds([run.generated for run in found]), digits=0),
            interval(over_seeds([run.degenerate for run in found])),
            interval(over_seeds([run.prefixed for run in found])),
        )
        for name, found in runs.items()
    ]
    return TextTable("What the chain did", columns, tuple(rows), "Shares of all groups that were rolled out.")


def figure(runs: Mapping[str, Sequence[Run]]) -> Any:
    """Held-out scores and training pass rates, with each run as a thin line and a trainer's mean as a thick line."""
    from halfway.experiments.report.figures.style import PALETTE, grid

    drawn, [[left, right]] = grid(1, 2, height=3.2)
    for color, (name, found) in zip(PALETTE, runs.items(), strict=False):
        scores_SE = np.array([run.rates_EP.mean(axis=1) for run in found])
        fresh_ST = np.array([moving(run.fresh_T) for run in found])
        for ax, x, values in ((left, found[0].rollouts_E, scores_SE), (right, range(fresh_ST.shape[1]), fresh_ST)):
            for one in values:
                ax.plot(x, one, color=color, linewidth=0.8, alpha=0.5)
            ax.plot(x, values.mean(axis=0), color=color, label=NAMES[name])
    left.set(xlabel="rollouts", ylabel="held-out pass@1")
    right.set(xlabel="step", ylabel="training pass rate, mean of 5 steps")
    left.legend()
    return drawn


def moving(values_T: NDArray[np.float64], width: int = 5) -> NDArray[np.float64]:
    """Moving averages over `width` values, (steps - width + 1,)."""
    return np.convolve(values_T, np.ones(width) / width, mode="valid")


@script
def main() -> int:
    """Train the runs that are missing, print the tables, and write them with their numbers and a figure."""
    parser = script_parser(__doc__)
    parser.add_argument("recipe", type=Path, help="a run's file")
    parser.add_argument("overrides", nargs="*", help="FIELD=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/hosted"))
    options = parser.parse_args()
    config = load_run_config(options.recipe, options.overrides)
    check(config)
    runs: dict[str, list[Run]] = {name: [] for name in TRAINERS}
    for seed in options.seeds:
        for name, found in runs.items():
            found.append(run(replace(config, seed=seed), name, options.out / name / f"seed-{seed}"))
    tables = [curves_table(runs["halfway"], runs["trl"], config.name), shares_table(runs)]
    for table in tables:
        Console().print(table.rich())
    write_text(options.out / "hosted.md", "\n".join(table.markdown() for table in tables))
    numbers = {
        name: [
            {"seed": seed, "rollouts": each.rollouts_E, "pass_at_1": each.rates_EP.mean(axis=1).tolist()}
            for seed, each in zip(options.seeds, found, strict=True)
        ]
        for name, found in runs.items()
    }
    write_json(options.out / "hosted.json", numbers)
    from matplotlib import rc_context

    from halfway.experiments.report.figures.style import STYLE

    with rc_context(STYLE):
        figure(runs).savefig(options.out / "hosted.png", dpi=120)
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
