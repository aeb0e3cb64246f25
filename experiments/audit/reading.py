"""Reads the logs at given paths: finds the files, recognises their formats, and notes what was left unread."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from halfway.curriculum.support.errors import UserError
from halfway.experiments.audit.files import LogFile, begun, find, number_in, why_unknown
from halfway.experiments.audit.formats.base import Choices, Reader
from halfway.experiments.audit.formats.registry import FORMATS, readers
from halfway.experiments.audit.formats.table import ColumnNames
from halfway.experiments.audit.history import History, Log

UNRECOGNISED = "file of no known format"
SIDE_FILES = frozenset({"steps.jsonl", "evaluations.jsonl", "status.json", "metadata.json", "summary.json"})
"""Names of files that lie beside a log but are not logs themselves."""


def read_logs(paths: Sequence[Path], choices: Choices | None = None, format_name: str = "") -> list[Log]:
    """Read the logs at some paths, one for each run that is found, in the order of the paths.

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
    runs: defaultdict[tuple[str, Path], list[LogFile]] = defaultdict(list)
    for place in find(path, lambda reason: dropped.update((reason,))):
        if place.name in SIDE_FILES:
            continue
        file = begun(place, path)
        known = (name for name, reader in formats.items() if reader.knows(file))
        name = format_name or next(known, None) or _table_with(choices.reward, file)
        if name:
            runs[name, formats[name].run_of(file)].append(file)
        elif place == path:
            raise UserError(f"{path}: {why_unknown(file)}; `halfway audit --help` lists the formats")
        else:
            dropped[UNRECOGNISED] += 1
    logs = []
    for (name, folder), files in runs.items():
        log = formats[name](choices).log(name, files)
        if len(log.history):
            logs.append(_completed(log, name, folder, files))
        else:
            dropped[_why_empty(log)] += len(files)
    if not logs:
        raise UserError(f"{path}: {_nothing(dropped)}; `halfway audit --help` lists the formats")
    if dropped:
        logs[0] = replace(logs[0], reading=replace(logs[0].reading, dropped={**dropped, **logs[0].reading.dropped}))
    return logs


def _table_with(reward: str, file: LogFile) -> str | None:
    """The name of the format for plain tables, if the file is one whose reward column is `reward`; otherwise None."""
    return "table" if file.has(reward) and ColumnNames.of(file.columns, reward).enough else None


def _completed(log: Log, name: str, folder: Path, files: Sequence[LogFile]) -> Log:
    """The log with its name and size and, if it has none, hours estimated from when its files were written."""
    reading = replace(log.reading, format=name, files=len(files), size=sum(file.size for file in files))
    log = replace(log, name=str(folder), reading=reading)
    hours = hours_of(files, log.history) if log.hours is None else None
    return log if hours is None else replace(log, hours=hours, hours_from="the times at which the files were written")


def hours_of(files: Sequence[LogFile], history: History) -> float | None:
    """The duration of a run in hours, from the times at which its files, one per step, were written.

    The first step is taken to have lasted as long as the others on average. None unless the files were written in the
    order of their numbers, an order that most copies do not preserve.
    """
    numbers = [number_in(file.path.stem) for file in files]
    if len(files) < 3 or None in numbers or len(set(numbers)) < len(files):
        return None
    order = np.argsort([number for number in numbers if number is not None])
    written = np.asarray([files[i].path.stat().st_mtime for i in order])
    if (np.diff(written) <= 0).any() or written[-1] - written[0] < len(files):
        return None
    steps = len(np.unique(history.step_V))
    return float(written[-1] - written[0]) / 3600 * steps / (len(files) - 1)


def _why_empty(log: Log) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in log.reading.dropped.items())
    return f"{log.reading.trainer} file without a rollout" + (f" ({reasons})" if reasons else "")


def _nothing(dropped: Counter[str]) -> str:
    if not dropped:
        return "no log here"
    return "no log that can be read here: " + ", ".join(f"{count} x {reason}" for reason, count in dropped.items())


def _short(names: Sequence[str]) -> list[str]:
    """The names of runs without the folders that all of them share."""
    parts = [Path(name).parts for name in names]
    shared = 0
    while len(parts) > 1 and all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    if len(parts) == 1:
        shared = max(0, len(parts[0]) - 2)
    return [str(Path(*p[shared:])) for p in parts]
