"""Measures on real repositories whether replays match the recordings, and what episodes cost.

Source distributions come from `pip download --no-deps --no-binary :all: toolz==1.2.0 ... -d sdists`; docs/sdists.sha256
lists those that we used. `record` writes its episodes to a file; the other commands write into `--output`, if given.

    python -m halfway.experiments.benchmarks.repositories record sdists episodes.json [--tasks 2]
    ... replay episodes.json [--times 200] [--output FOLDER]                in a process of its own
    ... throughput episodes.json [--widths 1 8 32] [--output FOLDER]
    ... generation episodes.json MODEL [--engine vllm] [--rollouts 1 8] [--projects toolz-1.2.0] [--output FOLDER]
    ... barrier
"""

import argparse
import sys
from pathlib import Path

from halfway.experiments.benchmarks.repositories.barrier import barrier
from halfway.experiments.benchmarks.repositories.generation import generation
from halfway.experiments.benchmarks.repositories.recordings import ENVIRONMENT, read, record
from halfway.experiments.benchmarks.repositories.replays import replays
from halfway.experiments.benchmarks.repositories.throughput import throughput
from halfway.experiments.scripts import script, script_parser


def options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path, help="with source distributions")
    recording.add_argument("--tasks", type=int, default=2, help="of each")
    others = [recording, *(commands.add_parser(name) for name in ("replay", "throughput", "generation"))]
    for each in others:
        each.add_argument("episodes", type=Path)
    replaying, measuring, generating = others[1:]
    replaying.add_argument("--times", type=int, default=200)
    measuring.add_argument("--widths", type=int, nargs="+", default=[1, 8, 32])
    generating.add_argument("model", type=Path, help="a folder with a Hugging Face checkpoint")
    generating.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    generating.add_argument("--rollouts", type=int, nargs="+", default=[1, 8])
    generating.add_argument("--projects", nargs="+", help="as the recordings name them; all, if left out")
    for each in others[1:]:
        each.add_argument("--output", type=Path, help="folder for a page and its numbers")
    commands.add_parser("barrier")
    return parser.parse_args()


@script
def main() -> int:
    given = options()
    match given.command:
        case "record":
            record(ENVIRONMENT, given.folder, given.episodes, given.tasks)
        case "replay":
            page = replays(ENVIRONMENT, read(given.episodes), given.times, given.output)
            page.tell(given.output, "replays")
            return 1 if page.numbers["divergences"] else 0
        case "throughput":
            throughput(ENVIRONMENT, read(given.episodes), given.widths).tell(given.output, "throughput")
        case "generation":
            chosen = [each for each in read(given.episodes) if each.project in (given.projects or [each.project])]
            page = generation(ENVIRONMENT, chosen, given.model, given.engine, given.rollouts)
            page.tell(given.output, "generation")
        case _:
            barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
