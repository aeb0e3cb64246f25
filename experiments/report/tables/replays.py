"""A table of how long replays through an environment took, one row per arm."""

from collections.abc import Callable

from halfway.experiments.report.analysis.replays import ReplayCosts
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import NONE, TextTable, table_of

CAPTION = (
    "All seeds together. Replays: requests whose prefix went through the environment again. Tools: seconds summed over "
    "all commands, including those that ran at the same time. Time: wall clock; for generated responses, that of the "
    "rollouts without replays. Replay / generation: time per replayed response over time per generated response, tools "
    "included."
)


def replay_table(summary: Summary) -> TextTable:
    columns: list[tuple[str, Callable[[ReplayCosts], str]]] = [
        ("arm", lambda row: row.arm),
        ("replays", lambda row: str(row.replays)),
        ("replayed responses", lambda row: str(row.replayed_responses)),
        ("their tools, s", lambda row: f"{row.replayed_seconds:.1f}"),
        ("their time, s", lambda row: f"{row.replayed_wall_seconds:.1f}"),
        ("generated responses", lambda row: str(row.responses)),
        ("their tools, s", lambda row: f"{row.tool_seconds:.1f}"),
        ("their time, s", lambda row: f"{row.rollout_seconds:.1f}"),
        ("replay / generation", lambda row: NONE if row.ratio is None else f"{row.ratio:.3f}"),
    ]
    return table_of("What replays took", summary.replays, columns, CAPTION)
