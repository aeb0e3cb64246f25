"""Results of `halfway.experiments.api`: runs and audits as tables, figures and pages.

A table is a DuckDB relation: `.df()`, `.pl()` and `.arrow()` convert it to pandas, polars or pyarrow, if installed;
`.filter`, `.aggregate` and the like query it.
"""

from collections.abc import Sequence
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from halfway.curriculum import UserError, unknown
from halfway.curriculum.support.atomic import LONGEST_LINE
from halfway.curriculum.support.extras import one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from halfway.experiments.audit.auditing import Audit
    from halfway.experiments.report.analysis.comparison_summary import Summary
    from halfway.experiments.report.figures.charts import Chart
    from halfway.experiments.report.records import Comparison
    from halfway.experiments.report.text_tables import TextTable

Table = duckdb.DuckDBPyRelation

SHORT = {"curves": "learning_curves", "groups": "pass_counts", "spending": "rollout_fates"}
"""Short names of figures; their own names work too."""
PROBLEMS = """
    {by}problem, count(*) AS groups, sum(n)::BIGINT AS rollouts, sum(k)::BIGINT AS passed, sum(k) / sum(n) AS pass_rate,
    arg_min(k / n, step) AS first_rate, arg_max(k / n, step) AS last_rate,
    sum(({zero_variance})::INT)::BIGINT AS zero_variance
"""

COLUMNS = {
    **dict.fromkeys(("step", "round"), "BIGINT"),
    **dict.fromkeys(("problem", "parent", "origin"), "VARCHAR"),
    "prefix_length": "BIGINT",
    "prefix_unit": "VARCHAR",
    **dict.fromkeys(("prefix_tokens", "parent_passed", "parent_size"), "BIGINT"),
    "parent_success": "BOOLEAN",
    "decisions": "VARCHAR[][]",
    **dict.fromkeys(("k", "n", "tokens", "policy_version"), "BIGINT"),
    **dict.fromkeys(("outcome", "reason"), "VARCHAR"),
    "dropped": "MAP(VARCHAR, BIGINT)",
    "hint_share": "DOUBLE",
    "hint_place": "VARCHAR",
    "policy_versions": "BIGINT[]",
    **dict.fromkeys(("lag", "late"), "BIGINT"),
    "weights": "DOUBLE[]",
    **dict.fromkeys(("earlier_k", "earlier_n"), "BIGINT"),
    "problems": "VARCHAR[]",
    "replayed_responses": "BIGINT",
}
"""The fields of `halfway.curriculum.decision_log`, with their types in DuckDB."""


class Trained:
    """A run, or a comparison of arms over seeds, read from its folder, finished or not."""

    def __init__(self, folder: Path):
        self.folder = folder
        if not len(self.records.all_runs):
            raise UserError(f"{folder}: no run here or below; give a run or comparison directory")

    @cached_property
    def records(self) -> "Comparison":
        """The records of all runs, as the report reads them."""
        from halfway.experiments.report.records import load_comparison_records

        return load_comparison_records(self.folder)

    @cached_property
    def summary(self) -> "Summary":
        """Every number of the report."""
        from halfway.experiments.report.analysis.comparison_summary import summarize

        return summarize(self.records)

    @property
    def decisions(self) -> Table:
        """The decision logs: arm, seed, and the fields of `halfway.curriculum.decision_log`."""
        from halfway.experiments.audit.database import connected

        cursor = connected(self.folder).cursor()
        columns = f"columns = {COLUMNS}"
        # A cut last line gives a row without values.
        query = (
            "SELECT ? AS arm, ? AS seed, * "
            f"FROM read_json(?, format = 'newline_delimited', ignore_errors = true, "
            f"maximum_object_size = {2 * LONGEST_LINE}, {columns}) WHERE step IS NOT NULL"
        )
        found = [(run.arm, run.seed, run.folder.resolve() / "decisions.jsonl") for run in self.records.all_runs]
        logs = [(arm, seed, str(path)) for arm, seed, path in found if path.exists()]
        if not logs:
            return _table(("arm", "seed", *COLUMNS), [])
        try:
            return cursor.sql(" UNION ALL ".join([query] * len(logs)), params=[value for log in logs for value in log])
        except duckdb.Error as error:  # a link out of the folder, say
            raise UserError(
                f"{self.folder}: a decisions.jsonl cannot be read ({one_line(error)}); put it back"
            ) from error

    @property
    def groups(self) -> Table:
        """Every rolled-out group, once, with its last outcome: k of n passed."""
        names = ("step", "problem", "origin", "outcome", "k", "n", "tokens", "prefix_tokens")
        rows = [
            (run.arm, run.seed, *(getattr(group, name) for name in names))
            for run in self.records.all_runs
            for group in run.groups
            if group.scored
        ]
        return _table(("arm", "seed", *names), rows)

    @property
    def problems(self) -> Table:
        """Attempts and passes of each problem in each run, from fresh, scored groups."""
        fresh = self.groups.filter("origin = 'fresh'")
        columns = PROBLEMS.format(by="arm, seed, ", zero_variance="k IN (0, n)")
        return fresh.aggregate(columns, "arm, seed, problem").order("arm, seed, problem")

    @property
    def curves(self) -> Table:
        """Held-out evaluations: cost so far, pass@1 and its standard error."""
        names = ("step", "rollouts", "tokens", "seconds", "pass_at_1", "stderr")
        evaluations = [(run, record) for run in self.records.all_runs for record in run.evaluations]
        rows = [(run.arm, run.seed, *(getattr(record, name) for name in names)) for run, record in evaluations]
        return _table(("arm", "seed", *names), rows)

    @property
    def texts(self) -> Table:
        """The saved responses, of some visits to some problems: see `halfway.trainers.loop.samples`.

        An agent's turns alternate with the environment's answers.
        """
        from halfway.experiments.report.problems import SAMPLES, Sample
        from halfway.experiments.report.records import read_jsonl

        names = ("step", "problem", "visit", "origin", "k", "n", "prompt")
        rows = [
            (
                *(run.arm, run.seed, *(getattr(sample, name) for name in names)),
                "".join(f"{turn.replayed}{turn.text}{turn.observation}" for turn in attempt.turns),
                attempt.passed,
            )
            for run in self.records.all_runs
            for sample in read_jsonl(run.folder / SAMPLES, Sample)[0]
            for attempt in sample.rollouts
        ]
        return _table(("arm", "seed", *names, "response", "passed"), rows)

    def plot(self, name: str = "curves") -> "Chart":
        """A chart of the report; `.save("name.pdf")` writes it as SVG, PNG or PDF.

        Args:
            name: "curves", "groups", "spending", or the name of any other figure of the report.

        Raises:
            UserError: if there is no figure of this name, or nothing to draw in it yet.
        """
        from halfway.experiments.report.figures.all_figures import PICTURES

        pictures = {picture.name: picture for picture in PICTURES}
        if SHORT.get(name, name) not in pictures:
            raise unknown("plot", name, [*SHORT, *pictures])
        chart = pictures[SHORT.get(name, name)].draw(self.records.started(), self.summary)
        if chart is None:
            raise UserError(f"plot: {name!r} has no data in {self.folder}; see `.curves` and `.groups`")
        return chart

    def report(self) -> Path:
        """Write the report and return the path of its page."""
        from halfway.experiments.report.report_page import write_report

        return write_report(self.folder)

    def _tables(self) -> "list[TextTable]":
        from halfway.experiments.report.tables.all_tables import quick_tables

        return quick_tables(self.summary)

    def __repr__(self) -> str:
        runs = self.records.all_runs
        finished = sum(run.finished for run in runs)
        return f"<{self.folder}: {len(self.records.runs)} arms, {finished} of {len(runs)} runs finished>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + "".join(map(_html, self._tables()))


