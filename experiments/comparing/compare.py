"""Runs comparisons: a sweep for every arm with a grid, then every arm with every seed; each run can be resumed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from halfway.experiments.comparing.additions import extend, restrict
from halfway.experiments.comparing.jobs import Failure, Job
from halfway.experiments.comparing.processes import Start
from halfway.experiments.comparing.runner import InThisProcess, Runner
from halfway.experiments.comparing.tuning import final_jobs, make_room, sweeps_of, tuning_jobs, write_sweeps
from halfway.experiments.config.comparison import TUNING, ComparisonConfig
from halfway.experiments.config.design import Setting
from halfway.experiments.config.loading import differences, load_comparison_config, save
from halfway.experiments.report.analysis.sweeps import Sweep
from halfway.experiments.running.runs import COMPARISON, is_prepared, prepare, refuse_other_settings, require_unused
from halfway.experiments.tracking.recording import Tracker


def prepare_comparison(
    config: ComparisonConfig, folder: Path, check_more: Callable[[], None] = lambda: None
) -> ComparisonConfig:
    """Give a comparison its directory; if it already has one, add what is new (see `extend`).

    Args:
        check_more: further checks, made before anything is written.

    Raises:
        UserError: if the directory has a comparison with other settings or files of another kind, or this machine
            cannot run an arm's environment.
    """
    runs = [config.run(arm, config.seeds[0]) for arm in config.arms]
    for run in {repr(run.environment): run for run in runs}.values():
        run.environment.part.check()
    if earlier := _started(folder):
        config = extend(earlier, config)
        refuse_other_settings(differences(earlier, restrict(config, earlier)), folder)
    else:
        require_unused(folder)
    check_more()
    save(config, folder / COMPARISON)
    return config


def _started(folder: Path) -> ComparisonConfig | None:
    """The comparison that a folder has already."""
    path = folder / COMPARISON
    return load_comparison_config(path) if path.exists() else None


def planned_arms(config: ComparisonConfig, only: Collection[str]) -> list[str]:
    """`only`, with the arms that the comparison in the folder has already, so that contrasts of both are planned."""
    started = _started(config.folder)
    return list(dict.fromkeys([*only, *(arm for arm in config.arms if started and arm in started.arms)]))


def run_comparison(
    config: ComparisonConfig,
    folder: Path,
    parallel: int,
    console: Console,
    trackers: Sequence[Tracker] = (),
    only: Collection[str] = (),
    begin: Start | None = None,
    skip: Collection[tuple[str, int]] = (),
) -> list[Failure]:
    """Tune the arms with a grid, then train every unfinished run, `parallel` at a time.

    An interrupt stops the runs too. Each continues from its newest checkpoint when the comparison is run again.

    Args:
        parallel: 0 = one after the other, in this process.
        only: arms to tune and train now; empty = all.
        begin: see `Runner`.
        skip: runs, by arm and seed, not to train.

    Returns:
        The failed runs; other runs are not affected. A failure in a sweep counts only if its arm has no choice.
    """
    for tracker in trackers:
        tracker.comparison(config, folder)
    state = "stopped"
    try:
        runner = (Runner if parallel else InThisProcess)(parallel, console, trackers, begin)
        chosen, failures = tune(config, folder, runner, only)
        jobs = _of(only, jobs_of(config, folder, chosen))
        failures += runner.train([job for job in jobs if (job.arm, job.seed) not in skip])
        state = "failed" if failures else "finished"
    finally:
        for tracker in trackers:
            tracker.end(state, (folder / COMPARISON,))
    return failures


def tune(
    config: ComparisonConfig, folder: Path, runner: Runner, only: Collection[str] = ()
) -> tuple[dict[str, Setting], list[Failure]]:
    """Run the sweeps and then their finals, and write the results.

    Returns:
        The chosen settings by arm, and the failures of tuned arms without one.
    """
    jobs = tuning_jobs(config, folder)
    if not jobs:
        return {}, []
    failures = runner.train(_of(only, jobs))
    if config.tune.finals:
        failures += runner.train(_of(only, final_jobs(config, folder)))
    sweeps = sweeps_of(config, folder)
    write_sweeps(config, folder, sweeps)
    for arm, sweep in sweeps.items():
        if only and arm not in only:
            continue
        runner.console.print(outcome(arm, sweep), soft_wrap=True)
    chosen = {arm: Setting(trial.values) for arm, sweep in sweeps.items() if (trial := sweep.choice)}
    return chosen, [failure for failure in failures if _arm(failure.job) not in chosen]


def _of(arms: Collection[str], jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not arms or _arm(job) in arms]


def _arm(job: Job) -> str:
    """The arm of a job; jobs of a sweep are called tuning/ARM/SETTING."""
    first, *rest = job.arm.split("/")
    return rest[0] if first == TUNING else first


def outcome(arm: str, sweep: Sweep) -> str:
    """Describe the result of an arm's sweep in one line."""
    trial = sweep.choice
    if trial is None:
        return f"{arm}: no setting of its grid finished with every tuning seed, so it is not trained"
    values = ", ".join(f"{name}={value}" for name, value in trial.values.items())
    finished = sum(other.mean_area is not None for other in sweep.settings)
    missing = f" of which {finished} finished" if finished < len(sweep.settings) else ""
    edge = f"; at the edge of the grid: {', '.join(sweep.at_edge)}" if sweep.at_edge else ""
    if sweep.equals > 1:
        edge = f"; {sweep.equals} settings did equally well, the first one was chosen{edge}"
    area, last = trial.mean_area, trial.final_area
    height = f"area {area:.3f}" if last is None else f"area {last:.3f} in the finals, {area:.3f} before"
    return f"{arm}: tuned to {values} ({height}, best of {len(sweep.settings)}{missing}){edge}"


def jobs_of(config: ComparisonConfig, folder: Path, chosen: Mapping[str, Setting]) -> list[Job]:
    """Make the directories and jobs of all runs; a tuned arm without a chosen setting has none."""
    runs = (run for arm, run in config.runs(chosen) if arm in chosen or not config.grid(arm))
    jobs = [Job.of(config, run, folder) for run in runs]
    for job in jobs:
        if not is_prepared(job.config, job.folder):
            make_room(job, config.grid(job.arm), folder)
            prepare(job.config, job.folder)
    return jobs
