"""Trains the same run on every engine: does the policy learn equally much?

    python -m halfway.experiments.benchmarks.engines [--steps 20] [--seeds 0 1] [--output experiments/results/engines]

Trains experiments/recipes/lab/engines.yaml (a) with vLLM in the same process, (b) with two vLLM servers on this host
and a learner of two ranks under ZeRO-3, and (c) with the engine "transformers", each in a separate process. After every
weight sync, engine and learner must agree within 1e-4 nats. vLLM's attention on the CPU does not support heads of size
24, so on all three the lab's policy has heads padded with zeros to size 32. Writes table.md and results.json; exits
with 1 if pass@1 of some run does not rise beyond its 95 % interval, or two rises differ beyond theirs.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.running.launch import commands
from halfway.experiments.scripts import script, script_parser
from halfway.experiments.starting_models.widen import widen_heads

LAB = REPOSITORY / "experiments" / "recipes" / "lab"
RECIPE = LAB / "engines.yaml"
HEAD_SIZE = 32
COLUMNS = {
    "transformers": ["rollouts.engine=transformers"],
    "vllm": ["rollouts.engine={vllm: {kv_cache_gib: 0.25, max_length: 256}}"],
    "vllm_servers": [
        "rollouts.engine={vllm_servers: {kv_cache_gib: 0.25, max_length: 256, count: 2}}",
        "learner.deepspeed.zero_stage=3",
        "cluster.devices_per_node=2",
    ],
}
Z95 = 1.96


@dataclass(frozen=True)
class Column:
    """The result of one run. Rates are held-out pass@1 with its standard error; seconds do not include evaluation."""

    engine: str
    seed: int
    before: float
    before_stderr: float
    after: float
    after_stderr: float
    rollouts: int
    tokens: int
    seconds: float
    engine_gap: float

    @property
    def rise(self) -> float:
        return self.after - self.before

    @property
    def stderr(self) -> float:
        return math.hypot(self.before_stderr, self.after_stderr)

    @property
    def clear(self) -> bool:
        """Whether the rise's interval is above zero."""
        return self.rise > Z95 * self.stderr


def train(engine: str, seed: int, steps: int, folder: Path) -> Column:
    """Train one run in separate processes.

    Raises:
        RuntimeError: if the run fails.
    """
    policy = folder / "policy"
    if not policy.exists():
        widen_heads(LAB / "base", policy, HEAD_SIZE)
    name = f"{engine}/seed-{seed}"
    overrides = [*COLUMNS[engine], f"seed={seed}", f"budget.steps={steps}", f"checkpoint.every={steps}"]
    overrides += [f"output={folder}", f"name={name}", f"model.path={policy}", "cluster.port=29651"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONWARNINGS"] = "ignore"
    words = [sys.executable, "-m", "halfway.experiments.cli", "run", str(RECIPE), *overrides]
    if engine == "vllm_servers":
        [command] = commands(load_run_config(RECIPE, overrides), RECIPE, ["localhost"], overrides)
        words, environment = list(command.words), environment | dict(command.environment)
    output = folder / f"{engine}-{seed}.txt"
    with output.open("w") as log:
        status = subprocess.run(words, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=1800).returncode
    if status:
        raise RuntimeError(f"{engine} ended with status {status}:\n{output.read_text()[-6000:]}")
    return read(engine, seed, folder / name)


def read(engine: str, seed: int, run: Path) -> Column:
    """The result of a finished run."""
    evaluations = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    first, last = evaluations[0], evaluations[-1]
    return Column(
        engine,
        seed,
        first["pass_at_1"],
        first["stderr"],
        last["pass_at_1"],
        last["stderr"],
        last["rollouts"],
        last["tokens"],
        last["seconds"],
        max(step["learner"].get("engine_gap", 0.0) for step in steps),
    )


def disagreements(columns: Sequence[Column]) -> list[str]:
    """Evidence that the rises are not all clear and equal, one line each; empty without any."""
    found = [f"{c.engine}, seed {c.seed}: no clear rise ({c.rise:+.3f})" for c in columns if not c.clear]
    for one, other in combinations(columns, 2):
        reach = Z95 * math.hypot(one.stderr, other.stderr)
        if one.seed == other.seed and abs(one.rise - other.rise) > reach:
            found.append(
                f"seed {one.seed}: {one.engine} {one.rise:+.3f}, {other.engine} {other.rise:+.3f} (+-{reach:.3f})"
            )
    return found


def table(columns: Sequence[Column], command: str) -> str:
    """The results as a page in Markdown."""
    lines = [
        "# One recipe, three engines",
        "",
        f"`{command}`",
        "",
        "| engine | learner | seed | before | after | rise in pass@1, 95 % | rollouts | tokens | engine gap, nats |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for c in columns:
        learner = "2 ranks, ZeRO-3" if c.engine == "vllm_servers" else "1 process"
        low, high = c.rise - Z95 * c.stderr, c.rise + Z95 * c.stderr
        lines.append(
            f"| {c.engine} | {learner} | {c.seed} | {c.before:.3f} | {c.after:.3f} "
            f"| {c.rise:+.3f} [{low:+.3f}, {high:+.3f}] | {c.rollouts} | {c.tokens} | {c.engine_gap:.1e} |"
        )
    verdict = disagreements(columns) or ["Every column rises, and no two rises differ beyond their intervals."]
    return "\n".join([*lines, "", *verdict, ""])


@script
def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--engines", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--output", type=Path, default=REPOSITORY / "experiments" / "results" / "engines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        columns = [train(e, seed, options.steps, Path(folder)) for seed in options.seeds for e in options.engines]
    command = " ".join(["python -m halfway.experiments.benchmarks.engines", *sys.argv[1:]])
    text = table(columns, command)
    options.output.mkdir(parents=True, exist_ok=True)
    write_text(options.output / "table.md", text)
    write_text(options.output / "results.json", json.dumps([asdict(column) for column in columns], indent=1) + "\n")
    print(text)
    return 1 if disagreements(columns) else 0


if __name__ == "__main__":
    sys.exit(main())
