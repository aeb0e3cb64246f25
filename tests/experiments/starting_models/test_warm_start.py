"""The committed starting policies: made again by their command, and suitable for the lab."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from paths import REPOSITORY
from sandboxes import needs_sandbox

import halfway.experiments.starting_models.warm_start
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.lab.micro import repositories as micro
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.propel.config import load_study
from halfway.experiments.propel.study import Study, frozen_policy
from halfway.experiments.running.build import build_run
from halfway.experiments.starting_models.tokenizers import MICRO, by_integer, by_micro
from halfway.experiments.starting_models.warm_start import (
    RECIPES,
    Task,
    WarmStart,
    copying_demonstration,
    draw_batch,
    warm_start,
    with_new_embeddings,
)
from halfway.trainers.loop.evaluation import Evaluation
from halfway.trainers.propel.domains import functions
from halfway.trainers.propel.domains.candidates import read

LAB = REPOSITORY / "experiments" / "recipes" / "lab"
INDUCTION = LAB.parent / "propel" / "induction.yaml"
BUGS = INDUCTION.with_name("bugs.yaml")
SOLVER = str(LAB / "micro_solver")
TASKS = {
    "running_sums": ("base", "base.yaml"),
    "operator_sheets": ("skills_base", "skills.yaml"),
    "ledger": ("ledger_base", "ledger.yaml"),
}
REGIMES = {"skills_easy.yaml": 0.46, "skills.yaml": 0.59, "skills_hard.yaml": 0.77}
SMALL = ["evaluation.problems=128", "evaluation.samples=8", "problems.train=8", "threads=1", "tracking.mlflow=false"]


def measured(recipe: str, model: Path, folder: Path, *overrides: str) -> Evaluation:
    training = build_run(load_run_config(LAB / recipe, [*SMALL, f"model.path={model}", *overrides]), folder)
    assert training.evaluate is not None
    return training.evaluate()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_command_makes_a_policy_of_the_same_pass_rates(task: str, tmp_path: Path) -> None:
    folder, recipe = TASKS[task]
    warm_start(tmp_path / "again", RECIPES[task])
    committed, again = measured(recipe, LAB / folder, tmp_path), measured(recipe, tmp_path / "again", tmp_path)
    # On the machine that made them the weights are equal; on another, training takes another path to the same place.
    assert abs(committed.pass_at_1 - again.pass_at_1) < 4 * (committed.stderr**2 + again.stderr**2) ** 0.5


@pytest.mark.parametrize("task", ["running_sums", "ledger"])
def test_groups_of_the_starting_policy_are_spread(task: str, tmp_path: Path) -> None:
    folder, recipe = TASKS[task]
    at_start = measured(recipe, LAB / folder, tmp_path)
    assert 0.2 < at_start.pass_at_1 < 0.5
    assert min(at_start.pass_counts_K[: 8 if task == "running_sums" else 6]) > 0
    assert at_start.pass_counts_K[0] + at_start.pass_counts_K[8] < 0.5 * at_start.num_problems


@pytest.mark.parametrize(("recipe", "degenerate"), REGIMES.items())
def test_regimes_of_the_skills_have_the_stated_share_of_degenerate_groups(
    recipe: str, degenerate: float, tmp_path: Path
) -> None:
    at_start = measured(recipe, LAB / "skills_base", tmp_path, "evaluation.problems=384")
    # Of 384 groups the share has a standard error of .025 at most.
    assert (at_start.pass_counts_K[0] + at_start.pass_counts_K[8]) / 384 == pytest.approx(degenerate, abs=0.06)
    # In the hard regime two groups of 384 pass throughout, and none passes seven times.
    assert min(at_start.pass_counts_K[: 7 if degenerate > 0.7 else 9]) > 0


@needs_sandbox
def test_the_starting_policy_of_micro_repositories_mends_some(tmp_path: Path) -> None:
    few = ("evaluation.problems=24", "evaluation.samples=4")
    at_start = measured("micro.yaml", LAB / "micro_base", tmp_path, *few)
    assert 0.15 < at_start.pass_at_1 < 0.5
    assert at_start.pass_counts_K[0] + at_start.pass_counts_K[4] < 20


def test_the_command_names_its_recipes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[tuple[Path, WarmStart]] = []
    monkeypatch.setattr(
        halfway.experiments.starting_models.warm_start,
        "warm_start",
        lambda folder, recipe: made.append((folder, recipe)),
    )
    halfway.experiments.starting_models.warm_start.main(["ledger", "somewhere"])
    assert made == [(Path("somewhere"), RECIPES["ledger"])]
    for words, code in ((["--help"], 0), (["legder", "somewhere"], 2), ([], 2)):
        with pytest.raises(SystemExit) as stopped:
            halfway.experiments.starting_models.warm_start.main(words)
        assert stopped.value.code == code
    shown = capsys.readouterr()
    assert "small_sums_generator" in shown.out and "invalid choice: 'legder'" in shown.err


def test_the_starting_policies_are_small() -> None:
    size = sum(path.stat().st_size for folder, _ in TASKS.values() for path in (LAB / folder).iterdir())
    assert size < 5e6
    assert OmegaConf.load(LAB / "base.yaml").model.path == "experiments/starting_models/sums"


def test_the_sheets_of_the_generator_lie_on_both_sides_of_the_frontier() -> None:
    study = Study(load_study(LAB.parent / "propel" / "sums.yaml", ["threads=1"]), 0)
    written = study.base_author.write(256, study.stream.at("test"))
    sheets = [sums.parse(one.candidate.text) for one in written if one.valid]
    assert 0.75 < len(sheets) / len(written) < 0.95
    assert len({one.candidate.text for one in written}) > 0.7 * len(written)
    # About two thirds of the wraps, and one in ten of the other lines, are wrong in the solver's responses.
    surplus = [0.67 * sums.wraps(s) + 0.1 * (len(s.operands) - sums.wraps(s)) - s.allowed for s in sheets]
    easy, hopeless = (sum(inside) / len(sheets) for inside in ([x < 0 for x in surplus], [x > 2 for x in surplus]))
    assert 0.2 < easy < 0.7 and 0.15 < hopeless < 0.5


def test_the_operator_sheets_of_the_generator_avoid_the_frontier() -> None:
    study = Study(load_study(LAB.parent / "propel" / "operators.yaml", ["threads=1"]), 0)
    written = study.base_author.write(256, study.stream.at("test"))
    sheets = [operators.parse(one.candidate.text) for one in written if one.valid]
    assert 0.65 < len(sheets) / len(written) < 0.9
    assert len({one.candidate.text for one in written}) > 0.9 * len(written)
    rates = [operators.chance(sheet, operators.OperatorTeacher()) for sheet in sheets]
    easy, hopeless = (sum(inside) / len(rates) for inside in ([p > 0.6 for p in rates], [p < 0.05 for p in rates]))
    assert 0.4 < easy < 0.7 and 0.2 < hopeless < 0.45  # of 1,000 of the author's own .57 and .31


@pytest.mark.parametrize("task", ["induction_solver", "induction_generator"])
def test_the_command_writes_what_a_study_loads(task: Task, tmp_path: Path) -> None:
    recipe = replace(RECIPES[task], steps=2, batch_tokens=100)
    warm_start(tmp_path / "one", recipe)
    warm_start(tmp_path / "two", recipe)
    loaded = frozen_policy(replace(load_study(INDUCTION).solver.model, path=str(tmp_path / "one")))
    assert loaded.tokenizer.encode("3,4>x*12", add_special_tokens=False) == by_integer().encode("3,4>x*12")
    assert loaded.end_tokens == [by_integer().eos_token_id]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    assert sum(weight.numel() for weight in loaded.model.parameters()) < 1e6


@needs_sandbox
def test_the_solver_of_induction_has_a_frontier_among_the_authors_functions(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    study = Study(load_study(INDUCTION, [f"output={tmp_path}"]), 0)
    rng = random.Random(5)
    texts = [functions.write_function(functions.FunctionAuthor(), rng) for _ in range(120)]
    problems = [one.problem for one in read(study.domain, texts) if one.problem is not None]
    assert 0.8 < len(problems) / len(texts) < 0.95
    passed = study.solver.passes(problems, Stream(0).at("trials"))
    assert 0.05 < sum(map(study.solver.useful, passed)) / len(texts) < 0.3
    assert passed.count(8) > 10 and passed.count(0) > 5


def test_the_command_writes_a_generator_of_bugs(tmp_path: Path) -> None:
    warm_start(tmp_path / "one", replace(RECIPES["bugs_generator"], steps=2, batch_tokens=120))
    study = load_study(BUGS)
    loaded, solver = (frozen_policy(replace(study.solver.model, path=path)) for path in (str(tmp_path / "one"), SOLVER))
    text = "f1c=g(a)+b|f2return c-3|h1c=b*2|h2return c+a|g1c=a+4|g2return c*2|"
    for tokenizer in (loaded.tokenizer, solver.tokenizer):
        assert tokenizer.encode(text, add_special_tokens=False) == by_micro().encode(text)
    assert loaded.end_tokens == solver.end_tokens == [by_micro().eos_token_id]


def test_operators_that_are_one_to_the_solver_are_told_apart() -> None:
    """The author of bugs begins with the solver's base, which never learned to copy an operator."""

    def cosines(model: Any) -> Any:
        vectors_OH = model.get_input_embeddings().weight[[MICRO.index(token) for token in micro.OPERATORS]]
        return torch.nn.functional.cosine_similarity(vectors_OH, vectors_OH.roll(1, 0))

    base = frozen_policy(replace(load_study(BUGS).solver.model, path=str(LAB / "micro_base"))).model
    before = base.get_input_embeddings().weight.clone()
    assert cosines(base).min() > 0.95
    torch.manual_seed(0)
    renewed = with_new_embeddings(base, micro.OPERATORS)
    changed = (renewed.get_input_embeddings().weight != before).any(1).nonzero().flatten().tolist()
    assert changed == [MICRO.index(token) for token in micro.OPERATORS] and cosines(renewed).max() < 0.6