class AuditedLogs:
    """The audit of one or several logs.

    Attributes:
        audit: the logs with their histories, findings and replays.
    """

    def __init__(self, audit: "Audit"):
        self.audit = audit

    @property
    def groups(self) -> Table:
        """Every group of the logs: k of n passed. `fresh` groups are evidence about their problem."""
        rows = []
        for one in self.audit.logs:
            past = one.log.history
            columns = (past.step_V, past.passed_V, past.size_V, past.fresh_V, past.zero_variance_V)
            cells = zip(past.problem_V, *(column.tolist() for column in columns), strict=True)
            rows += [(one.log.name, past.problems[problem], *rest) for problem, *rest in cells]
        return _table(("log", "problem", "step", "k", "n", "fresh", "zero_variance"), rows)

    @property
    def problems(self) -> Table:
        """Attempts and passes of each problem in each log, from groups that are evidence about it."""
        fresh = self.groups.filter("fresh AND n > 0")
        columns = PROBLEMS.format(by="log, ", zero_variance="zero_variance")
        return fresh.aggregate(columns, "log, problem").order("log, problem")

    def plain(self) -> dict[str, Any]:
        """The audit as data for JSON."""
        return self.audit.plain()

    def write(self, path: Path | str) -> None:
        """Write the audit as a page (.html) or as JSON."""
        from halfway.experiments.audit.tables import write_audit

        write_audit(self.audit, Path(path))

    def __repr__(self) -> str:
        from rich.console import Console

        from halfway.experiments.audit.tables import show

        text = StringIO()
        show(self.audit, Console(file=text, width=100, force_jupyter=False), full=False)
        return text.getvalue()

    def _repr_html_(self) -> str:
        from halfway.experiments.audit.tables import headline, in_short, tables_of

        texts = [(one, f"{headline(one)} {in_short(one)}".strip()) for one in self.audit.logs]
        return "".join(
            f"<h4>{escape(one.log.name)}</h4><p>{escape(text)}</p>" + "".join(map(_html, tables_of(one)))
            for one, text in texts
        )


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Make a relation of rows; it keeps its arrays alive."""
    connection = duckdb.connect(":memory:")
    columns = {name: _column(values) for name, values in zip(names, zip(*rows, strict=True), strict=False)}
    if not columns:
        return connection.sql("SELECT " + ", ".join(f"NULL AS {name}" for name in names) + " WHERE false")
    connection.register("held", columns)
    return connection.sql("SELECT * FROM held")


def _column(values: Sequence[Any]) -> "NDArray[Any]":
    """Convert values to an array; half a surrogate pair, which UTF-8 does not have, becomes a question mark."""
    if isinstance(values[0], str):
        return np.array([value.encode("utf-8", "replace").decode() for value in values], object)
    return np.array(values)


def _html(table: "TextTable") -> str:
    """A table for a notebook."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<h4>{escape(table.title)}</h4><table><tr>{head}</tr>{rows}</table><p>{escape(table.caption)}</p>"
