"""Carries out `halfway advise`: reads a log and prices, and writes a ranking."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.advice.candidates import BASELINE, Candidate, candidates, of_arms
from halfway.experiments.advice.logs import LoggedRun, read_run
from halfway.experiments.advice.play import Setting
from halfway.experiments.advice.ranking import Advice, advise
from halfway.experiments.advice.telling import fit_lines, ranking_table, recipe, sentence

POINTS = 6


def run_advice(
    log: Path, cluster: Path | None, rho: float | None, arms: Path | None, draws: int, out: Path, console: Console
) -> Advice:
    """Fit a learner to a log, play the chains, print the advice, and write `advice.json` and `advice.yaml` to `out`.

    If no chain is clearly ahead, `nearest.yaml` has the most promising chain.

    Raises:
        UserError: if the log, or a file of prices or arms, cannot be used.
    """
    run = read_run(log)
    setting = _setting(run, _rho(cluster, rho))
    chains = of_arms(_arms(arms)) if arms else candidates(run.groups, run.problems)
    if all(chain.name != BASELINE for chain in chains):
        chains = [Candidate(BASELINE, (BASELINE,)), *chains]
    with console.status("fitting") as status:
        found = advise(
            run,
            chains,
            setting,
            draws,
            progress=lambda draw, name: status.update(f"learner {draw + 1}/{draws}: {name}"),
        )
    if found.rows:
        console.print(ranking_table(found).rich())
    for line in fit_lines(found):
        console.print(line, style="dim", highlight=False)
    console.print(sentence(found), style="bold", highlight=False)
    _write(found, log, out)
    console.print(f"written to {out}", highlight=False)
    return found


def _setting(run: LoggedRun, rho: float | None) -> Setting:
    """The setting with the log's own budget: its rollouts or, given rho, the cost of its rollouts and their updates."""
    if rho is None:
        return Setting(run.num_rollouts, run.groups_per_update, run.rollouts, points=POINTS)
    cost = run.rollouts * (1 + rho * run.trained_share)
    return Setting(run.num_rollouts, run.groups_per_update, cost, "cost", rho, POINTS)


def _rho(cluster: Path | None, rho: float | None) -> float | None:
    """The cost of a trained token: as given, or from the roofline of a run's cluster block."""
    if cluster is None:
        if rho is not None and rho < 0:
            raise UserError(f"--rho: {rho} is not acceptable; give 0 or more")
        return rho
    if rho is not None:
        raise UserError("--rho: the cluster's machines say what it is; leave one of --rho and --cluster out")
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.config.model_files import model_shape
    from halfway.experiments.report.analysis.roofline import of_cluster

    config = load_run_config(cluster)
    return of_cluster(config, model_shape(config)).rho


def _arms(path: Path) -> dict[str, dict[str, object]]:
    from halfway.experiments.config.loading import load_comparison_config

    return dict(load_comparison_config(path).arms)


def _write(advice: Advice, log: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        {**asdict(row), "candidate": row.candidate.name, "controllers": list(row.candidate.controllers)}
        for row in advice.rows
    ]
    told = {"advice": sentence(advice), "setting": asdict(advice.setting), "rows": rows, "not_played": advice.refused}
    write_text(out / "advice.json", json.dumps(told, indent=1) + "\n")
    if not advice.missing:
        best = advice.clear.candidate if advice.clear else Candidate(BASELINE, (BASELINE,))
        write_text(out / "advice.yaml", recipe(best, advice, log))
    if advice.nearest is not None:
        write_text(out / "nearest.yaml", recipe(advice.nearest.candidate, advice, log))