def test_the_author_of_bugs_copies_every_line_first() -> None:
    (shown, own), *parts = copying_demonstration(random.Random(3))
    assert not own and [learned for _, learned in parts] == [False, True] * 6
    lines = ["".join(pair) for pair in zip([t for t, _ in parts[::2]], [t for t, _ in parts[1::2]], strict=True)]
    assert sorted(lines) == sorted(f"{line}|" for line in shown.split("|")[:-1]) and "".join(lines) != shown
    (first, *_), (later, *_) = (draw_batch(step, RECIPES["bugs_generator"], random.Random(0)) for step in (199, 200))
    assert len(first) == 13 and len(later) == 2


@needs_sandbox
def test_the_generator_of_bugs_writes_bugs_of_every_kind(tmp_path: Path) -> None:
    study = Study(load_study(BUGS, [f"output={tmp_path}"]), 0)
    written = study.base_author.write(120, study.stream.at("test"))
    kinds = [one.candidate.task.kind for one in written if one.valid and one.candidate.task is not None]
    assert 0.4 < len(kinds) / len(written) < 0.9
    reasons = [one.candidate.invalid.reason for one in written if one.candidate.invalid is not None]
    assert reasons.count("does not apply") <= 4 and kinds.count("other") < len(kinds) / 2
    assert set(kinds) == {"operator", "name", "constant", "other"} and len({one.text for one in written}) > 60


def test_the_policies_of_studies_are_small() -> None:
    for name in ("bugs_generator", "micro_solver"):
        assert 5e5 < sum(path.stat().st_size for path in (LAB / name).iterdir()) < 1e6
    for name in ("induction_solver", "induction_generator"):
        assert 1e6 < sum(path.stat().st_size for path in (LAB / name).iterdir()) < 2e6
