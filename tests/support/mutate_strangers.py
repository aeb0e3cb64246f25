"""Changes strangers' files of every kind at random, reads each as a user would, and counts how that ended.

    python tests/support/mutate_strangers.py --changes 200 --bits 1000 --special 100 --record /tmp/mutants.jsonl

A change ends well if it is refused in one line, or gives the result of the unchanged file or an honestly different one
(none for files that carry a hash), within 30 seconds of the processor and 1 GiB. What is in the record is not tried
again. `--again` tries anew what had failed there; `--table` prints what the record holds.
"""

import argparse
import atexit
import gc
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from strangers.files import FILES
from strangers.forks import FAILED, SOUND, Case, make, places, quiet, reference, tried
from strangers.kinds import Kind
from strangers.models import MODELS
from strangers.mutations import is_text
from strangers.services import SERVICES

KINDS: Mapping[str, Kind] = {**FILES, **MODELS, **SERVICES}
BATCH = 200
"""Changes that are tried in one fork."""
TOGETHER = {
    "heavy": "each kind of text, a value or lines of megabytes",
    "special": "each kind, no regular file in place of one",
}
"""Changes whose outcomes are counted for all kinds together."""


PRELOADED = (
    *("aiohttp", "duckdb", "matplotlib.pyplot", "mlflow.tracking", "omegaconf", "peft", "pyarrow.parquet"),
    *("reasoning_gym", "sympy", "trackio", "wandb", "halfway.curriculum", "halfway.controllers"),
    *("halfway.controllers.beliefs", "halfway.controllers.laws", "halfway.controllers.prefixes"),
    *("halfway.curriculum.environments", "halfway.curriculum.repositories", "halfway.curriculum.tasks"),
    *("halfway.experiments.audit", "halfway.experiments.audit.formats", "halfway.experiments.config"),
    *("halfway.experiments.running.build", "halfway.experiments.propel.config", "halfway.experiments.report"),
)
"""What readers import, packages of Halfway with their modules."""


def preload() -> None:
    """Import what the forks would import."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

    for name in PRELOADED:
        module = import_module(name)
        for inner in iter_modules(getattr(module, "__path__", ()), f"{name}.") if name.startswith("halfway") else ():
            import_module(inner.name)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    gc.collect()
    gc.freeze()  # a collection would copy every page that a fork shares with its parent
    atexit.register(gc.unfreeze)


def attacked(
    names: Iterable[str], plan: Mapping[str, float], seed: int, done: Iterable[Case] = ()
) -> Iterator[dict[str, Any]]:
    """The outcome of every case of these kinds that is not done.

    Args:
        plan: how a file is changed, and how often for each kind; only binary ones have bits, answers are no files.
    """
    finished, specimens = set(done), dict[Any, Path]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            kind = KINDS[name]
            specimen = specimens.get(kind.make)
            if specimen is None:
                specimen = specimens[kind.make] = Path(folder, str(len(specimens)), "specimen")
                make(kind, specimen)
            most = {"bit": math.inf if kind.binary else 0}
            light = random.Random(f"{seed} {name}").random() >= plan["heavy"]  # it takes no part, if that is below 1
            light |= name == "MLflow's answers" or not any(is_text(path.name) for path in kind.files(specimen))
            most["heavy"] = 0 if light else math.inf  # MLflow's client reads in a process of its own, with limits
            most["special"] = 0 if name in SERVICES and not kind.binary else len(places(kind, specimen, seed))
            numbers = {how: min(math.ceil(n * kind.share), most.get(how, math.inf)) for how, n in plan.items()}
            cases = [Case(name, how, i) for how, number in numbers.items() for i in range(int(number))]
            cases = [case for case in cases if case not in finished]
            if not cases:
                continue
            wanted = reference(kind, specimen)
            for first in range(0, len(cases), BATCH):
                yield from tried(kind, cases[first : first + BATCH], specimen, wanted, seed)


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """Kinds x outcomes, in Markdown; rare changes of all kinds together."""
    count = Counter(("" if one["how"] in TOGETHER else one["kind"], one["how"], one["outcome"]) for one in outcomes)
    columns = [*SOUND, *(outcome for outcome in FAILED if any(key[2] == outcome for key in count))]
    lines = [f"| kind | changes | {' | '.join(columns)} |", "|---|" + "---:|" * (1 + len(columns))]
    for name, how in dict.fromkeys(key[:2] for key in count):
        numbers = [count[name, how, column] for column in columns]
        label = f"{name}, one bit" if how == "bit" else TOGETHER.get(how, name)
        lines.append(f"| {label} | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    total = [sum(count[key] for key in count if key[2] == column) for column in columns]
    return "\n".join([*lines, f"| all | {sum(total)} | {' | '.join(map(str, total))} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200, help="changes of each kind")
    parser.add_argument("--bits", type=int, default=1000, help="bits to flip of each binary kind")
    parser.add_argument("--special", type=int, default=100, help="pipes, devices, folders and links instead of files")
    parser.add_argument(
        "--heavy", type=float, default=20, help="values of megabytes, in files of text; 0.4: in two of five"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose names contain one of these, such as log,pool")
    parser.add_argument("--without", default="", help="no kinds whose names contain this")
    parser.add_argument("--record", type=Path, required=True, help="JSON Lines, continued if it exists")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    record = options.record.read_text().splitlines(keepends=True) if options.record.exists() else []
    known = [json.loads(line) for line in record]
    if options.table:
        print(table(known))
        return
    kept = [i for i, one in enumerate(known) if not (options.again and one["outcome"] in FAILED)]
    options.record.write_text("".join(record[i] for i in kept))
    quiet()
    preload()
    names = [name for name in KINDS if any(part in name for part in options.only.split(","))]
    names = [name for name in names if not options.without or options.without not in name]
    plan, began, count = (
        {"any": options.changes, "bit": options.bits, "special": options.special, "heavy": options.heavy},
        time.time(),
        Counter[str](),
    )
    cases = [Case(known[i]["kind"], known[i]["how"], known[i]["number"]) for i in kept]
    for one in attacked(names, plan, options.seed, cases):
        with options.record.open("a") as file:
            file.write(json.dumps(one) + "\n")
        count[one["outcome"]] += 1
        if one["outcome"] in FAILED:
            print(json.dumps(one), file=sys.stderr, flush=True)
    print(dict(count), f"{time.time() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
