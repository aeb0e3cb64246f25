"""Recipes, data, pools, corpora, logs, folders of runs, archives and tasks."""

import gzip
import hashlib
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paths import REPOSITORY

from strangers.kinds import Kind, every_file

LOGS = REPOSITORY / "tests" / "experiments" / "audit" / "logs"
RECIPES = REPOSITORY / "experiments" / "recipes"


# ---------------------------------------------------------------- recipes


def make_recipe(name: str, folder: Path) -> None:
    shutil.copytree(RECIPES, folder / "recipes", ignore=shutil.ignore_patterns("*.parquet", "*.md"))
    (folder / "name").write_text(name)


def recipe_files(folder: Path) -> list[Path]:
    return [folder / "recipes" / (folder / "name").read_text()]


def read_recipe(folder: Path) -> Any:
    from halfway.curriculum.support.components import plain
    from halfway.experiments.config.loading import load_config
    from halfway.experiments.propel.config import is_study, load_study

    [path] = recipe_files(folder)
    return plain(load_study(path) if is_study(path) else load_config(path))


def validate_recipe(folder: Path) -> Any:
    from halfway.experiments.cli import _described

    [path] = recipe_files(folder)
    return _described(path, [])


# ---------------------------------------------------------------- data


def rows() -> list[dict[str, Any]]:
    return [
        {
            "id": f"row-{i}",
            "prompt": f"What is {i} + {i * 7}?",
            "answer": str(8 * i) if i % 3 else f"{8 * i}.0",
            "verifier": ("numeric", "exact")[i % 2],
            "solution": f"{i} + {i * 7} is {8 * i}.",
            "level": i % 4,
            "note": None if i % 5 else "é\u2028",
        }
        for i in range(24)
    ]


def make_lines(folder: Path) -> None:
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))


def make_packed(folder: Path) -> None:
    (folder / "data.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows()).encode()))


def make_zstd(folder: Path) -> None:
    import duckdb

    make_lines(folder)
    plain = folder / "data.jsonl"
    duckdb.sql(
        f"COPY (FROM read_csv('{plain}', columns = {{'l': 'VARCHAR'}}, delim = '', quote = '', header = false)) "
        f"TO '{folder}/data.jsonl.zst' (FORMAT csv, COMPRESSION zstd, HEADER false, QUOTE '', DELIM '\x01')"
    )
    plain.unlink()


def make_json(folder: Path) -> None:
    (folder / "data.json").write_text(json.dumps(rows(), indent=1))


def make_csv(folder: Path) -> None:
    import csv

    with open(folder / "data.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows()[0]))
        writer.writeheader()
        writer.writerows(rows())


def make_parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows()), folder / "data.parquet")


def plain_problems(source: Any) -> Any:
    from halfway.curriculum import Stream

    loaded = source.load(None, Stream(0))
    problems = sorted((p.id, p.prompt, p.answer, p.verifier, p.solution, dict(p.features)) for p in loaded.problems)
    return problems, loaded.report.kept, dict(loaded.report.dropped), [str(note) for note in loaded.report.notes]


def read_data(folder: Path) -> Any:
    from halfway.curriculum.tasks.files import File

    [path] = folder.iterdir()
    options = {"id_column": "id", "solution_column": "solution", "verifier_column": "verifier"}
    return plain_problems(File(path=str(path), on_bad_row="drop", feature_columns=("level",), **options))


def read_strictly(folder: Path) -> Any:
    """As `halfway init` would have the columns, and no bad row."""
    from halfway.curriculum.tasks.files import File

    [path] = folder.iterdir()
    return plain_problems(File(path=str(path), verifier="numeric", check_answers=False))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make_hub(folder: Path) -> None:
    """A local cache of the hub with a data set of two configurations in Parquet."""
    inside = folder / "datasets--a--b" / "snapshots" / COMMIT
    for name in ("main", "more"):
        (inside / name).mkdir(parents=True)
        make_parquet(inside / name)
        (inside / name / "data.parquet").rename(inside / name / "train-00000-of-00001.parquet")
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - {{split: train, path: {name}/train-*}}\n"
        for name in ("main", "more")
    )
    (inside / "README.md").write_text(f"---\nlicense: mit\nconfigs:\n{configs}---\n# B\n\nSums.\n")
    (folder / "datasets--a--b" / "refs").mkdir()
    (folder / "datasets--a--b" / "refs" / "main").write_text(COMMIT)


