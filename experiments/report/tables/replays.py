"""A table of how long replays through an environment took, one row per arm."""

from halfway.experiments.report.analysis.replays import ReplayCosts
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import NONE, TextTable

COLUMNS = (
    "arm",
    "replays",
    "replayed responses",
    "their tools, s",
    "their time, s",
    "generated responses",
    "their tools, s",
    "their time, s",
    "replay / generation",
)
CAPTION = (
    "All seeds together. Replays: requests whose prefix went through the environment again. Tools: seconds summed over "
    "all commands, including those that ran at the same time. Time: wall clock; for generated responses, that of the "
    "rollouts without replays. Replay / generation: time per replayed response over time per generated response, tools "
    "included."
)


def replay_table(summary: Summary) -> TextTable:
    return TextTable("What replays took", COLUMNS, tuple(map(_row, summary.replays)), CAPTION)


def _row(row: ReplayCosts) -> tuple[str, ...]:
    return (
        row.arm,
        str(row.replays),
        str(row.replayed_responses),
        f"{row.replayed_seconds:.1f}",
        f"{row.replayed_wall_seconds:.1f}",
        str(row.responses),
        f"{row.tool_seconds:.1f}",
        f"{row.rollout_seconds:.1f}",
        NONE if row.ratio is None else f"{row.ratio:.3f}",
    )
