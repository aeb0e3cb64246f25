"""Runs the tests of micro-repositories: real files, imports and unittest, in the sandbox, with one process per run."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halfway.curriculum.domains.sandbox import Failure, Job, Result, SandboxOptions, shared

RUNNER = """
import sys, unittest

class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.said = {}

    def startTest(self, test):
        self.said[test.id().split(".")[-1]] = ""

    def addFailure(self, test, error):
        self.said[test.id().split(".")[-1]] = str(error[1])[:80] or "failed"

    def addError(self, test, error):
        self.said[test.id().split(".")[-1]] = error[0].__name__

def run(module):
    sys.path.insert(0, "")
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromName(module).run(outcomes)
    return outcomes.said
"""
MODULES = ("unittest",)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one repository's tests.

    Attributes:
        passed: names of test methods.
        failed: name -> what the failure says, such as "7 != 9", or the name of the exception.
        fault: why no tests ran, such as "NameError" for files that cannot be imported; empty = they ran.
    """

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


class MicroTests:
    """Runs test files named test_m.py. Equal files give equal reports, so reports are kept for when they come again.

    Attributes:
        runs: number of repositories that were run.
        recalled: number of repositories whose report was known.
    """

    def __init__(self, seconds: float = 2.0, keep: int = 200_000):
        """
        Args:
            seconds: time limit on one run.
            keep: number of reports that are kept; 0 = every repository is run, however often it comes.

        Raises:
            UserError: for a limit that the sandbox does not accept.
        """
        self.options = SandboxOptions(seconds)
        self.keep = keep
        self.runs = self.recalled = 0
        self._reports: dict[tuple[tuple[str, str], ...], Report] = {}

    def run(self, repositories: Sequence[Mapping[str, str]]) -> list[Report]:
        """The report on each repository, given as file name -> text, with a test_m.py among them.

        Raises:
            UserError: if there is no sandbox on this machine.
        """
        keys = [tuple(sorted(files.items())) for files in repositories]
        if not self.keep:
            self.runs += len(keys)
            return self._run(keys)
        new = [key for key in dict.fromkeys(keys) if key not in self._reports]
        self.runs, self.recalled = self.runs + len(new), self.recalled + len(keys) - len(new)
        fresh = dict(zip(new, self._run(new), strict=True))
        found = [fresh.get(key) or self._reports[key] for key in keys]
        if len(self._reports) + len(fresh) > self.keep:
            self._reports.clear()
        self._reports.update(fresh)
        return found

    def _run(self, keys: Sequence[tuple[tuple[str, str], ...]]) -> list[Report]:
        sandbox = shared(self.options, MODULES)
        outcomes = sandbox.run([Job(RUNNER, "run", ("('test_m',)",), files=key) for key in keys])
        return [_report(outcome) for outcome in outcomes]


def _report(outcome: tuple[Result, ...] | Failure) -> Report:
    if isinstance(outcome, Failure):
        return Report(fault=outcome.detail.split(":")[0] or outcome.fault)
    said = _read(outcome[0].shown)
    if not said or set(said) == {"test_m"}:  # unittest's stand-in for a module that cannot be imported
        return Report(fault=next(iter(said.values()), "no tests"))
    passed = tuple(name for name, text in said.items() if not text)
    return Report(passed, {name: text for name, text in said.items() if text})


def _read(shown: str) -> dict[str, str]:
    """The dictionary that the runner returned. Code that ran beside it may have written something else."""
    try:
        said = ast.literal_eval(shown)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
    plain = isinstance(said, dict) and all(isinstance(part, str) for pair in said.items() for part in pair)
    return dict(said) if plain else {}