def hub_files(folder: Path) -> list[Path]:
    """What a data set brings, its README as often as its tables, and the cache's name of its version."""
    inside = folder / "datasets--a--b" / "snapshots" / COMMIT
    return [*[inside / "README.md"] * 2, *sorted(inside.rglob("*.parquet")), inside.parent.parent / "refs" / "main"]


def read_hub(folder: Path) -> Any:
    from huggingface_hub import constants

    from halfway.curriculum.tasks.hub import Hub

    vars(constants).update(HF_HUB_CACHE=str(folder), HF_HUB_OFFLINE=True)
    return plain_problems(Hub("a/b", config="main", id_column="id", verifier_column="verifier", on_bad_row="drop"))


def make_survey(folder: Path) -> None:
    from halfway.curriculum import Problem
    from halfway.experiments.survey.findings import write_kept
    from halfway.experiments.survey.sampling import Record

    problems = [Problem(r["id"], r["prompt"], r["answer"], "data", "numeric", {"level": r["level"]}) for r in rows()]
    tried = [Record(p.id, p.source, {}, 4, i % 5, 4, 0, 0) for i, p in enumerate(problems)]
    write_kept(problems, tried, "", folder / "problems.jsonl")


def read_survey(folder: Path) -> Any:
    from halfway.curriculum.tasks.files import Surveyed

    return plain_problems(Surveyed(path=str(folder / "problems.jsonl"), on_bad_row="drop"))


def make_surveyed(folder: Path) -> None:
    """The folder of a survey that has begun."""
    from halfway.experiments.survey import sampling
    from halfway.experiments.survey.survey import prepare_folder

    prepare_folder({"samples": 4, "model": "m"}, folder)
    found = [sampling.Record(f"p{i}", "data", {"level": i}, 4, i % 5, 4, 0, 0) for i in range(12)]
    (folder / sampling.RECORDS).write_text("".join(map(sampling._line, found)))


def read_surveyed(folder: Path) -> Any:
    from halfway.experiments.survey.sampling import read_records
    from halfway.experiments.survey.survey import prepare_folder

    prepare_folder({"samples": 4, "model": "m"}, folder)
    return read_records(folder)


def make_states(folder: Path) -> None:
    """What a run has saved of the starting policy's hidden states."""
    import numpy as np

    from halfway.trainers.prompt_states import FILE

    key = np.array(f"{a_few().fingerprint()} 4")
    np.savez(folder / FILE, key=key, states=np.linspace(-1, 1, 32).reshape(8, 4))


def a_few() -> Any:
    from halfway.curriculum import Problem, ProblemSet

    return ProblemSet([Problem(str(i), f"{i}?", "1") for i in range(8)])


def read_states(folder: Path) -> Any:
    """As `halfway resume` does; states that are not taken are computed again."""
    from halfway.trainers.prompt_states import with_prompt_states

    return with_prompt_states(a_few(), computed_again, 4, folder).column("prompt_state").tolist()


def computed_again() -> Any:
    from halfway.curriculum import UserError

    raise UserError("computed again")


def make_pool(folder: Path) -> None:
    from halfway.curriculum import Problem
    from halfway.trainers.propel.guessed_problems import Guessed, write_pool

    problems = tuple(Problem(r["id"], r["prompt"], r["answer"], "pool", "numeric") for r in rows())
    write_pool(
        Guessed(problems, tuple(i / 24 for i in range(24)), ("sums",) * 24, {}),
        folder / "pool.parquet",
        {"reference model": "x"},
    )


