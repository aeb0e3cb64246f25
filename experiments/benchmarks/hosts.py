"""Measures what a hosted chain costs, per step and when it starts with a million rows, compared with the plain host.

    python -m halfway.experiments.benchmarks.hosts [--steps 24] [--rows 1000000] [--output FILE]

All hosts that are installed are measured. All seconds are CPU seconds, since other programs may be busy on the machine.

With TRL, the lab is trained twice, with a chain and without: with the same policy, problems and reward, and responses
of equal length, so that the steps differ only in Halfway's part. Both trainers live in one process, and only one runs
at a time. Then TRL's loader and reward call are exercised at the size of a real batch, without a model, for data sets
of two sizes; everything from the loader to the end of the reward call is counted as Halfway's, so the result is an
upper bound.

For each host, the benchmark measures how long a data set takes from the host's memory-mapped copy to its first batch,
how much memory it then holds beside that copy, and how long a checkpoint takes.
"""

import importlib.util
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.benchmarks.hosts_in_turn import CHAIN, FIRST, GROUPS, LENGTH, QUIET, SIZE, compared, problems
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.scripts import script, script_parser

BATCH, ROLLOUTS, TOKENS = 64, 8, 1000
STEP_SECONDS = 30.0
"""Seconds of a training step of a policy with a few billion parameters, with which costs are compared."""
MESSAGE = "Solve the following problem. Put your final answer into a box. " + "Let a be a number. " * 10


@dataclass(frozen=True)
class Started:
    """What it costs to start a data set, and to use it. All seconds are processor seconds.

    Attributes:
        ready: seconds from the host's copy of the file to the first batch.
        plain: the part of `ready` that the host takes without Halfway.
        held: additional bytes that the process holds, apart from mapped files.
        steps: seconds of each step, if they were measured.
        saved: seconds of a checkpoint.
    """

    ready: float
    plain: float
    held: int
    saved: float
    steps: tuple[float, ...] = ()


def write_rows(folder: Path, number: int, kind: str) -> Path:
    """Write a file of `number` rows that verl and TRL can read, and return its path.

    Args:
        kind: "messages" = prompts are lists of messages; anything else = prompts are texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    texts = [f"{MESSAGE}{i} + {i} =" for i in range(number)]
    prompts = [[{"role": "user", "content": text}] for text in texts] if kind == "messages" else texts
    answers = [str(2 * i) for i in range(number)]
    judged = [{"style": "rule", "ground_truth": answer} for answer in answers]
    columns = {"prompt": prompts, "id": [str(i) for i in range(number)], "answer": answers, "reward_model": judged}
    path = folder / f"{kind}-{number}.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def held() -> int:
    """Bytes of memory that this process holds, apart from mapped files."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def start_trl(path: Path, folder: Path, steps: int) -> Started:
    """Measure the start of TRL's data set, and some steps of its loader and rewards."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig

    import halfway

    args = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH * ROLLOUTS,
        num_generations=ROLLOUTS,
        max_steps=100,
        **QUIET,
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(REPOSITORY / "experiments" / "starting_models" / "sums")
    rng = np.random.default_rng(0)

    def reward(answer: Sequence[str], **_: Any) -> list[float]:
        rates = [int(text) // 2 % 11 / 10 for text in answer]
        return [float(one < rate) for one, rate in zip(rng.random(len(answer)), rates, strict=True)]

    rows: Any = Dataset.from_parquet(str(path))
    start, before = time.process_time(), held()
    given = halfway.trl(CHAIN, rows, reward, args)
    given["train_dataset"].__getitems__([0])
    ready, more = time.process_time() - start, held() - before
    callback = given["callbacks"][0]
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=tokenizer.eos_token_id))
    callback.on_train_begin(args, SimpleNamespace(global_step=0), None, processing_class=tokenizer, model=model)
    tokens = rng.integers(5, 40, (BATCH * ROLLOUTS, TOKENS)).tolist()
    seconds = tuple(played(given, tokens, step) for step in range(steps + FIRST))[FIRST:]
    start = time.process_time()
    callback.hosting.save(folder)
    return Started(ready, 0.0, more, time.process_time() - start, seconds)


def played(given: dict[str, Any], tokens: list[list[int]], step: int) -> float:
    """Processor seconds of one step, in which the loader fetches its rows and the rollouts are rewarded."""
    start = time.process_time()
    places = [step * BATCH + place for place in range(BATCH) for _ in range(ROLLOUTS)]
    rows = given["train_dataset"].__getitems__(places)
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    completions = [""] * len(rows)
    told = {"trainer_state": SimpleNamespace(global_step=step), "log_metric": lambda name, value: None}
    prompts = [row["prompt"] for row in rows]
    given["reward_funcs"][0](prompts=prompts, completions=completions, completion_ids=tokens, **columns, **told)
    return time.process_time() - start


def start_verl(path: Path, folder: Path, steps: int) -> Started:
    """Measure the start of verl's data set, plain and with a chain, up to the first row."""
    from hydra import compose, initialize_config_module  # type: ignore[import-not-found]
    from transformers import AutoTokenizer

    with initialize_config_module("verl.trainer.config", version_base=None):
        config: Any = compose(
            "ppo_trainer",
            overrides=[
                "hydra.searchpath=[pkg://halfway.trainers.hosts.verl.config]",
                "+halfway=session",
                "data.halfway.chain=[uniform,greso]",
                f"data.train_files={path}",
                f"data.train_batch_size={BATCH}",
                "data.filter_overlong_prompts=False",
                f"actor_rollout_ref.rollout.n={ROLLOUTS}",
                f"trainer.default_local_dir={folder}",
            ],
        )
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from halfway.trainers.hosts.verl.dataset import SessionDataset

    tokenizer: Any = AutoTokenizer.from_pretrained(REPOSITORY / "experiments" / "starting_models" / "sums")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    kinds: tuple[Any, Any] = (RLHFDataset, SessionDataset)
    kinds[0](str(path), tokenizer, config.data)[0]  # fills its cache of the file
    seconds, before, data = [], 0, None
    for kind in kinds:
        before, start = held(), time.process_time()
        data = kind(str(path), tokenizer, config.data)
        data[0]
        seconds.append(time.process_time() - start)
    more, start = held() - before, time.process_time()
    assert data is not None
    data.state_dict()
    return Started(seconds[1], seconds[0], more, time.process_time() - start)


