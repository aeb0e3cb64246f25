"""Makes equal commands on equal trees give equal outputs, by fixed settings before and substitutions after.

Fixed: hash seed, time zone, locale, width, address layout (see `box_worker`), process numbers (each command has its own
process table), times of files (see `trees`), bytecode (none is written, so none is stale). Removed: times of the day,
durations, temporary names, addresses. Replays detect the rest (random numbers, races).
"""

import re
from functools import lru_cache
from pathlib import Path

VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "COLUMNS": "80",
    "LINES": "24",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p no:cacheprovider",
    "GIT_CONFIG_NOSYSTEM": "1",
    "SOURCE_DATE_EPOCH": "1000000000",
}

ALL_DURATIONS = "--durations-min=-1"
"""Option of pytest 6.2 and later. Without it --durations leaves out fast tests, so the number of its lines, and the
output of `pytest --durations=3 | tail`, depends on the time."""


@lru_cache
def pytest_options(prefix: str) -> str:
    """Choose the variable PYTEST_ADDOPTS for the pytest of a Python environment."""
    found = [folder.name for folder in Path(prefix).glob("lib/python3*/site-packages/pytest-*.dist-info")]
    return options_of_version(found[0] if found else "")


def options_of_version(name: str) -> str:
    """Choose the variable PYTEST_ADDOPTS by pytest's name and version, such as "pytest 8.3.1" or "pytest-8.3.1"."""
    plain = VARIABLES["PYTEST_ADDOPTS"]
    version = re.search(r"pytest(?: version)?[- ](\d+)\.(\d+)", name)
    new = version is not None and (int(version[1]), int(version[2])) >= (6, 2)
    return f"{plain} {ALL_DURATIONS}" if new else plain


MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
VOLATILE = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\x1b\[[0-9;?]*[A-Za-z]|\r", ""),
        (r"\b(in|took|after|elapsed:?) \d+(?:\.\d+)? ?(s|sec|seconds|ms)\b(?: \(\d+:\d\d:\d\d\))?", r"\1 ...\2"),
        # The slowest tests, which vary.
        (r"^[ \t]*\d+\.\d+s (?:call|setup|teardown) .*\n?", ""),
        (r"^\n?\(\d+ durations < .*\)$\n?", ""),
        (r"^(real|user|sys)\t\d+m[\d.]+s$", r"\1\t..."),
        (r"/tmp/pytest-of-\w+/pytest-\d+", "/tmp/pytest-of-sandbox/pytest-0"),
        (r"/tmp/tmp[a-z0-9_]{8}\b", "/tmp/tmp........"),
        (r"/tmp/tmp\.[A-Za-z0-9]{10}\b", "/tmp/tmp.........."),
        (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?", "<time>"),
        (
            rf"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:(?:{MONTHS}) +\d+|\d+ (?:{MONTHS})) "
            r"+(?:(?:20\d\d )?\d\d:\d\d(?::\d\d)?(?: UTC)?(?: 20\d\d)?)",
            "<time>",
        ),
    )
)
"""Patterns that differ between two executions of one command on one tree, and their replacements."""


ADDRESS = re.compile(r"\b0x(?:7f|55|56)[0-9a-f]{10}\b")
"""An object's address. Without a random layout most are equal in every execution, but earlier allocations of the
program may depend on its timing."""


def normalise(text: str) -> str:
    """Normalise the output of a command for the policy and for the comparison of replays.

    Addresses are numbered in order of appearance, so that equal addresses stay equal.
    """
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    numbers: dict[str, int] = {}
    return ADDRESS.sub(lambda found: f"0x{numbers.setdefault(found[0], len(numbers) + 1):012x}", text)