def read_pool(folder: Path) -> Any:
    from halfway.curriculum.tasks.files import Pool
    from halfway.trainers.propel.guessed_problems import read_provenance

    path = folder / "pool.parquet"
    return plain_problems(Pool(path=str(path))), read_provenance(path)


PROVENANCE = {"solver model": "x", "seed": 0}


def make_corpus(folder: Path) -> None:
    from halfway.trainers.propel.corpus import CorpusRow, write_rows

    texts = [
        CorpusRow(
            f"0/{i}",
            "^",
            f"^1/0a{i}b1=",
            9,
            "" if i % 4 else "no task",
            "",
            "sums",
            f"p{i}",
            f"{i}?",
            str(i),
            "exact",
            "sums",
            json.dumps({"level": i}),
            False,
            i % 5 if i % 4 else -1,
            4 if i % 4 else 0,
        )
        for i in range(24)
    ]
    write_rows(texts, folder / "part-00000.parquet", PROVENANCE)


def read_corpus(folder: Path) -> Any:
    from halfway.trainers.propel.corpus import load_corpus

    return load_corpus(folder, PROVENANCE, 24).rows


# ---------------------------------------------------------------- logs


def make_log(name: str, folder: Path) -> None:
    """A sound log of one format."""
    if (LOGS / name).exists():
        shutil.copytree(LOGS / name, folder, dirs_exist_ok=True)
        return
    WRITTEN[name](folder)


def _records(folder: Path, name: str, records: list[dict[str, Any]]) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


TABLE = [{"problem": f"p{i // 4}", "step": i // 8, "reward": i % 3 % 2} for i in range(16)]


def _parquet_log(folder: Path) -> None:
    import duckdb

    table = _records(folder, "table.jsonl", TABLE)
    duckdb.sql(f"COPY (FROM read_ndjson('{table}')) TO '{folder}/table.parquet' (FORMAT parquet)")
    table.unlink()


def _csv_log(folder: Path) -> None:
    lines = ["problem,step,reward", *(",".join(map(str, row.values())) for row in TABLE)]
    (folder / "table.csv").write_text("\n".join(lines))


def _packed_log(folder: Path) -> None:
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in TABLE).encode()))


def _decisions(folder: Path) -> None:
    from synthetic_runs import decision

    _records(
        folder, "decisions.jsonl", [*(decision(i, k=i % 9) for i in range(12)), decision(3, None, None, "skipped")]
    )


def _nemo(folder: Path) -> None:
    row = {"content": ["a"], "input_lengths": [3], "token_ids": [[1, 7, 30]], "token_loss_mask": [[0, 0, 1]]}
    _records(folder, "train_data_step1.jsonl", [{**row, "idx": i, "rewards": [i % 2]} for i in range(8)])


def _roll(folder: Path) -> None:
    row = {"global_step": 1, "id": "a", "prompt": "p", "responses": "r", "scores": 0.5, "domain": "math"}
    _records(folder, "rollout_dump_data.step_1.jsonl", [{name: [value] * 4 for name, value in row.items()}])


