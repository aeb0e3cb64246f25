"""Checks counterfactuals: what a replay of a log says GRESO would skip, against what GRESO skipped in its own run.

Both runs see the same problems in the same order, but with different policies, since the replayed run trained on all
that GRESO would have skipped. So an error found here lies in the premise of a replay, not in its arithmetic. The visits
are also divided into passes through the problem set, and the shares skipped in each pass are compared.

    python -m halfway.experiments.studies.counterfactual runs/contest_hard/grpo runs/contest_hard/greso
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfway.curriculum.support.errors import UserError
from halfway.experiments.audit.counterfactual import MOST_VISITS, Replayed, replay
from halfway.experiments.audit.history import Log
from halfway.experiments.audit.reading import read_logs
from halfway.experiments.scripts import script, script_parser

MEMBER, LOG = "greso", "decisions.jsonl"


@dataclass(frozen=True, slots=True)
class Compared:
    """The result for one pair of runs.

    Attributes:
        seed: name of both runs' folders.
        said: share of the visits that GRESO would skip according to the replay.
        done: share of the visits that GRESO skipped in its own run; both are over as many visits as the two runs share.
        by_pass: said and done for each pass through the problem set.
        silent_said, silent_done: share of silent groups among those that were not skipped, in the replay and in GRESO's
            own run.
    """

    seed: str
    said: float
    done: float
    by_pass: tuple[tuple[float, float], ...]
    silent_said: float
    silent_done: float


def compare(logged: Path, own: Path) -> Compared:
    """Compare a replay of a plain GRPO run with a GRESO run.

    Args:
        logged: folder of the plain run.
        own: folder of the GRESO run.

    Raises:
        UserError: if a folder has no decision log.
    """
    [log] = read_logs([logged])
    [replayed] = replay(log, [MEMBER], MOST_VISITS)
    assert isinstance(replayed, Replayed), replayed
    said = np.repeat([skipped / offered for offered, skipped in replayed.course], [n for n, _ in replayed.course])
    done = skipped_in(own / LOG)
    size = len(log.history.problems)
    common = min(len(said), len(done))
    cuts = range(0, common, size)
    by_pass = tuple((float(said[i : i + size].mean()), float(done[i : i + size].mean())) for i in cuts)
    kept = replayed.visits - replayed.skipped
    return Compared(
        seed=logged.name,
        said=float(said[:common].mean()),
        done=float(done[:common].mean()),
        by_pass=by_pass,
        silent_said=(replayed.silent - replayed.rightly) / kept,
        silent_done=silent_share(read_logs([own])[0]),
    )


def skipped_in(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """1 for each visit that GRESO refused and 0 for each that it let through, in the order of its log, (visits,)."""
    flags: list[float] = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["origin"] == "fresh" and record["outcome"] != "carried":
            flags.append(float(record["outcome"] == "skipped"))
    return np.asarray(flags)


def silent_share(log: Log) -> float:
    return float(log.history.fresh().silent_V.mean())


def table(found: Sequence[Compared]) -> str:
    """A Markdown table with one row per pair of runs, and the errors over all pairs."""
    columns = "| seed | replay says | GRESO did | error | silent among the rest: replay | GRESO |"
    lines = [columns, "|---|---:|---:|---:|---:|---:|"]
    for each in found:
        numbers = (each.said, each.done, each.said - each.done, each.silent_said, each.silent_done)
        lines.append(f"| {each.seed} | {' | '.join(f'{number:.3f}' for number in numbers)} |")
    errors = np.asarray([each.said - each.done for each in found])
    passes = np.asarray([a - b for each in found for a, b in each.by_pass])
    apart, apart_passes = np.abs(errors).mean(), np.abs(passes).mean()
    lines.append(
        f"\nShare of visits skipped: mean error {errors.mean():+.3f}, mean distance {apart:.3f} over runs and "
        f"{apart_passes:.3f} over {len(passes)} passes through the problem set."
    )
    return "\n".join(lines)


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("logged", type=Path, help="an arm's folder, with seed-0 and so on; plain GRPO")
    parser.add_argument("own", type=Path, help="the same of GRESO")
    options = parser.parse_args()
    found = [path.parent.name for path in options.logged.glob(f"seed-*/{LOG}")]
    folders = sorted(name for name in found if (options.own / name / LOG).is_file())
    if not folders:
        raise UserError(f"{options.logged}, {options.own}: no seed has a {LOG} in both; give the folders of two arms")
    print(table([compare(options.logged / name, options.own / name) for name in folders]))


if __name__ == "__main__":
    main()
