"""The survey of one model on one set of problems: its configuration, its folder, its tables."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfway.curriculum import Problem, Stream, UserError, refusal
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.curriculum.support.extras import clean
from halfway.curriculum.tasks.data_files import kind_of, stem
from halfway.experiments.config import yaml_files
from halfway.experiments.config.loading import load_run_config, to_plain
from halfway.experiments.config.paths import find_model
from halfway.experiments.config.run import RunConfig, name_of, parse_run_config
from halfway.experiments.config.starter import fit_model, source_of
from halfway.experiments.report.text_tables import TextTable, share_text, table_of
from halfway.experiments.running.build import build_problems
from halfway.experiments.running.progress_bars import MinuteLines, progress_display
from halfway.experiments.running.validation import describe_verifiers, shorten
from halfway.experiments.survey.findings import Findings, find, write_kept
from halfway.experiments.survey.sampling import Record, read_records, sample

if TYPE_CHECKING:
    from rich.console import Console

    from halfway.trainers.rollouts.collector import Collector

FORMS = {"reasoning_gym": r"<answer>\s*\S[\s\S]*?</answer>", "numeric": r"\d", "symbolic": r"\\boxed|\d"}
"""The form of an answer, by verifier."""
SETTINGS, FINDINGS, KEPT = "settings.json", "survey.json", "problems.jsonl"
EXAMPLES, LONGEST = 3, 200
"""Number of problems whose texts are shown, and characters of each text."""
ASSUMED: Mapping[str, Any] = {
    "controllers": ["uniform"],
    "evaluation": {"problems": 0, "points": 0},
    "budget": {"steps": 1},
}
"""Settings for a survey of MODEL and DATA, as in `halfway init`, and settings that it does not use."""


def survey_config(words: Sequence[str], samples: int) -> RunConfig:
    """Make the run with the surveyed model, problems and engine: a recipe with overrides, or a model and a data file.

    Args:
        samples: attempts at each problem; they become the run's `rollouts.num_rollouts`.

    Raises:
        UserError: if the words name neither.
    """
    changes = [*(word for word in words if "=" in word), f"rollouts.num_rollouts={samples}"]
    match [word for word in words if "=" not in word]:
        case [recipe] if Path(recipe).suffix in (".yaml", ".yml"):
            return load_run_config(Path(recipe), changes)
        case [model, data] if not kind_of(Path(model))[0]:
            chat, response = fit_model(model)
            given = {
                "name": name_of(stem(data)),
                "model": {"path": model, "chat": chat},
                "rollouts": {"max_response_tokens": response},
                "problems": {"source": source_of(data)},
            }
            raw = yaml_bases.merge(ASSUMED, given)
            return parse_run_config(yaml_bases.merge(raw, yaml_files.parse_overrides(changes)))
    raise refusal("survey", " ".join(words), "give a recipe (.yaml), or MODEL and DATA")


def run_survey(
    config: RunConfig, folder: Path, count: int, form: str, console: "Console"
) -> tuple[list[Problem], list[Record]]:
    """Try `count` of the run's problems; continues an unfinished survey in the folder.

    Raises:
        UserError: if the folder has a survey with other settings, or the model or the problems cannot be loaded.
    """
    found = build_problems(config)
    for note in found.report.notes:
        _say(console, note)
    problems = list(found.trained[:count])
    prepare_folder({"config": to_plain(config), "form": form}, folder)
    pattern = form_pattern(form, problems)
    for line in describe_verifiers(problems):
        _say(console, line)
    if not console.is_terminal:
        _say(console, "loading the model")
    with progress_display(console) as display:
        note = f"{config.rollouts.num_rollouts} attempts at each of {len(problems)} problems"
        task = display.add_task("survey", total=len(problems), note=note)
        stream = Stream(config.problems.seed).at("survey")
        lines = MinuteLines(console)

        def show(done: int) -> None:
            display.update(task, completed=done)
            lines.offer(lambda: f"{done} of {len(problems)} problems")

        records = sample(
            lambda: show_first(build_collector(config), problems[0], console),
            problems,
            config.rollouts.num_rollouts,
            folder,
            stream,
            pattern,
            show,
        )
    return problems, records


def prepare_folder(settings: Mapping[str, Any], folder: Path) -> None:
    """Make the folder, or accept one without attempts, or with attempts under the same settings."""
    path, settings = folder / SETTINGS, json.loads(json.dumps(settings))  # lists, as in the file, instead of tuples
    differs = path.exists() and read_json(path, f"remove {folder} and survey again") != settings
    if differs and read_records(folder):
        raise UserError(f"{folder}: holds a survey with other settings; give another --output, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, settings)


def form_pattern(form: str, problems: Sequence[Problem]) -> "re.Pattern[str] | None":
    """Compile the given form, otherwise the form of the problems' common verifier; None if unknown.

    Raises:
        UserError: if the form is not a regular expression.
    """
    shared = {problem.verifier for problem in problems}
    form = form or (FORMS.get(shared.pop(), "") if len(shared) == 1 else "")
    try:
        return re.compile(form) if form else None
    except re.error as error:
        raise UserError(f"--form: {form!r} is not a regular expression ({error}); correct it") from None


def build_collector(config: RunConfig) -> "Collector":
    """Build the run's engine with the present model, without a learner."""
    import torch

    from halfway.trainers.policy import load_policy, prepare_torch

    prepare_torch(config.seed, config.threads)
    policy = load_policy(config.model, find_model(config.model.path))
    options = config.rollouts
    if options.engine.part.uses_module and torch.cuda.is_available():
        policy.model.to("cuda")
    engine = options.engine.part.build(policy.engine_setup(options))
    return policy.collector(
        engine, config.environment.part, options.max_response_tokens, options.max_context_tokens, options.max_diverged
    )


