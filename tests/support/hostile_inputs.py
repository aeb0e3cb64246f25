"""Attacks whatever reads what others wrote: logs, recipes, answers of policies; each attack must end well.

    python tests/support/hostile_inputs.py --logs 10000 --recipes 5000 --answers 1000

Every attack is a sound input, changed at random by a seed. It ends well if it is refused in one line, or gives a result
that can be shown, within 30 seconds of the processor; and no process may need more than 1 GiB for all its attacks.
"""

import argparse
import gzip
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

from memory import peak_mib

Attack = Callable[[], str]
"""Attacks once, and says how it ended."""

HERE = Path(__file__).resolve().parent
SECONDS, MEBIBYTES = 30, 1024
LOGS = HERE.parent / "experiments" / "audit" / "logs"
RECIPES = HERE.parents[1] / "experiments" / "recipes"
ODD: tuple[str, ...] = (
    *("null", "true", "-1", "0", "1e308", "-1e308", "1e-400", "NaN", "-Infinity", "9" * 19, "9" * 40, "9" * 5000),
    *(
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\u001b[2J"',
        '"<script>alert(1)</script>"',
        '"[bold]x[/]"',
        '"${oc.env:HOME}"',
    ),
    *(
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "[1, 2, 3]",
        '{"a": {"b": []}}',
        "[" * 5000,
        "[" * 5000 + "]" * 5000,
        '{"a":' * 3000,
    ),
    *(
        '"' + "x" * 100_000 + '"',
        "[" + "0," * 50_000 + "0]",
        '"' + "\\\\" * 1000 + '"',
        "\x00",
        "\xff\xfe",
        "*a",
        "&a [*a]",
    ),
)
"""Values that nobody expects, as JSON, some of it broken."""


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The content with one to four changes, each at a random place."""
    for _ in range(chance.randint(1, 4)):
        content = chance.choice((_flipped, _cut, _repeated, _inserted, _swapped, _replaced, _replaced, _replaced))(
            content, chance
        )
    return content


def _place(content: bytes, chance: random.Random) -> int:
    return chance.randrange(len(content) + 1)


def _flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(min(len(changed), chance.choice((1, 8, 64)))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    first, last = sorted((_place(content, chance), _place(content, chance)))
    return chance.choice((content[:first], content[first:], content[:first] + content[last:]))


def _repeated(content: bytes, chance: random.Random) -> bytes:
    first = _place(content, chance)
    piece = content[first : first + chance.choice((1, 20, 400))]
    return content[:first] + piece * chance.choice((2, 50)) + content[first:]


def _inserted(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + chance.choice(ODD).encode("latin-1") + content[at:]


def _swapped(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines[: chance.randint(0, len(lines))])


def _replaced(content: bytes, chance: random.Random) -> bytes:
    """One value after a colon or a comma is replaced by an odd one."""
    marks = [i for i, byte in enumerate(content) if byte in b":,"]
    if not marks:
        return _inserted(content, chance)
    first = chance.choice(marks) + 1
    ends = (i for i in range(first, len(content)) if content[i] in b",}]\n")
    return content[:first] + b" " + chance.choice(ODD).encode("latin-1") + content[next(ends, len(content)) :]


def sound_logs(folder: Path) -> list[Path]:
    """A folder with a sound log for every format."""
    import duckdb
    from synthetic_runs import decision

    def write(name: str, records: list[dict[str, Any]]) -> Path:
        path = folder / Path(name).stem / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    for name in ("verl", "verl_v1", "trl", "ms_swift", "trinity", "areal", "prime_rl", "tinker"):
        shutil.copytree(LOGS / name, folder / name)
    rows = [{"problem": f"p{i // 4}", "step": i // 8, "reward": i % 3 % 2} for i in range(16)]
    table = write("table.jsonl", rows)
    text = table.read_text()
    for name, content in (
        ("packed.jsonl.gz", gzip.compress(text.encode())),
        ("table.csv", "\n".join(["problem,step,reward", *(",".join(map(str, row.values())) for row in rows)]).encode()),
    ):
        (folder / name).mkdir()
        (folder / name / name).write_bytes(content)
    (folder / "parquet").mkdir()
    duckdb.sql(f"COPY (FROM read_ndjson('{table}')) TO '{folder}/parquet/table.parquet' (FORMAT parquet)")
    write("counts.jsonl", [{"problem": row["problem"], "step": 0, "k": i % 5, "n": 4} for i, row in enumerate(rows)])
    write("groups.jsonl", [{"prompt_id": row["problem"], "step": 0, "rewards": [0, 1, 1]} for row in rows])
    write("steps_of_polaris.jsonl", [{"index": ["a", "b"], "score": [0.0, 1.0], "step": i} for i in range(4)])
    write("decisions.jsonl", [*(decision(i, k=i % 9) for i in range(12)), decision(3, None, None, "skipped")])
    write("results.jsonl", [{"example_id": i // 4, "prompt": [], "completion": [], "reward": 1.0} for i in range(8)])
    nemo = {"content": ["a"], "input_lengths": [3], "token_ids": [[1, 7, 30]], "token_loss_mask": [[0, 0, 1]]}
    write("train_data_step1.jsonl", [{**nemo, "idx": i, "rewards": [i % 2]} for i in range(8)])
    roll = {"global_step": 1, "id": "a", "prompt": "p", "responses": "r", "scores": 0.5, "domain": "math"}
    write("rollout_dump_data.step_1.jsonl", [{name: [value] * 4 for name, value in roll.items()}])
    instruct = {"step": 1, "prompt_tokens": [5, 6], "response_tokens": [7], "dataset": "math", "sample_idx": 0}
    write("run_rollouts_000000.jsonl", [{**instruct, "prompt_idx": i // 4, "reward": i % 2} for i in range(8)])
    (folder / "database").mkdir()
    with closing(sqlite3.connect(folder / "database" / "explorer.db")) as base:
        base.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, task_id TEXT, run_id INT, model_version INT, reward FLOAT)"
        )
        written = [(f"t{i // 4}", i % 4, i // 8, i % 3 % 2) for i in range(400)]
        base.executemany("INSERT INTO t (task_id, run_id, model_version, reward) VALUES (?, ?, ?, ?)", written)
        base.commit()
    return sorted(folder.iterdir())


def attack_logs(chance: random.Random, folder: Path) -> dict[str, Attack]:
    """Audits of a log of which one file was changed, for every format."""
    from rich.console import Console

    from halfway.experiments.audit.auditing import audit
    from halfway.experiments.audit.formats.registry import FORMATS
    from halfway.experiments.audit.page import write_audit
    from halfway.experiments.audit.tables import show

    logs = sound_logs(folder / "sound")
    attacked = folder / "attacked"
    formats = {audit([log], replayed=()).logs[0].log.reading.format for log in logs}
    assert formats == set(FORMATS.names()), "a format without a sound log"

    def attack(chosen: Path) -> str:
        shutil.rmtree(attacked, ignore_errors=True)
        shutil.copytree(chosen, attacked)
        file = chance.choice([path for path in sorted(attacked.rglob("*")) if path.is_file()])
        file.write_bytes(mutated(file.read_bytes(), chance))
        printed = StringIO()
        result = audit([attacked], replayed=("greso", "retire") if chance.random() < 0.05 else ())
        show(result, Console(file=printed, width=120))
        if chance.random() < 0.03:
            write_audit(result, folder / "audit.html")
            assert "<script" not in (folder / "audit.html").read_text()
        assert printed.getvalue().replace("\n", "").isprintable(), "something raw is shown"
        return "shown"

    return {log.name: partial(attack, log) for log in logs}


def attack_recipes(chance: random.Random, folder: Path) -> dict[str, Attack]:
    """Checks of recipes that were changed."""
    from halfway.experiments.config.loading import load_config
    from halfway.experiments.propel.config import is_study, load_study

    shutil.copytree(RECIPES, folder / "recipes")
    recipes = sorted((folder / "recipes").rglob("*.yaml"))

    def attack() -> str:
        path = chance.choice(recipes)
        sound = path.read_bytes()
        path.write_bytes(mutated(sound, chance))
        try:
            load_study(path) if is_study(path) else load_config(path)
        finally:
            path.write_bytes(sound)
        return "sound"

    return {"recipe": attack}


def attack_answers(chance: random.Random, folder: Path) -> dict[str, Attack]:
    """Answers of a policy that were changed, for every verifier."""
    from halfway.curriculum.tasks.verifiers import VERIFIERS, verify

    problems = sound_problems()
    sound = (
        *("The answer is \\boxed{1/2}.", "x = 3.25e4", "<answer>[1, 2]</answer>", "1a2b3c=7;", "A" * 50),
        *("```python\ndef f(x):\n    return x\n```", "9^9^9^9", "(" * 3000, "\\frac{1}{" * 800, "\\sqrt{" * 500),
        *("1e999999999", "\\boxed{" * 2000, "\u0663", "1" * 10_000, "10**10**10", "factorial(10**9)"),
        *("\\int_0^\\infty e^{-x^{x^x}} dx", "\u00bd/\u2460", "a" * 200_000, "\ud800", "\x00"),
    )
    assert set(problems) == set(VERIFIERS.names()), "a verifier without a problem"

    def attack(name: str) -> str:
        text = chance.choice((*sound, problems[name].answer))
        encoded = mutated(text.encode("utf-8", "replace"), chance) if chance.random() < 0.7 else b""
        verdict = verify(problems[name], encoded.decode("utf-8", "replace") or text)
        assert verdict in (True, False)
        return str(verdict)

    return {name: partial(attack, name) for name in sorted(problems)}


def sound_problems() -> dict[str, Any]:
    """A problem for every verifier."""
    from halfway.curriculum import Problem, Stream
    from halfway.curriculum.boxes.sandbox import Result
    from halfway.curriculum.registries import SOURCES
    from halfway.curriculum.tasks.function_induction import Reference

    found = {name: Problem("p", "?", "1/2", "test", name) for name in ("exact", "numeric", "symbolic")}
    reference = Reference(1.0, ("(1,)",), (Result("1", "1").key,)).as_text()
    found["function_induction"] = Problem("p", "?", reference, "test", "function_induction")
    sources = {"running_sums": {}, "operator_sheets": {}, "reasoning_gym": {"family": "leg_counting"}}
    for name, options in sources.items():
        found[name] = SOURCES.get(name)(**options).load(1, Stream(0)).problems[0]
    return found


KINDS: dict[str, Callable[[random.Random, Path], dict[str, Attack]]] = {
    "logs": attack_logs,
    "recipes": attack_recipes,
    "answers": attack_answers,
}


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A scope that may take so long of the processor, and ten times as long by the clock of a busy machine."""

    def late(*_: object) -> None:
        raise AssertionError(f"{seconds} s")  # no OSError, which would count as refused

    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def run(kind: str, count: int, seed: int) -> dict[str, Any]:
    """The outcomes of so many attacks on each input, the peak of memory in MiB and the slowest in seconds."""
    from halfway.curriculum import UserError

    outcomes: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        attacks = KINDS[kind](random.Random(seed), Path(name))
        for number, (attacked, attack) in product(range(count), attacks.items()):
            began = time.process_time()
            try:
                with within(SECONDS):
                    outcome = attack()
            except (UserError, OSError) as error:  # the commands show both in one line
                if "\n" in str(error):
                    raise AssertionError(f"{attacked} {number} of seed {seed}: not one line: {error}") from error
                outcome = "refused in one line"
            except Exception as error:
                raise AssertionError(f"attack {number} on {attacked} with seed {seed}: {error!r}") from error
            outcomes[f"{attacked}: {outcome}"] += 1
            slowest = max(slowest, time.process_time() - began)
    return {"outcomes": dict(sorted(outcomes.items())), "peak_mib": peak_mib(), "slowest": round(slowest, 2)}


def run_apart(kind: str, count: int, seed: int) -> dict[str, Any]:
    """The same, in a process of its own."""
    words = [sys.executable, __file__, "--only", kind, "--count", str(count), "--seed", str(seed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["peak_mib"] < MEBIBYTES, f"{kind}: {found['peak_mib']} MiB"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0, help="attacks on each format, each verifier, or recipes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(run(options.only, options.count, options.seed)))
        return
    for kind in KINDS:
        if count := getattr(options, kind):
            print(kind, json.dumps(run_apart(kind, count, options.seed)), flush=True)


if __name__ == "__main__":
    main()
