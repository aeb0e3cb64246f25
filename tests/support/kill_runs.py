"""Kills runs at random, again and again, resumes each, and compares its end with an undisturbed run's.

    python tests/support/kill_runs.py --runs 100 --record /tmp/kills.jsonl

Learner, sampler, judge, second rank or all processes die at any instant, or the learner at one of its operations on
files; the disk is full, or files may not grow; all are told to stop, and killed. What was being written is cut or
garbled. A run ends well if it has the undisturbed run's decisions, evaluations, checkpoint and weights bit for bit; in
flight, if nothing was drawn or observed twice or lost, and every decision is made again from the log. No launch may
print a traceback, hang, or leave a process behind. What is in the record is not tried again; `--again` tries anew what
had failed there; `--table` prints what the record holds.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from kills.cluster import the_cluster
from kills.launches import preload
from kills.server import the_server
from kills.setups import ON_RAY, RECIPES, SERVED, SETUPS, Setup
from kills.trials import SAME, VICTIMS, Undisturbed, tried

COLUMNS = ("learner", "sampler", "judge", "rank", "server", "node", "tree", "file", "full", "limit", "stop")


def cases(setups: Mapping[str, Setup], runs: int, only: str) -> list[tuple[str, str, int]]:
    """Set-up, recipe and number of each run, in turns."""
    pairs = [(setup, recipe) for recipe in RECIPES for setup in setups if only in setup]
    return [(*pair, i // len(pairs)) for i, pair in enumerate(islice(cycle(pairs), runs))]


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """Set-ups x kinds of faults that hit, in Markdown."""
    count: Counter[tuple[str, str]] = Counter()
    for one in outcomes:
        for setup in (one["setup"], "all"):
            count[setup, "runs"] += 1
            count[setup, "equal"] += one["outcome"] == SAME
            for fault in one["faults"]:
                if fault["hit"]:
                    count[setup, "hits"] += 1
                    count[setup, fault["hit"] if fault["kind"] == "process" else fault["kind"]] += 1
                    count[setup, "torn"] += fault["torn"]
    columns = ("runs", *COLUMNS, "hits", "torn", "equal")
    heads = ("runs", *COLUMNS, "all", "files torn", "ended as undisturbed")
    lines = [f"| set-up | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for setup in (*SETUPS, *SERVED, *ON_RAY, "all"):
        lines.append(f"| {setup} | {' | '.join(str(count[setup, column]) for column in columns)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--only", default="", help="set-ups whose name contains this")
    parser.add_argument("--spawned", type=float, default=0.02, help="share of samplers that are no forks")
    parser.add_argument("--record", type=Path, required=True, help="JSON Lines, continued if it exists")
    parser.add_argument("--served", action="store_true")
    parser.add_argument("--on-ray", action="store_true")
    parser.add_argument("--victims", default="", help="kill only these, such as server,sampler,node")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    known = [json.loads(line) for line in options.record.read_text().splitlines()] if options.record.exists() else []
    if options.table:
        print(table(known))
        return
    if options.again:
        known = [one for one in known if one["outcome"] == SAME]
        options.record.write_text("".join(json.dumps(one) + "\n" for one in known))
    done = {(one["setup"], one["recipe"], one["number"]) for one in known if one["seed"] == options.seed}
    began, failed, setups = time.monotonic(), 0, SERVED if options.served else ON_RAY if options.on_ray else SETUPS
    if options.victims:
        VICTIMS.update(dict.fromkeys(setups, tuple(options.victims.split(","))))
    left = [case for case in cases(setups, options.runs, options.only) if case not in done]
    if left:
        preload()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    references = {
        (setup, recipe): Undisturbed(folder / f"{setup}, {recipe}".replace(" ", "-").replace(",", ""), setup, recipe)
        for setup in setups
        for recipe in RECIPES
    }
    for setup, recipe, number in left:
        if time.monotonic() - began > options.seconds:
            break
        one = tried(references[setup, recipe], number, options.seed, options.spawned)
        with options.record.open("a") as file:
            file.write(json.dumps(one) + "\n")
        if one["outcome"] != SAME:
            failed += 1
            print(json.dumps(one), file=sys.stderr, flush=True)
    if options.served:
        the_server().stop()
    if any(setups[setup].on_ray for setup, _, _ in cases(setups, options.runs, options.only)):
        the_cluster().stop()
    print(f"{failed} failed, {time.monotonic() - began:.0f} s; {folder}", file=sys.stderr)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
