"""Measures what tokens cost in a run's files: bytes and nanoseconds a token, of checkpoints and of the event log.

    python experiments/results/how_fast_is_it/tokens.py [--groups 64] [--tokens 4096] [--repeats 7]

Groups of eight rollouts are outstanding or stored, as a checkpoint holds them; "resumed" reads the newest checkpoint,
all checks included. A token is an id, its log-probability and its entropy. Processor time, medians; the files are in
the system's folder for temporary files.

Exits with 1 if a token takes more than 13 bytes of a checkpoint or of the event log. `--keep` writes tokens.json, from
which `make reproduction` writes the table of the page.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from halfway.curriculum import Group, Problem, Request, Rollout, Turn
from halfway.curriculum.states import Put
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.loop.checkpoint import Checkpoints, LoopState
from halfway.trainers.loop.events import ARRAYS_FILE, Events, logged_group
from halfway.trainers.loop.loop_options import CheckpointOptions
from halfway.trainers.loop.progress import Progress
from halfway.trainers.loop.records import Bytes, JsonLines

NUM_ROLLOUTS = 8
LIMIT = 13.0
PARTS = ("checkpoint, written", "checkpoint, resumed", "events, written", "events, read")


@script
def main() -> int:
    """Measure, and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.groups, options.tokens, options.repeats)
    Console().print(table(found))
    if options.keep:
        write_json(Path(__file__).with_suffix(".json"), found)
    return int(max(found["bytes"].values()) > LIMIT)


def measure(folder: Path, groups: int, length: int, repeats: int) -> dict[str, dict[str, float]]:
    """Bytes and nanoseconds a token of each part."""
    tokens = groups * NUM_ROLLOUTS * length
    spent: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        spent[part].append(1e9 * (time.process_time() - begin) / tokens)

    checkpoints = Checkpoints(folder / "checkpoints", CheckpointOptions(keep=2))
    lines, content = folder / "events.jsonl", folder / ARRAYS_FILE
    for repeat in range(repeats):
        waiting = tuple(_group(repeat * groups + i, length) for i in range(groups))

        def state(put: Put, waiting: tuple[Group, ...] = waiting) -> LoopState:
            return LoopState(Progress(), {}, waiting=waiting)

        with timed(PARTS[0]):
            checkpoints.write(repeat, state, lambda folder: None)
        newest = checkpoints.path(repeat)
        with timed(PARTS[1]), Checkpoints(checkpoints.folder, checkpoints.options).reading(newest):
            pass
        lines.unlink(missing_ok=True)
        content.unlink(missing_ok=True)
        with timed(PARTS[2]):
            events = Events(JsonLines(lines), Bytes(content), tokens=True)
            for group in waiting:
                events.done(0.0, group, (0.0, 1.0))
        with timed(PARTS[3]):
            for event in msgspec.json.Decoder().decode_lines(lines.read_bytes()):
                logged_group(event, folder)
    sizes = {
        "checkpoint": sum(path.stat().st_size for path in newest.iterdir()) / tokens,
        "events": (lines.stat().st_size + content.stat().st_size) / tokens,
    }
    return {"bytes": sizes, "nanoseconds": {part: statistics.median(times) for part, times in spent.items()}}


def _group(number: int, length: int) -> Group:
    random = np.random.default_rng(number)

    def turn() -> Turn:
        logprobs_T, entropies_T = random.exponential(0.5, (2, length)).astype(np.float32)
        return Turn(random.integers(0, 150_000, length).astype(np.int32), -logprobs_T, entropies_T, policy_version=3)

    rollouts = tuple(Rollout((turn(),), bool(random.random() < 0.5)) for _ in range(NUM_ROLLOUTS))
    request = Request(Problem(f"p{number}", "", ""), NUM_ROLLOUTS, ticket=f"0.0.{number}")
    return Group(request, np.arange(100, dtype=np.int32), rollouts)


def table(found: dict[str, dict[str, float]]) -> TextTable:
    """The measurements as a table."""
    sizes, times = found["bytes"], found["nanoseconds"]
    rows = tuple((part, f"{sizes[part.split(',')[0]]:.2f}", f"{times[part]:.0f}") for part in PARTS)
    return TextTable("What a token costs in a run's files", ("", "bytes a token", "ns a token"), rows)


if __name__ == "__main__":
    sys.exit(main())
