"""Compares the share that GRESO would skip, by a replay of GRPO's log, with the share that it skipped in its own run.

    halfway compare experiments/recipes/compare/contest.yaml name=replayed_middle --arms grpo,greso ...
    python experiments/results/does_the_audit_count_right/replay_against_run.py middle=runs/replayed_middle ...

Both runs see the same problems in the same order, but each has its own policy: the replayed run trained on every group
that GRESO would have skipped. So a difference comes from the premise of a replay, not from its arithmetic. Prints the
page's
table and writes replay_against_run.json beside this file.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from halfway.controllers.greso import Greso
from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.audit.counterfactual import Replay, Replayed, replay, world_of
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.report.records import read_jsonl
from halfway.experiments.scripts import script, script_parser

GROUPS = 8
"""Mixed groups in a batch of the contest's GRESO (`fill.groups` in contest.yaml)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Of the replay and of GRESO's run: share of visits skipped, and share of zero-variance groups among the rest.

    Attributes:
        least, most: the ends of the interval that the audit gives for `run`.
        own_batch: the share skipped in a replay with the batch of GRESO's run, which is full at `GROUPS` mixed groups.
    """

    seed: str
    replay: float
    least: float
    most: float
    own_batch: float
    run: float
    zero_variance_replay: float
    zero_variance_run: float


def pair(grpo: Path, greso: Path) -> Pair:
    [log] = read_logs([grpo])
    [replayed] = replay(log, ["greso"])
    assert isinstance(replayed, Replayed), replayed
    own = Replay("greso", Greso(), world_of(log.history), refills=True, batch=GROUPS).run()
    skipped = skipped_V(greso / "decisions.jsonl")[: replayed.visits]
    kept = replayed.visits - replayed.skipped
    return Pair(
        grpo.name,
        replayed.skipped / replayed.visits,
        *replayed.forecast,
        own.skipped / own.visits,
        float(skipped.mean()),
        (replayed.zero_variance - replayed.rightly) / kept,
        float(read_logs([greso])[0].history.fresh().zero_variance_V.mean()),
    )


def skipped_V(path: Path) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Whether GRESO refused each visit, in the order of its log; (visits,)."""
    records, _ = read_jsonl(path, GroupRecord)
    fresh = [record for record in records if record.origin == "fresh" and record.outcome != "carried"]
    return np.asarray([record.outcome == "skipped" for record in fresh for _ in record.problems or (record.problem,)])


def row(regime: str, pairs: list[Pair]) -> str:
    error = np.asarray([each.own_batch - each.run for each in pairs])
    mean = {name: float(np.mean([getattr(each, name) for each in pairs])) for name in Pair.__slots__[1:]}
    within = sum(each.least <= each.run <= each.most for each in pairs)
    shares = (
        f"{mean['replay']:.3f} | {mean['least']:.3f} to {mean['most']:.3f} | {mean['run']:.3f} | {within} | "
        f"{mean['own_batch']:.3f} | {error.mean():+.3f} | {error.min():+.3f}, {error.max():+.3f}"
    )
    return (
        f"| {regime} | {len(pairs)} | {shares} | {mean['zero_variance_replay']:.3f} | {mean['zero_variance_run']:.3f} |"
    )


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("comparisons", nargs="+", help="REGIME=FOLDER: kind of data, and the folder of its comparison")
    found: dict[str, list[Pair]] = {}
    for each in parser.parse_args().comparisons:
        regime, folder = each.split("=")
        seeds = sorted(path.name for path in (Path(folder) / "grpo").glob("seed-*"))
        found[regime] = [pair(Path(folder) / "grpo" / seed, Path(folder) / "greso" / seed) for seed in seeds]
    for regime, pairs in found.items():
        print(row(regime, pairs))
    written = {regime: [asdict(one) for one in pairs] for regime, pairs in found.items()}
    write_json(Path(__file__).parent / "replay_against_run.json", written)


if __name__ == "__main__":
    main()