def _apart(given: tuple[Callable[..., Started], Path, Path, int]) -> Started:
    start, path, folder, steps = given
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    return start(path, folder, steps)


def measured(start: Callable[..., Started], number: int, kind: str, steps: int = 0) -> Started:
    """Run `start` in a fresh process, since a process reuses memory that it has held before.

    Before that, another process lets `datasets` make its memory-mapped copy of the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(Path(folder), number, kind)
        given = (start, path, Path(folder))
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            return pool.map(_apart, [(*given, 0), (*given, steps)], chunksize=1)[1]


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """A distribution-free interval for the median, between two order statistics.

    It follows from the number of values below the median, which is binomial(n, 1/2).
    """
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while below + math.comb(n, k) / 2**n <= (1 - level) / 2:
        below += math.comb(n, k) / 2**n
        k += 1
    place = max(0, k - 1)
    return ordered[place], ordered[n - 1 - place]


def turns(steps: int) -> list[str]:
    """Train hosted and plain in turn; returns the lines of the page about it."""
    plain, hosted, inside = compared(steps + FIRST, problems(64))
    ratios = [h / p for p, h in zip(plain[FIRST:], hosted[FIRST:], strict=True)]
    low, high = median_interval(ratios)
    medians = " and ".join(f"{statistics.median(seconds[FIRST:]):.3f}" for seconds in (plain, hosted))
    spent = 1000 * inside / len(hosted)
    return [
        f"**Training the lab in TRL**, {steps} steps each in turn, {GROUPS} groups of {SIZE} responses of {LENGTH} "
        "tokens.",
        "",
        f"- plain and hosted: {medians} s per step (medians)",
        f"- hosted / plain: {statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}] (median of the steps' ratios)",
        f"- inside Halfway's functions: {spent:.1f} ms per step, {inside / sum(hosted):.2%} of a hosted step",
        "",
    ]


def step_table(found: dict[int, Started]) -> list[str]:
    """The lines of the table of a step's cost by the size of the data set."""
    lines = [
        f"**A hosted step in TRL without its model**, {BATCH} groups of {ROLLOUTS} responses of {TOKENS} tokens: "
        "loader, chain, rewards, records.",
        "",
        f"| problems | milliseconds per step | share of a step of {STEP_SECONDS:.0f} s |",
        "|---:|---:|---:|",
    ]
    for number, started in found.items():
        low, high = median_interval(started.steps)
        middle = statistics.median(started.steps)
        between = f"{1000 * middle:.0f} [{1000 * low:.0f}, {1000 * high:.0f}]"
        lines.append(f"| {number:,} | {between} | {middle / STEP_SECONDS:.2%} |")
    return [*lines, ""]


def start_table(found: dict[str, Started], number: int) -> list[str]:
    """The lines of the table of how data sets start."""
    lines = [
        f"**{number:,} rows**, from the host's memory-mapped copy of the file to the first batch.",
        "",
        "| data set | seconds | of which the host's own | MiB held | seconds to save |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, s in found.items():
        lines.append(f"| {name} | {s.ready:.1f} | {s.plain:.1f} | {s.held / 2**20:.0f} | {s.saved:.2f} |")
    return [*lines, ""]


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="where to write what is printed")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    lines = ["Seconds are of the processor, with an interval of 95 % for the median in brackets.", ""]
    starts: dict[str, Started] = {}
    if importlib.util.find_spec("trl"):
        lines += turns(options.steps)
        small, large = (measured(start_trl, number, "text", options.steps) for number in (1000, options.rows))
        lines += step_table({1000: small, options.rows: large})
        starts["TRL, prompts of text"] = large
        starts["TRL, prompts of messages"] = measured(start_trl, options.rows, "messages")
    if importlib.util.find_spec("verl"):
        starts["verl"] = measured(start_verl, options.rows, "messages")
    lines += start_table(starts, options.rows)
    print("\n".join(lines))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.output, "\n".join(lines))


if __name__ == "__main__":
    main()