def _instruct(folder: Path) -> None:
    row = {"step": 1, "prompt_tokens": [5, 6], "response_tokens": [7], "dataset": "math", "sample_idx": 0}
    lines = [{**row, "prompt_idx": i // 4, "reward": i % 2} for i in range(8)]
    _records(folder, "run_rollouts_000000.jsonl", lines)


def _database(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "explorer.db")) as base:
        base.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, task_id TEXT, run_id INT, model_version INT, reward FLOAT)"
        )
        written = [(f"t{i // 4}", i % 4, i // 8, i % 3 % 2) for i in range(400)]
        base.executemany("INSERT INTO t (task_id, run_id, model_version, reward) VALUES (?, ?, ?, ?)", written)
        base.commit()


def _lines(name: str, records: list[dict[str, Any]], folder: Path) -> None:
    _records(folder, name, records)


WRITTEN: dict[str, Callable[[Path], None]] = {
    "table": partial(_lines, "table.jsonl", TABLE),
    "packed": _packed_log,
    "csv": _csv_log,
    "parquet": _parquet_log,
    "counts": partial(_lines, "counts.jsonl", [{**r, "k": i % 5, "n": 4} for i, r in enumerate(TABLE)]),
    "groups": partial(
        _lines, "groups.jsonl", [{"prompt_id": r["problem"], "step": 0, "rewards": [0, 1, 1]} for r in TABLE]
    ),
    "polaris": partial(
        _lines, "steps_of_polaris.jsonl", [{"index": ["a", "b"], "score": [0.0, 1.0], "step": i} for i in range(4)]
    ),
    "halfway": _decisions,
    "verifiers": partial(
        _lines,
        "results.jsonl",
        [{"example_id": i // 4, "prompt": [], "completion": [], "reward": 1.0} for i in range(8)],
    ),
    "nemo_rl": _nemo,
    "roll": _roll,
    "open_instruct": _instruct,
    "database": _database,
}
LOG_NAMES = ("verl", "verl_v1", "trl", "ms_swift", "trinity", "areal", "prime_rl", "tinker", *WRITTEN)


def read_log(folder: Path) -> Any:
    """As `halfway audit` and notebooks show it."""
    from rich.console import Console

    from halfway.experiments.audit.auditing import audit
    from halfway.experiments.audit.tables import show
    from halfway.experiments.outcomes import AuditedLogs

    printed = StringIO()
    found = audit([folder], replayed=())
    show(found, Console(file=printed, width=120))
    shown = AuditedLogs(found)._repr_html_()
    assert printed.getvalue().replace("\n", "").isprintable(), "something raw is shown"
    assert "<script" not in shown and "\x1b" not in shown, "something raw is in the page"
    return found.plain()


# ---------------------------------------------------------------- runs

TINY = [
    *("problems.train=16", "fill.groups=2", "rollouts.num_rollouts=2", "budget={rollouts: null, steps: 3}"),
    *(
        "evaluation.problems=4",
        "evaluation.samples=2",
        "evaluation.points=1",
        "checkpoint.every=1",
        "checkpoint.keep=1",
    ),
    *("tracking.mlflow=false", "rollouts.max_response_tokens=8", "name=run"),
]
RECORDS = (".yaml", ".json", ".jsonl")


def make_run(changes: list[str], folder: Path) -> None:
    import halfway
    from halfway.trainers.rollouts import sampling_process

    # A sampling process of its own then has all imported, as this one has.
    vars(sampling_process)["multiprocessing"] = SimpleNamespace(get_context=lambda _: get_context("fork"))
    halfway.run(str(RECIPES / "lab" / "sums.yaml"), f"output={folder}", *TINY, *changes, quiet=True)


def record_files(folder: Path) -> list[Path]:
    return [
        p
        for p in every_file(folder)
        if p.suffix in RECORDS and "checkpoints" not in p.parts and "figures" not in p.parts
    ]


def read_run(folder: Path) -> Any:
    """As notebooks do."""
    import halfway

    found = halfway.load(folder / "run")
    tables = [t.fetchall() for t in (found.decisions, found.groups, found.problems, found.curves, found.texts)]
    shown = found._repr_html_()
    assert "\x1b" not in shown and "<script" not in shown, "something raw is shown"
    return tables[1:], found.summary


def read_report(folder: Path) -> Any:
    """As `halfway report` does."""
    from halfway.experiments.report.report_page import write_report

    page = write_report(folder / "run").read_text()
    assert "\x1b" not in page and "<script>alert" not in page, "something raw is in the page"
    return len(page) // 10**5


def make_comparison(folder: Path) -> None:
    from synthetic_runs import write_comparison

    write_comparison(folder / "run", seeds=(0, 1), steps=6)


def read_retraced(folder: Path) -> Any:
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running import build
    from halfway.experiments.running.retrace import retrace

    config = load_run_config(folder / "run" / "config.yaml")
    session = build.build_session(
        config, build.build_problems(config).train, lambda: build.load_starting_policy(config)
    )
    return retrace(folder / "run", session, config.fill, config.rollouts.staleness, config.seed, 0)


def event_files(folder: Path) -> list[Path]:
    return [folder / "run" / name for name in ("events.jsonl", "events.jsonl", "decisions.jsonl")]


# ---------------------------------------------------------------- repositories


def make_archive(folder: Path) -> None:
    from repositories import small_repository

    small_repository(folder / "means-1.0")
    with tarfile.open(folder / "means-1.0.tar.gz", "w:gz") as opened:
        opened.add(folder / "means-1.0", "means-1.0")
    shutil.rmtree(folder / "means-1.0")


def _unpacked(folder: Path, sha256: str) -> Any:
    from halfway.curriculum import Stream
    from halfway.curriculum.boxes.box import Base
    from halfway.curriculum.repositories import archives

    vars(archives)["cache_folder"] = lambda chosen: folder / "cache"
    [path] = folder.glob("*.tar.gz")
    small = path.is_file() and path.stat().st_size < 1 << 30
    sha256 = sha256 or (hashlib.sha256(path.read_bytes()).hexdigest() if small else "0" * 64)
    tree = archives.unpack(path, sha256)
    project = archives.Project("means", Base(str(tree)))
    outside = [p for p in tree.rglob("*") if not p.resolve().is_relative_to((folder / "cache").resolve())]
    assert not outside, f"leads out of the archive: {outside}"
    mutants = [mutant.text for mutant, _ in zip(project.shuffle(Stream(0)), range(5), strict=False)]
    return project.files(), [(tree / name).read_bytes() for name in project.files()], mutants


def read_archive(folder: Path) -> Any:
    """An archive whose stranger says its hash too."""
    return _unpacked(folder, "")


def make_pinned(folder: Path) -> None:
    make_archive(folder)
    [path] = folder.glob("*.tar.gz")
    (folder / "sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())


def archive_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.tar.gz"))


def read_pinned(folder: Path) -> Any:
    """An archive whose hash the user has from elsewhere."""
    return _unpacked(folder, (folder / "sha256").read_text())


def make_tasks(folder: Path) -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    tests = {"FAIL_TO_PASS": json.dumps(["tests/test_x.py::a"]), "PASS_TO_PASS": ["tests/test_x.py::b"]}
    about = {"repo": "a/b", "problem_statement": "[ISSUE]It fails.[/ISSUE]", "patch": diff}
    _records(
        folder,
        "tasks.jsonl",
        [
            *({**about, **tests, "instance_id": f"a__b-{i}", "test_patch": diff} for i in range(3)),
            *({**about, **tests, "instance_id": f"a__b.{i}", "image_name": "x/y:1"} for i in range(3)),
            *(
                {
                    "docker_image": f"x:{i}",
                    "commit_hash": f"{i}" * 8,
                    "problem_statement": "It fails.",
                    "expected_output_json": json.dumps({"test_a": "PASSED", "test_b": "FAILED"}),
                }
                for i in range(1, 3)
            ),
        ],
    )


def read_tasks(folder: Path) -> Any:
    from halfway.curriculum import Stream
    from halfway.curriculum.repositories.rows import RepositoryRows
    from halfway.curriculum.repositories.task import from_text

    loaded = RepositoryRows(str(folder / "tasks.jsonl")).load(None, Stream(0))
    return [(p.id, p.prompt, from_text(p.answer, p.id)) for p in loaded.problems], dict(loaded.report.dropped)


def make_harbor(folder: Path) -> None:
    for name in ("one", "two"):
        for path, text in {
            "task.toml": '[task]\nname = "ours/greeting"\n[metadata]\ndifficulty = "easy"\n[verifier]\n'
            'env = { WANTED = "Hello" }\n[environment]\ndocker_image = "registry/greeting:1"\nworkdir = "/app"\n',
            "instruction.md": f"<!-- canary 1 -->\n\nWrite {name} into out.txt.\n",
            "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app\n",
            "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
        }.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(text)


def read_harbor(folder: Path) -> Any:
    from halfway.curriculum import Stream
    from halfway.curriculum.repositories.harbor import HarborTasks
    from halfway.curriculum.repositories.task import from_text

    loaded = HarborTasks(str(folder)).load(None, Stream(0))
    tasks = [from_text(p.answer, p.id) for p in loaded.problems]
    return (
        [(p.prompt, dict(p.features)) for p in loaded.problems],
        [(t.name, t.base) for t in tasks],
        dict(loaded.report.dropped),
    )


def read_audit(folder: Path) -> Any:
    """As `halfway audit --write` does, with controllers replayed."""
    from halfway.experiments.audit.auditing import audit
    from halfway.experiments.audit.tables import write_audit

    write_audit(audit([folder], replayed=("greso", "retire")), folder / "audit.html")
    page = (folder / "audit.html").read_text()
    assert "<script" not in page and "\x1b" not in page, "something raw is in the page"
    return "written"


PLAIN_RUN = partial(make_run, [])
TRIED = ("quickstart", "lab/ledger", "compare/every_method", "cluster/swe_32b", "propel/sums", "methods/propel")
FURTHER = sorted({str(path.relative_to(RECIPES))[:-5] for path in RECIPES.rglob("*.yaml")} - set(TRIED))
FILES: dict[str, Kind] = {
    **{f"recipe {name}": Kind(partial(make_recipe, f"{name}.yaml"), read_recipe, recipe_files) for name in TRIED},
    **{
        f"further recipe {name}": Kind(partial(make_recipe, f"{name}.yaml"), read_recipe, recipe_files, share=0.2)
        for name in FURTHER
    },
    "recipe, validated": Kind(partial(make_recipe, "lab/sums.yaml"), validate_recipe, recipe_files),
    "data jsonl": Kind(make_lines, read_data),
    "data jsonl, no bad rows": Kind(make_lines, read_strictly),
    "data json": Kind(make_json, read_data),
    "data csv": Kind(make_csv, read_data),
    "data parquet": Kind(make_parquet, read_data, binary=True),
    "data jsonl.gz": Kind(make_packed, read_data, binary=True),
    "data jsonl.zst": Kind(make_zstd, read_data, binary=True),
    "data of the hub": Kind(make_hub, read_hub, hub_files, binary=True),
    "survey": Kind(make_survey, read_survey),
    "survey's folder": Kind(make_surveyed, read_surveyed),
    "prompt states": Kind(make_states, read_states, binary=True),
    "pool": Kind(make_pool, read_pool, binary=True, sealed=True),
    "corpus": Kind(make_corpus, read_corpus, binary=True, sealed=True),
    **{
        f"log {name}": Kind(partial(make_log, name), read_log, binary=name in ("packed", "parquet", "database"))
        for name in LOG_NAMES
    },
    **{
        f"log {name}, replayed": Kind(partial(make_log, name), read_audit, share=0.2)
        for name in ("halfway", "trl", "table")
    },
    "run folder": Kind(PLAIN_RUN, read_run, record_files),
    "comparison folder": Kind(make_comparison, read_run, record_files),
    "run folder, report": Kind(PLAIN_RUN, read_report, record_files, share=0.1),
    "run folder, retraced": Kind(
        partial(make_run, ["rollouts.staleness=1", "learner.mismatch=token_truncated"]), read_retraced, event_files
    ),
    "archive": Kind(make_archive, read_archive, binary=True),
    "archive, pinned": Kind(make_pinned, read_pinned, archive_files, binary=True, sealed=True),
    "repository tasks": Kind(make_tasks, read_tasks),
    "Harbor tasks": Kind(make_harbor, read_harbor),
}
