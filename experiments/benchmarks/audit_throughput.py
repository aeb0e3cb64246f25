"""Measures how fast logs are read, compared with the bare JSON parser, and whether memory grows with them.

Each format gets a generated log. Rates are megabytes per second of processor time, so other work on the machine changes
them little. "Parser" only decodes the same bytes to Python objects, line by line with msgspec.

    python -m halfway.experiments.benchmarks.audit_throughput --megabytes 200
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from halfway.experiments.audit.reading import read_logs
from halfway.experiments.scripts import script, script_parser

WORDS = "so the answer follows from adding both sides and then we check that nothing was lost "
Row = Mapping[str, Any]


def verl(i: int, tokens: int) -> Row:
    """A line of verl's dump, whose response has about `tokens` tokens of four characters."""
    prompt = f"<|im_start|>user\nProblem {i // 8 % 5000}: {WORDS * 4}<|im_end|>\n<|im_start|>assistant\n"
    text = f"{i} " + WORDS * max(1, tokens * 4 // len(WORDS))
    return {
        "input": prompt,
        "output": text,
        "gts": "42",
        "score": float(i % 3 == 0),
        "step": i // 4096,
        "acc": i % 3 == 0,
    }


def open_instruct(i: int, tokens: int) -> Row:
    """A line of open-instruct's dump, whose response has `tokens` tokens."""
    prompt, response = [i // 8 % 5000, *range(100)], [i % 50000] * tokens
    return {
        "step": i // 4096, "sample_idx": i % 4096, "prompt_idx": i % 4096 // 8, "prompt_tokens": prompt,
        "response_tokens": response, "reward": float(i % 3 == 0), "ground_truth": "42", "dataset": "math",
        "logprobs": [-0.125] * tokens,
    }  # fmt: skip


def table(i: int, tokens: int) -> Row:
    """The shortest line that can be audited."""
    return {"problem": f"p{i // 8 % 5000}", "step": i // 4096, "reward": i % 3 == 0}


CASES: Mapping[str, tuple[Callable[[int, int], Row], int]] = {
    "verl, 250 tokens": (verl, 250),
    "verl, 2,000 tokens": (verl, 2000),
    "verl, 16,000 tokens": (verl, 16000),
    "open-instruct, 2,000 tokens": (open_instruct, 2000),
    "table": (table, 0),
}


def lines(row: Callable[[int, int], Row], tokens: int, size: int) -> Iterator[bytes]:
    """Yield lines with about `size` bytes in total."""
    written = i = 0
    while written < size:
        line = json.dumps(row(i, tokens)).encode() + b"\n"
        written, i = written + len(line), i + 1
        yield line


def processor_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def parse(path: Path) -> None:
    """Decode a file with the bare parser."""
    decoder = msgspec.json.Decoder()
    with open(path, "rb") as file:
        for line in file:
            decoder.decode(line)


def audit(path: Path, found: list[int]) -> None:
    """Read a log, and note how many rollouts it has."""
    [log] = read_logs([path])
    found.append(log.history.num_rollouts)


def peak() -> float:
    """Peak memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    print("| log | MB | rollouts | audit, MB/s | parser, MB/s | ratio | peak memory, MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (row, tokens) in CASES.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "1.jsonl")
            with open(path, "wb") as file:
                file.writelines(lines(row, tokens, options.megabytes * 1_000_000))
            size = path.stat().st_size / 1e6
            found: list[int] = []
            audited = processor_seconds(partial(audit, path, found))
            most = peak()
            bare = processor_seconds(partial(parse, path))
        rates = f"{size / audited:,.0f} | {size / bare:,.0f} | {bare / audited:.2f}"
        print(f"| {name} | {size:,.0f} | {found[0]:,} | {rates} | {most:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
