"""Reads the logs at given paths: finds the files, recognises their formats, and counts unread files by reason."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from halfway.curriculum import UserError
from halfway.experiments.audit.files import LogFile, find, read_beginning, why_unknown
from halfway.experiments.audit.formats.base import Choices, Reader
from halfway.experiments.audit.formats.registry import FORMATS, readers
from halfway.experiments.audit.formats.table import OF_EVALUATION, ColumnNames, evaluates
from halfway.experiments.audit.history import Log

UNRECOGNISED = "file of no known format"
SIDE_FILES = frozenset({"steps.jsonl", "evaluations.jsonl", "status.json", "metadata.json", "summary.json"})
"""Names of files beside a log that are not logs."""


def read_logs(paths: Sequence[Path], choices: Choices | None = None, format_name: str = "") -> list[Log]:
    """Read the logs at some paths, one per run, in the order of the paths.

    Args:
        format_name: the format of all files; "" = recognise it file by file.

    Raises:
        UserError: if there is nothing at a path, or nothing there can be read as a log.
    """
    formats = {format_name: FORMATS.get(format_name)} if format_name else readers()
    logs = [log for path in paths for log in _logs_at(path, choices or Choices(), format_name, formats)]
    return [replace(log, name=name) for log, name in zip(logs, _short([log.name for log in logs]), strict=True)]


def _logs_at(path: Path, choices: Choices, format_name: str, formats: Mapping[str, type[Reader]]) -> list[Log]:
    dropped: Counter[str] = Counter()
    why = ""  # the format of the first table is unknown
    runs: defaultdict[tuple[str, Path], list[LogFile]] = defaultdict(list)
    for place in find(path, lambda reason: dropped.update((reason,))):
        if place.name in SIDE_FILES or _texts_of_a_run(place):
            continue
        file = read_beginning(place, path)
        known = (name for name, reader in formats.items() if reader.knows(file))
        name = format_name or next(known, None) or _table_with(choices, file)
        if name:
            runs[name, formats[name].run_of(file)].append(file)
        elif place == path:
            raise UserError(f"{path}: {why_unknown(file)}; `halfway audit --help` lists the formats")
        else:
            dropped[f"{UNRECOGNISED} ({file.defect})" if file.defect else UNRECOGNISED] += 1
            why = why or ("" if file.defect else f"; as for {place.name}, {why_unknown(file)}")
    training = {key: files for key, files in runs.items() if not _is_evaluation(key[1], path)} or runs
    if left_out := sum(map(len, runs.values())) - sum(map(len, training.values())):
        dropped[OF_EVALUATION] += left_out
    logs = []
    for (name, folder), files in training.items():
        log = formats[name](choices).log(name, files)
        if len(log.history):
            reading = replace(log.reading, format=name, files=len(files), size=sum(file.size for file in files))
            logs.append(replace(log, name=str(folder), reading=reading))
        else:
            dropped[_why_empty(log)] += len(files)
    if not logs:
        raise UserError(f"{path}: {_nothing(dropped)}{why}; `halfway audit --help` lists the formats")
    if dropped:
        logs[0] = replace(logs[0], reading=replace(logs[0].reading, dropped=dropped + logs[0].reading.dropped))
    return logs


def _is_evaluation(run: Path, given: Path) -> bool:
    """True if a folder below the given one, such as verl's validation_data_dir, has the rollouts of evaluations."""
    return run.is_relative_to(given) and any(map(evaluates, run.relative_to(given).parts))


def _texts_of_a_run(path: Path) -> bool:
    """True if these are the texts of groups in the decision log beside them."""
    return path.name == "samples.jsonl" and path.with_name("decisions.jsonl").exists()


def _table_with(choices: Choices, file: LogFile) -> str | None:
    """The name of the format for plain tables if the file is one by the chosen columns; otherwise None."""
    chosen = choices.reward or choices.problem
    return "table" if chosen and ColumnNames.of(file.columns, choices).enough else None


def _why_empty(log: Log) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in log.reading.dropped.items())
    return f"{log.reading.trainer} file without a rollout" + (f" ({reasons})" if reasons else "")


def _nothing(dropped: Counter[str]) -> str:
    if not dropped:
        return "no log here"
    return "no log that can be read here: " + ", ".join(f"{count} x {reason}" for reason, count in dropped.items())


def _short(names: Sequence[str]) -> list[str]:
    """Names of runs without their common folders; of a single run, the last two parts."""
    if len(names) == 1:
        return [str(Path(*Path(names[0]).parts[-2:]))]
    shared = os.path.commonpath([Path(name).absolute().parent for name in names])
    return [os.path.relpath(name, shared) for name in names]