def show_first(collector: "Collector", problem: Problem, console: "Console") -> "Collector":
    """Print the first prompt as the model reads it, special tokens included; returns the collector."""
    _say(console, f"the model reads: {shorten(collector.prompts.show(problem))!r}")
    return collector


def _say(console: "Console", line: str) -> None:
    console.print(clean(line), markup=False, highlight=False, soft_wrap=True)


def finish_survey(config: RunConfig, folder: Path, records: Sequence[Record]) -> Findings:
    """Write `survey.json` into the folder; returns its findings."""
    findings = find(records)
    write_json(folder / FINDINGS, {"model": config.model.path, **asdict(findings)})
    return findings


def keep_problems(folder: Path, problems: Sequence[Problem], records: Sequence[Record], keep: str) -> str:
    """Write the problems that an expression keeps into the folder; returns a sentence on the use of the file.

    Raises:
        UserError: if there are none.
    """
    kept = write_kept(problems, records, keep, folder / KEPT)
    use = f"problems.source={{surveyed: {{path: {folder / KEPT}}}}}"
    return f"{kept} of {len(problems)} problems are in a file with their pass rates; to train on it: {use}"


def sentences(findings: Findings) -> str:
    """Write a survey's findings as sentences."""
    shown = findings.zero_variance[min(1, len(findings.zero_variance) - 1)] if findings.zero_variance else None
    text = f"pass@1 {findings.rate:.3f} on {findings.problems} problems."
    if shown is not None:
        text += (
            f" Of groups of {shown.size}, {100 * shown.share:.0f} % would have zero variance: in "
            f"{100 * shown.all_fail:.0f} % all fail, in {100 * shown.all_pass:.0f} % all pass."
        )
    if findings.repeated:
        repeated = f"{100 * findings.repeated:.0f} %"
        text += f" Of the problems that never or always passed, {repeated} drew one text again and again."
    return text


def mean_rate(findings: Findings) -> str:
    """The mean pass rate with a 95 % interval over the choice of problems.

    If all n attempts fail, the mean rate of these problems is at most ln(20) / n with 95 % confidence, since n attempts
    with rates of mean r all fail with a probability of at most exp(-n r). The same holds for the mean failure rate.
    """
    if 0 < findings.rate < 1:
        return f"{findings.rate:.3f} +- {1.96 * findings.stderr:.3f}"
    passed, bound = round(findings.rate) * findings.attempts, min(1.0, math.log(20) / findings.attempts)
    limit = f"at least {100 * (1 - bound):.2f} %" if passed else f"at most {100 * bound:.2f} %"
    return f"{passed:,} of {findings.attempts:,} attempts: {limit}"


def brief(findings: Findings) -> TextTable:
    """The five rows that a survey shows without --full."""
    rows = (
        ("pass@1", mean_rate(findings)),
        ("never passed, always passed", f"{100 * findings.never:.1f} %, {100 * findings.always:.1f} %"),
        ("passed in 1/4 to 3/4", f"{100 * findings.middle:.1f} %"),
        ("attempts cut by a limit", f"{100 * findings.truncated:.1f} %"),
        ("no answer of the right form", share_text(findings.malformed)),
    )
    return TextTable("", ("", f"{findings.samples} attempts at each problem; --full shows more"), rows)


def survey_tables(findings: Findings) -> Iterable[TextTable]:
    """The tables of a survey: zero-variance groups by size, and the attempts."""
    yield table_of(
        "Groups that would have zero variance",
        findings.zero_variance,
        (
            ("rollouts of a group", lambda row: str(row.size)),
            ("all fail", lambda row: f"{100 * row.all_fail:.1f} %"),
            ("all pass", lambda row: f"{100 * row.all_pass:.1f} %"),
            ("zero-variance", lambda row: f"{100 * row.share:.1f} %"),
        ),
        "Expected shares, unbiased, from the attempts at each problem.",
    )
    rows = [
        ("pass@1", mean_rate(findings)),
        ("problems that never passed", f"{100 * findings.never:.1f} %"),
        ("problems that always passed", f"{100 * findings.always:.1f} %"),
        ("problems that passed in 1/4 to 3/4", f"{100 * findings.middle:.1f} %"),
        ("of those that never or always did: one text repeated", share_text(findings.repeated)),
        ("tokens: mean, nine in ten below", f"{findings.tokens:.1f}, {findings.long_tokens:.0f}"),
        ("attempts cut by a limit", f"{100 * findings.truncated:.1f} %"),
        ("of the others: no answer of the right form", share_text(findings.malformed)),
        *((f"attempts lost: {reason}", str(number)) for reason, number in findings.lost.items()),
    ]
    yield TextTable("Attempts", ("", f"{findings.samples} at each problem"), tuple(rows))


def column_table(findings: Findings) -> TextTable:
    """The table of findings by source and by column."""
    return table_of(
        "By column",
        findings.parts,
        (
            ("column", lambda row: row.column),
            ("value", lambda row: row.value),
            ("problems", lambda row: str(row.problems)),
            ("pass@1", lambda row: f"{row.rate:.3f}"),
            ("zero-variance groups", lambda row: f"{100 * row.zero_variance.share:.1f} %"),
        ),
        f"Groups of {findings.parts[0].zero_variance.size} rollouts." if findings.parts else "",
    )


def example_lines(records: Sequence[Record]) -> Iterable[str]:
    """Texts that passed and failed, one line each, of a few problems spread over the survey."""
    for record in records[:: max(1, len(records) // EXAMPLES)][:EXAMPLES]:
        for what, text in (("passed", record.passing), ("failed", record.failing)):
            if text:
                yield f"{record.id} {what}: {' '.join(text.split())[:LONGEST]}"
