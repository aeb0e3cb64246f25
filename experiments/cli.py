"""The commands of `halfway`. Each imports only what it needs, so that help and checks start fast."""

import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from halfway.experiments.output_flags import as_json, busy, clean_lines, now, terminal, with_options
from halfway.experiments.scripts import USER_ERROR, complain, one_line_errors, refuse

if TYPE_CHECKING:
    from rich.console import Console

    from halfway.experiments.comparing.processes import Start
    from halfway.experiments.config.comparison import ComparisonConfig
    from halfway.experiments.config.run import RunConfig, TrackingOptions
    from halfway.experiments.running.validation import Drawn

FAILED = 1
MOST_SEEDS = 1000
PROVED = "experiments/recipes/lab/sums.yaml"
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Exception of typer for arguments that it cannot parse. Its name in typer's modules depends on the version."""


class Commands(TyperGroup):
    """The commands of `halfway`. Wrong arguments get a one-line message, like any other mistake."""

    words: Sequence[str] = ()

    def make_context(self, info_name: Any, args: list[str], *others: Any, **kwargs: Any) -> Any:
        self.words = tuple(args)
        with one_line_usage(self.words):
            return super().make_context(info_name, args, *others, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with one_line_usage(self.words):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(wanted: bool) -> None:
    """If `wanted`, print the version and exit."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"halfway {version('halfway')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train with pass-rate controllers, compare them on an equal budget, report, and audit rollout logs."""


def recipe(word: str) -> Path:
    """The file at this path if it exists; otherwise the recipe at this path in the repository or installed package."""
    from halfway.experiments.config.paths import recipe

    return recipe(word)


File = Annotated[Path, typer.Argument(metavar="FILE", parser=recipe)]
Overrides = Annotated[list[str] | None, typer.Argument()]
Seeds = Annotated[str, typer.Option(metavar="SEEDS...")]
Jobs = Annotated[int, typer.Option(min=1)]
SHARED = {
    "file": "YAML file, or a recipe's path in the Halfway repository.",
    "folder": "Directory of a run or a comparison.",
    "overrides": "Fields to override, such as learner.lr=3e-4 seed=1.",
    "seeds": "Seeds to use instead of the file's, such as 0 1 2 or 0-2.",
    "jobs": "Number of runs trained at the same time.",
    "on": "here; or slurm or ray, one job per run.",
}
"""The help of parameters that several commands have."""


def command(*shows: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that reports a user's mistake in one line on stderr and exits with code 2.

    Its docstring is its help, and the texts under "Args:" are those of its parameters.

    Args:
        shows: those of `--full`, `--quiet` and `--json` that the command accepts.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            with one_line_errors(f"halfway {options.get('name', function.__name__)}"):
                function(*args, **kwargs)

        app.command(**options)(with_options(guarded, SHARED, *shows))
        return guarded

    return register


@contextmanager
def one_line_usage(words: Sequence[str] = ()) -> Iterator[None]:
    """Report a usage error as one red line instead of typer's box, and exit."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # `halfway` alone, which has printed its help
            raise
        refuse(field_line(error, words) or usage_line(error))


def field_line(error: Any, words: Sequence[str]) -> str:
    """A hint for an option such as `--seed 1` that is a field of the file; empty if it is not a field."""
    option = getattr(error, "option_name", "")
    takes_fields = error.ctx and {"overrides", "words"} & {one.name for one in error.ctx.command.params}
    meant = any(one.startswith(option) for one in getattr(error, "possibilities", None) or ())
    if not (option and takes_fields) or meant:
        return ""
    from halfway.experiments.config.run import RunConfig

    name = option.lstrip("-").replace("-", "_")
    if name.partition(".")[0] not in RunConfig.__dataclass_fields__:
        return ""
    given = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), len(words))
    value = "=".join(words[given : given + 2]).partition("=")[2] or "..."
    return f"{error.ctx.command_path}: {option} is a field, not an option; write {name}={value}"


def usage_line(error: Any) -> str:
    """One line on a usage error: option, value and remedy, as far as typer provides them."""
    from halfway.curriculum import refusal

    command = error.ctx.command_path if error.ctx else "halfway"
    parameter = getattr(error, "param", None)
    refused: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if parameter is not None and refused:
        remedy = refused[0]["msg"].split(", ")[0].replace("Input should be", "give")
        remedy = remedy.replace("greater than or equal to", "at least")
        return str(refusal(parameter.opts[0], refused[0]["input"], remedy))
    message = error.format_message().rstrip(".")
    remedy = "" if message.endswith(("?", ")")) else f"; see `{command} --help`"  # else typer has named what exists
    return f"{command}: {message[:1].lower()}{message[1:]}{remedy}"


def say(text: str, err: bool = False) -> None:
    """Print a text that may come from a stranger."""
    typer.echo(clean_lines(text), err=err)


def resume_command(folder: Path) -> str:
    """The command that continues a run or a comparison."""
    return f"halfway resume {shlex.quote(str(folder))}"


@contextmanager
def stoppable(continuing: str = "") -> Iterator[None]:
    """If a signal ends the work, print the command that continues it, by default the same.

    The exit code is 130 or 143.
    """
    from halfway.experiments.running.stop_signals import exit_code, interrupt_on_signals

    try:
        with interrupt_on_signals():
            yield
    except KeyboardInterrupt as error:
        say(f"\nstopped; continue with{f': {continuing}' if continuing else ' the same command'}", err=True)
        raise typer.Exit(exit_code(error)) from None


@command("quiet", "json")
def run(file: File, overrides: Overrides = None) -> None:
    """Train one run and write its report.

    With two processes: torchrun --nproc-per-node 2 --no-python halfway run FILE.
    """
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.runs import is_worker, prepare, run_worker

    config = load_run_config(file, overrides or [])
    if is_worker():
        raise typer.Exit(run_worker(config))
    prepare(config, config.folder)
    _train_run(config, config.folder)


@command("quiet", "json")
def compare(
    file: File,
    overrides: Overrides = None,
    seeds: Seeds = "",
    arms: str = "",
    jobs: Jobs = 1,
    on: str = "here",
) -> None:
    """Train every arm with every seed on one budget, and write a report.

    Run the command again to continue an interrupted comparison, or to add seeds or arms.

    Args:
        arms: Train only these arms, such as grpo,greso; others can be added later.
    """
    from halfway.curriculum import UserError
    from halfway.experiments.comparing.compare import planned_arms, prepare_comparison
    from halfway.experiments.config.comparison import absent_contrasts, with_arms
    from halfway.experiments.config.loading import load_comparison_config
    from halfway.experiments.running.validation import check_chains

    begin = _starter(on)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("compare: starts its own processes; start it in one process, or start one arm with `run`")
    changes, chosen = split_seeds(overrides or [], seeds)
    config = load_comparison_config(file, changes)
    if chosen:
        config = replace(config, seeds=tuple(chosen))
    only = arms.split(",") if arms else []
    if only:
        names = planned_arms(config, only)
        for pair in absent_contrasts(config, names):
            now().warn(now().progress, f"contrasts: {' vs '.join(pair)} is left out, since --arms names one of the two")
        config = with_arms(config, names)
    drawn: dict[str, Any] = {}
    with busy("checking the arms"):
        prepared = prepare_comparison(config, config.folder, lambda: check_chains(config, drawn))
    _train_comparison(prepared, config.folder, jobs, only, begin, drawn)


@command("quiet", "json")
def resume(
    folder: Path, jobs: Jobs = 1, start: Annotated[int | None, typer.Option("--from", min=0, metavar="STEP")] = None
) -> None:
    """Continue an unfinished run or comparison.

    Args:
        start: Restart a run from its checkpoint of this step, 0 = the start; later checkpoints are renamed left-*.
    """
    from halfway.curriculum import UserError
    from halfway.experiments.config.loading import load_comparison_config, load_run_config
    from halfway.experiments.running.runs import is_worker, run_worker

    path = _config_in(folder)
    if is_worker():
        raise typer.Exit(run_worker(load_run_config(path)))
    if path.name == "config.yaml":
        _train_run(load_run_config(path), folder, start)
    elif start is None:
        _train_comparison(load_comparison_config(path), folder, jobs)
    else:
        raise UserError(f"--from: {folder} is a comparison; give the folder of one of its runs")


@command("json")
def report(folder: Path, figures: bool = False, live: bool = False) -> None:
    """Print the table of a run or comparison, finished or not, and rewrite its report.

    Runs inside another trainer have reports too: give the folder with their decisions.jsonl.

    Args:
        figures: Also save the charts, as SVG, PNG and PDF.
        live: Rewrite the page until all runs have ended; a browser reloads it automatically.
    """
    if not (folder / "hosted.json").exists():
        _config_in(folder)
    if live:
        from halfway.experiments.report.report_page import write_live_report

        with suppress(KeyboardInterrupt):
            write_live_report(folder, now().progress.print)
    _show_report(folder, figures)


@command()
def retrace(folder: Path) -> None:
    """Repeat the decisions of a run with rollouts.staleness above 0 from its event log, and compare."""
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running import build
    from halfway.experiments.running.retrace import retrace as again

    config = load_run_config(_config_in(folder))
    problems, policy = build.build_problems(config).train, functools.partial(build.load_starting_policy, config)
    session = build.build_session(config, problems, policy, folder)
    staleness, every = config.rollouts.staleness, config.evaluation.oracle_every
    found = again(folder, session, config.fill, staleness, config.seed, every)
    if found.different:
        typer.secho(f"decisions.jsonl: line {found.different} differs", err=True, fg=typer.colors.RED)
        raise typer.Exit(FAILED)
    typer.echo(f"{found.steps} steps, {found.decisions} decisions, all as in the log")


@command()
def validate(
    words: Annotated[list[str], typer.Argument(metavar="FILES...")], rows: bool = False, kept: Path | None = None
) -> None:
    """Check files completely, model and problems included, without torch; show the memory that a cluster needs.

    Mistakes are reported with file and line, all at once where possible.

    Files of a cluster run that are not on this machine, and models on a hub, only cause a warning.

    Args:
        words: YAML files, and fields to override in each, such as learner.lr=3e-4.
        rows: Also run each repository task's tests, which must fail before the fix and pass after it.
        kept: With --rows: JSONL file for the tasks that pass this check.
    """
    from halfway.curriculum import UserError
    from halfway.curriculum.support.extras import clean
    from halfway.experiments.config.line_numbers import place_mistakes

    changes = [word for word in words if "=" in word and not Path(word).exists()]
    files = [recipe(word) for word in words if word not in changes]
    if not files:
        raise UserError(f"validate: no file among {changes}; give a YAML file")
    failed = 0
    for file in files:
        try:
            what, needs, unchecked = _described(file, changes)
        except UserError as error:
            failed += 1
            for line in place_mistakes(file, error, changes):
                complain(line)
            continue
        typer.echo(clean(f"ok: {file}: {what}"))
        for need in needs:
            typer.echo(f"  {clean(need)}")
        for line in unchecked:
            typer.secho(f"  warning: {clean(line)}", fg=typer.colors.YELLOW)
        if rows:
            failed += not _rows_hold(file, changes, kept)
    if failed:
        raise typer.Exit(USER_ERROR)


@command()
def init(
    file: Path,
    data: str = "train.jsonl",
    model: str = "path/to/model",
    gpus: Annotated[int, typer.Option(min=0)] = 0,
    host: str = "halfway",
) -> None:
    """Write a short starter recipe; its comments say what to change.

    Args:
        file: YAML file to write.
        data: Problems: a JSON Lines, JSON, CSV or Parquet file, folder or pattern, owner/name on the hub, or
            taskset:NAME of verifiers.
        model: A Hugging Face folder, or owner/name on its hub.
        gpus: GPUs of the machine.
        host: halfway, trl, verl, trinity, tinker or prime_rl.
    """
    from halfway.experiments.config.starter import write_starter

    typer.echo(write_starter(file, data, model, gpus, host), nl=False)


@command()
def schema(file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write a JSON schema of the YAML files, installed plugins included, for completion and checks in an editor.

    Args:
        file: JSON file to write; default: standard output.
    """
    from halfway.curriculum.support.atomic import write_text
    from halfway.experiments.schema import schema as made

    text = f"{as_json(made())}\n"
    if file:
        write_text(file, text)
    typer.echo(f"written: {file}" if file else text, nl=bool(file))


@command()
def launch(
    file: File,
    overrides: Overrides = None,
    nodes: str = "localhost",
    dry_run: bool = False,
    through: str = "ssh",
    on: str = "hosts",
) -> None:
    """Start a run on its cluster: the engine's servers on rollout hosts, the ranks on training hosts.

    Args:
        nodes: Hosts, such as a,b,c: training hosts first.
        dry_run: Print one command of each kind of process instead of running them.
        through: How to reach other hosts: ssh or srun.
        on: hosts: those of --nodes; slurm: submit a job that resumes when requeued.
    """
    from halfway.curriculum import refusal
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.launch import batch_script, commands, kinds, run_all, submit
    from halfway.experiments.running.memory_estimate import require_room
    from halfway.trainers.engines.vllm_servers import auth

    if through not in ("ssh", "srun"):
        raise refusal("--through", through, "give ssh or srun")
    if on not in ("hosts", "slurm"):
        raise refusal("--on", on, "give hosts or slurm; for Kubernetes, see docs/deploy")
    config = load_run_config(file, overrides or [])
    hosts = [host for host in nodes.replace(",", " ").split() if host]
    if on != "hosts":  # the scheduler chooses them
        hosts = ["host"] * (config.cluster.train_nodes + config.cluster.rollout_nodes)
    needed = commands(config, file.resolve(), hosts, overrides or [])
    config.rollouts.engine.part.check(config.planned(config.shape))
    if config.cluster.gpus:
        require_room(config)
    if on != "hosts":
        script = batch_script(config, file.resolve(), overrides or [])
        say(script if dry_run else submit(script))
        return
    if dry_run:
        for line in kinds(needed):
            say(line)
        return
    with stoppable(resume_command(config.folder)):
        status = run_all(needed, through, {auth.VARIABLE: auth.given_token() or auth.new_token()})
    if status:
        complain(f"a training process ended with status {status}, see its own message above")
        raise typer.Exit(FAILED)


@command()
def serve(file: File, overrides: Overrides = None, address: str = "127.0.0.1") -> None:
    """Run the engine servers of a run on this host until stopped, as `launch` does on rollout hosts.

    Servers and run need the same token, in HALFWAY_SERVER_TOKEN or in the file named by HALFWAY_SERVER_TOKEN_FILE.

    Args:
        address: Address of this host on which the servers listen.
    """
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.launch import serve as run_servers

    config = load_run_config(file, overrides or [])
    config.rollouts.engine.part.check(config.planned(config.shape))
    run_servers(config, address)


@command()
def doctor(file: File, overrides: Overrides = None) -> None:
    """Check whether this machine can run a recipe: limits, cores, network, disks, programs, devices."""
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.proving.host import host_checks

    checks = list(host_checks(load_run_config(file, overrides or [])))
    for check in checks:
        say(str(check))
    failures = sum(check.verdict == "FAIL" for check in checks)
    if failures:
        complain(f"{failures} of {len(checks)} checks failed")
        raise typer.Exit(FAILED)


@command()
def prove(
    part: list[str] | None = None,
    ranks: Annotated[int, typer.Option(min=2)] = 2,
    file: Annotated[Path, typer.Option(parser=recipe)] = PROVED,  # type: ignore[assignment]
    proof: Path = Path("proof.json"),
    plant: list[str] | None = None,
) -> None:
    """Test learner, servers and a whole run on this machine; prints ok, FAIL or skip for each check.

    Args:
        part: host, agreement, learner, servers or run; default: all.
        ranks: Processes of a distributed update.
        file: The run for which to check the host.
        proof: File for the results of all checks.
        plant: Inject this fault, which a check must find, to test the checks.
    """
    from halfway.curriculum import require
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.proving.host import host_checks
    from halfway.experiments.proving.prove import FAULTS, LIMITS, write_checks
    from halfway.experiments.proving.prove import prove as proved

    wanted = part or ["host", *LIMITS]
    for name in wanted:
        require(name in ("host", *LIMITS), "--part", name, f"give one of host, {', '.join(LIMITS)}")
    for fault in plant or ():
        require(fault in FAULTS, "--plant", fault, f"give one of {', '.join(FAULTS)}")
    host = host_checks(load_run_config(file)) if "host" in wanted else iter(())
    checks = []
    for check in chain(host, proved([name for name in wanted if name != "host"], ranks, plant or ())):
        say(str(check))
        checks.append(check)
    if failures := write_checks(checks, proof):
        complain(f"{failures} of {len(checks)} checks failed, see {proof}")
        raise typer.Exit(FAILED)


def _rows_hold(file: Path, changes: Sequence[str], kept: Path | None) -> bool:
    """Check every task of a run's source, print the result, and write the valid tasks; False if there are none."""
    from halfway.curriculum import UserError
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.validation import check_rows

    try:
        say(f"  rows: {check_rows(load_run_config(file, changes), kept)}")
    except UserError as error:
        complain(f"{file}: {error}")
        return False
    return True


def _described(file: Path, changes: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Describe a YAML file; also returns notes (data, memory, first prompt) and unchecked items.

    Raises:
        UserError: if the file has a mistake.
    """
    from halfway.experiments.config.comparison import ComparisonConfig
    from halfway.experiments.config.loading import load_config
    from halfway.experiments.propel.commands import check_study
    from halfway.experiments.propel.config import is_study, load_study
    from halfway.experiments.running.memory_estimate import require_room
    from halfway.experiments.running.validation import check_comparison, check_run, describe_problems, describe_visits

    if is_study(file):
        study = load_study(file, changes)
        what = f"a study of {len(study.arms)} task generators x {len(study.seeds)} seeds, {study.domain.name}"
        return what, [], check_study(study)
    config = load_config(file, changes)
    drawn: dict[str, Any] = {}
    if isinstance(config, ComparisonConfig):
        what = f"a comparison of {config.size}"
        unchecked = check_comparison(config, drawn)
        runs = {arm: config.run(arm, config.seeds[0]) for arm in config.arms}
    else:
        what = "a run of " + " -> ".join(config.chain.members)
        unchecked = check_run(config, drawn)
        runs = {"run": config}
    run = next(iter(runs.values()))
    needs = [str(need) for need in require_room(run)] if run.cluster.gpus else []
    needs += describe_problems(run, drawn)
    if drawn:
        needs += describe_visits(runs, len(next(iter(drawn.values())).train))
    return f"{what}, {config.budget.total:g} {config.budget.unit}", needs, unchecked


@command("full", "quiet", "json")
def survey(
    words: Annotated[list[str], typer.Argument(metavar="RECIPE | MODEL DATA")],
    problems: Annotated[int, typer.Option(min=1)] = 256,
    samples: Annotated[int, typer.Option(min=2)] = 16,
    keep: str = "",
    form: str = "",
    output: Path | None = None,
) -> None:
    """Measure a model on its problems before training: pass rates, zero-variance groups, lengths, texts.

    Run the command again to continue. The pass rates are written as a problem file that a run can read.

    Args:
        words: A recipe with overrides, or MODEL and DATA (a file, folder or pattern), read as by `halfway init`.
        problems: Number of problems to try.
        samples: Attempts at each problem.
        keep: Condition on the problems to write, such as '0 < rate < 1'; empty = all.
        form: Regular expression that matches an answer of the right form.
        output: Folder of the survey; default runs/NAME-survey.
    """
    from halfway.curriculum.support.extras import clean
    from halfway.experiments.survey.findings import check_expression
    from halfway.experiments.survey.survey import (
        brief,
        column_table,
        example_lines,
        finish_survey,
        keep_problems,
        run_survey,
        sentences,
        survey_config,
        survey_tables,
    )

    check_expression(keep)
    config = survey_config([word if "=" in word else str(recipe(word)) for word in words], samples)
    folder = output or Path(config.output) / f"{config.name}-survey"
    with stoppable():
        tried, records = run_survey(config, folder, problems, form, now().progress)
        findings = finish_survey(config, folder, records)
        if now().json:
            typer.echo(as_json(findings))
            keep_problems(folder, tried, records, keep)
            return
        console = terminal()
        for table in (*survey_tables(findings), column_table(findings)) if now().full else (brief(findings),):
            console.print(table)
        for line in example_lines(records) if now().full else ():
            typer.echo(clean(line))
        say(f"\n{sentences(findings)}")
        say(keep_problems(folder, tried, records, keep))


@command()
def propel(
    stage: str, file: File, overrides: Overrides = None, seeds: Seeds = "", arm: str = "", run: Path | None = None
) -> None:
    """Train task generators on the rewards of a probe, stage by stage or all at once.

    Run the command again to continue. `export` writes pools for solver training: new tasks from every arm, or the
    problems of a run, with predicted pass rates.

    Args:
        stage: corpus, sweep, train, evaluate, all, or export.
        arm: Train, evaluate or export only this arm.
        run: With export: predict the pass rates of the problems in this YAML file.
    """
    from halfway.experiments.propel.commands import check_stage, run_stages
    from halfway.experiments.propel.config import load_study, prepare

    changes, chosen = split_seeds(overrides or [], seeds)
    config = load_study(file, changes)
    if chosen:
        config = replace(config, seeds=tuple(chosen))
    check_stage(config, stage, arm, run)
    prepare(config)
    with stoppable():
        run_stages(config, stage, arm, terminal(), run)


@command("quiet", "json")
def reproduce(
    name: Annotated[str, typer.Argument()] = "",
    jobs: Jobs = 1,
    on: str = "here",
    quick: bool = False,
    scale: str = "lab",
    fresh: bool = False,
) -> None:
    """List the published results of the four papers, or run one: claim, published numbers, rule, measured, status.

    Runs whose curves are committed are not trained again. Run the command again to continue. Rows of a paper share
    their runs, in runs/reproduce.

    Args:
        name: A paper, such as greso; or a row, such as greso/table-1-rollouts; empty = all papers.
        quick: Spend a tenth of the budget; gives no verdict.
        scale: lab; or paper: the paper's model, data and batch, on a cluster.
        fresh: Train all runs, even those with committed curves.
    """
    import msgspec

    from halfway.curriculum import refusal
    from halfway.experiments.reproduction.judging import read_measured
    from halfway.experiments.reproduction.paper_pages import write_row
    from halfway.experiments.reproduction.paper_rows import find_paper, find_row, papers
    from halfway.experiments.reproduction.reproduce import QUICK, describe, papers_table, rows_table, run_row
    from halfway.experiments.running.runs import COMPARISON

    begin = _starter(on)
    if scale not in ("lab", "paper") or (quick and scale == "paper"):
        raise refusal("--scale", scale, f"give lab{' with --quick' if quick else ' or paper'}")
    word, _, chosen = name.partition("/")
    paper = find_paper(word) if word else None
    if paper is None or not chosen:
        if now().json:
            found_in = {each.name: read_measured(each) for each in ([paper] if paper else papers())}
            typer.echo(as_json(msgspec.to_builtins(found_in[paper.name] if paper else found_in)))
        else:
            terminal().print(rows_table(paper) if paper else papers_table())
        return
    row = find_row(paper, chosen)
    if not row.runs:
        found, folder = read_measured(paper)[chosen], None
    else:
        if quick:
            now().warn(now().progress, "--quick spends a tenth of the budget, so its status is no verdict")
        share, paper_scale = QUICK if quick else 1.0, scale == "paper"
        with stoppable():
            found, folder = run_row(paper, chosen, now().progress, jobs, begin, share, paper_scale, fresh)
    written = [folder / f"{chosen}.json", *write_row(folder, paper, chosen, found)] if folder else []
    if now().json:
        typer.echo(as_json(msgspec.to_builtins(found)))
        return
    if folder and (folder / COMPARISON).exists():
        _show_report(folder)
    for line in describe(row, found):
        say(line)
    if written:
        say(f"written: {', '.join(map(str, written))}")


@command("full", "json")
def audit(
    paths: list[Path],
    format_name: Annotated[str, typer.Option("--format")] = "",
    problem: str = "",
    reward: str = "",
    passes_at: float | None = None,
    hours: Annotated[float | None, typer.Option(min=0)] = None,
    replay: str = "usual",
    write: list[Path] | None = None,
) -> None:
    """Show from a trainer's log how many rollouts were wasted, and what controllers would have saved.

    Reads verl, TRL, prime-rl, verifiers, AReaL, ms-swift, NeMo-RL, open-instruct, ROLL, Trinity-RFT, tinker-cookbook,
    Halfway's own decisions.jsonl, and tables of problem, step and reward (JSONL, CSV, Parquet). Needs no torch.

    Args:
        paths: Files or folders of rollout logs.
        format_name: Format of all files; default: detected.
        problem: Problem column, if detection by name picks the wrong one.
        reward: Reward column, or several with weights: correct=1,format=0.2.
        passes_at: Lowest reward that counts as a success; default: guessed.
        hours: Cost of the run, such as GPU hours.
        replay: Controllers to replay, such as greso,retire; `usual` or `none`.
        write: Also write the audit to this .html or .json file; may be repeated.
    """
    from halfway.curriculum import require
    from halfway.experiments.audit.auditing import audit as audited
    from halfway.experiments.audit.counterfactual import DEFAULTS
    from halfway.experiments.audit.formats.base import Choices
    from halfway.experiments.audit.tables import show, write_audit

    for path in write or ():
        require(path.suffix in (".html", ".json"), "--write", str(path), "give a name that ends in .html or .json")
    names = DEFAULTS if replay == "usual" else () if replay == "none" else tuple(replay.replace(",", " ").split())
    with busy("reading logs, replaying controllers"):
        result = audited(paths, Choices(reward, passes_at, problem), format_name, names, hours)
    for path in write or ():  # before printing, since the reader of a pipe may stop early
        write_audit(result, path)
    if now().json:
        typer.echo(as_json(result.plain()))
    else:
        show(result, terminal(), now().full)
    for path in write or ():
        say(f"written: {path}", err=now().json)


@command("json", name="list")
def list_parts(name: Annotated[list[str] | None, typer.Argument()] = None, markdown: bool = False) -> None:
    """List the parts that a YAML file can name, one line each, or explain the options of one part.

    Args:
        name: A kind of part (controllers, domains, sources, verifiers, environments, engines, settings), a part such as
            greso or learner, or a paper: its method's name or arXiv number.
        markdown: Print controllers/README.md, the page on all controllers.
    """
    from rich.text import Text

    from halfway.experiments.catalogue import catalogue, controllers_page, explain

    if markdown:
        typer.echo(controllers_page(), nl=False)
        return
    wanted = " ".join(name or [])
    one = explain(wanted)
    listed = one or catalogue(wanted)
    if now().json:
        typer.echo(as_json({kind: [part._asdict() for part in parts] for kind, parts in listed.items()}))
        return
    console = terminal()
    show = functools.partial(console.print, soft_wrap=not console.is_terminal)  # no wrapping in a pipe
    for heading, parts in listed.items():
        show(Text(heading, "bold"))
        for part in parts:
            show(Text.assemble("  ", (part.name, "bold"), f": {part.about}"))
            for option in part.options if one else ():
                show(Text.assemble("    ", (option.text, "bold"), ": " if option.about else "", option.about))
    if not one:
        show("halfway list NAME explains one part, such as greso or learner, or one paper, such as AdaRFT")


def split_seeds(words: Sequence[str], option: str) -> tuple[list[str], list[int]]:
    """Split the arguments of a command into overrides and the seeds of `--seeds 0 1 2` or `--seeds 0-2`.

    The seeds are the value of the option, which may be a list such as "0,1,2", and the bare arguments after it.

    Raises:
        UserError: if a seed is not an integer of at least 0, or a range is empty or too long.
    """
    from halfway.curriculum import refusal

    bare = [word for word in words if option and "=" not in word]
    numbers: list[int] = []
    for word in [*option.replace(",", " ").split(), *bare]:
        first, dash, last = word.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() for end in ends) or not 0 <= int(ends[1]) - int(ends[0]) < MOST_SEEDS:
            raise refusal("--seeds", word, "give numbers, such as --seeds 0 1 2, or 0-2")
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    return [word for word in words if word not in bare], list(dict.fromkeys(numbers))


def _starter(on: str) -> "Start | None":
    """The function that starts a run as a job of the scheduler `on`; None = in a process of this machine."""
    from halfway.curriculum import refusal
    from halfway.experiments.comparing.scheduler_jobs import submit_to_ray, submit_to_slurm

    begin: dict[str, Start | None] = {"here": None, "slurm": submit_to_slurm, "ray": submit_to_ray}
    if on not in begin:
        raise refusal("--on", on, "give here, slurm or ray")
    return begin[on]


def _train_run(config: "RunConfig", folder: Path, start: int | None = None) -> None:
    output = _output_of(folder, config.name)
    with stoppable(resume_command(folder)):
        from halfway.experiments.api import train_run  # takes seconds, in which a signal may come

        train_run(config, folder, output, ["halfway", *sys.argv[1:]], now(), start)
        _show_report(folder)
    _show_tracking(now().progress, config.tracking, output)


def _train_comparison(
    config: "ComparisonConfig",
    folder: Path,
    jobs: int,
    only: Sequence[str] = (),
    begin: "Start | None" = None,
    drawn: "Drawn | None" = None,
) -> None:
    from halfway.experiments.comparing.compare import run_comparison
    from halfway.experiments.report.provenance import write_provenance
    from halfway.experiments.running.validation import check_chain, describe_visits
    from halfway.experiments.tracking.tracker_process import open_trackers

    with stoppable(resume_command(folder)):
        console, output = now().progress, _output_of(folder, config.name)
        first = config.run(next(iter(config.arms)), config.seeds[0])
        write_provenance(folder, ["halfway", *sys.argv[1:]])
        with busy("starting"):
            trackers = open_trackers(first.tracking, output)
            drawn = drawn or {}
            if not drawn:
                check_chain(first, drawn)
        runs = {arm: config.run(arm, config.seeds[0]) for arm in config.arms}
        visits = [line for split in [*drawn.values()][:1] for line in describe_visits(runs, len(split.train))]
        for line in (f"{config.size}, {jobs} at a time", *visits):
            console.print(line, highlight=False)
        failures = run_comparison(config, folder, jobs, console, trackers, only, begin)
        if failures:
            number = f"{len(failures)} run{'s' * (len(failures) > 1)}"
            complain(f"{number} failed (see above); fix the cause, then continue with: {resume_command(folder)}")
        _show_report(folder)
        for tracker in trackers:
            tracker.attach([folder / "report.html", folder / "summary.md"])
        _show_tracking(console, first.tracking, output)
        if failures:
            raise typer.Exit(FAILED)


def _show_report(folder: Path, figures: bool = False) -> None:
    """Print the short tables of the report, or all its numbers as JSON, and write it, with charts if `figures`.

    Raises:
        WriteError: in the end, if the report cannot be written.
    """
    from halfway.curriculum.support.atomic import WriteError
    from halfway.experiments.report.analysis.comparison_summary import summarize
    from halfway.experiments.report.conclusions import conclude
    from halfway.experiments.report.records import load_comparison_records
    from halfway.experiments.report.report_page import save_charts, write_page
    from halfway.experiments.report.tables.all_tables import quick_tables

    with busy("reading records, writing the report"):
        comparison = load_comparison_records(folder)
        summary = summarize(comparison)
        written: Path | WriteError
        try:
            written = write_page(comparison, summary)
            if figures:
                save_charts(comparison, summary)
        except WriteError as error:
            written = error
    if now().json:
        typer.echo(as_json(summary))
    else:
        console = terminal()
        console.print("\n".join(conclude(summary)))
        for table in quick_tables(summary):
            console.print(table)
        if isinstance(written, Path):
            console.print(f"report: {written}", soft_wrap=True)
    if isinstance(written, WriteError):
        raise written


def _show_tracking(console: "Console", tracking: "TrackingOptions", output: Path) -> None:
    from halfway.experiments.tracking.tracker_process import commands

    for name, command in commands(tracking, output):
        console.print(f"{name}: {command}", soft_wrap=True)


def _config_in(folder: Path) -> Path:
    """The configuration file in a directory; raises UserError if there is none, or it is not a regular file."""
    from halfway.curriculum import UserError
    from halfway.curriculum.support.atomic import require_regular_files

    require_regular_files(folder)
    for name in ("comparison.yaml", "config.yaml"):
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder}: no run or comparison here; give a folder that `halfway run` or `halfway compare` made")


def _output_of(folder: Path, name: str) -> Path:
    """The folder above the run called `name`, which holds tracker files; the run's own folder if it was renamed."""
    parts, folder = Path(name).parts, folder.resolve()
    return folder.parents[len(parts) - 1] if folder.parts[-len(parts) :] == parts else folder


def main() -> None:
    """Run the command `halfway`."""
    # On a busy machine, torch's threads spin for each other longer than they compute. This is libgomp's own number for
    # more threads than cores.
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"
    app(prog_name="halfway")


if __name__ == "__main__":
    main()
