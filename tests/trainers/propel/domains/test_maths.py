"""The domain maths: what it reads, and which answers oracles agree on; and a whole study with tiny models."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import says
from omegaconf import OmegaConf
from propel_study import make_model, peculiar, reliable, solver, writer

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.support.components import plain
from halfway.curriculum.tasks.verifiers.symbolic import equivalent
from halfway.curriculum.tasks.verifiers.verify import verify
from halfway.experiments.propel.config import PropelConfig, load_study, study_config
from halfway.experiments.propel.stages import run_corpus, run_evaluation, run_sweep, run_training
from halfway.experiments.propel.study import Study
from halfway.experiments.propel.study_summary import write_summary
from halfway.trainers.propel.corpus import load_corpus
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.domains.maths import POOLS, Maths, MathsTask, example_pools
from halfway.trainers.propel.domains.oracles import Panel, PanelVerdict, final_answer
from halfway.trainers.propel.generator_scores import check_health
from halfway.trainers.propel.propel_options import CheckpointRule
from halfway.trainers.propel.writing import Written

QUESTION = "What is the sum of the first ten positive integers?"


def tagged(question: str) -> str:
    return f"<problem>\n{question}\n</problem>"


# Reading.


def test_the_problem_is_the_text_between_the_tags() -> None:
    [candidate] = read(Maths(), [f"<think>a <problem>draft</problem></think>Here:\n{tagged(QUESTION)}"])
    assert candidate.task == MathsTask(QUESTION) and candidate.valid and candidate.answers == ()
    problem = candidate.problem
    assert problem is not None and problem.prompt == f"{QUESTION}\n\n{Maths().instruction}" and problem.answer == ""
    assert problem.verifier == "symbolic" and problem.features["topic"] == "number theory"
    assert Maths(instruction="").problem(MathsTask(QUESTION)).prompt == QUESTION


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (QUESTION, "unreadable"),
        (tagged(QUESTION) + tagged(QUESTION), "not one problem"),
        (tagged("What is 1 + 1?"), "too short"),
        (tagged("What is 1 + " * 200 + "1?"), "too long"),
        (tagged(QUESTION + " Answer: 55"), "gives its answer"),
        (tagged(QUESTION + r" It is \boxed{55}."), "gives its answer"),
        (tagged(r"Prove that there are infinitely many primes."), "asks for a proof"),
        (tagged(r"Find the area of the shape in the figure below."), "needs a picture"),
        (tagged("The sum of the first ten positive integers."), "asks nothing"),
        (tagged(r"Find the value of \frac{1}{2 + 3 in lowest terms."), "broken LaTeX"),
        (tagged(r"Find the value of $\frac{1}{2} + 3 in lowest terms."), "broken LaTeX"),
        (tagged(POOLS["school"][0].upper()), "copies an example"),
    ],
)
def test_an_invalid_text_has_its_reason(text: str, reason: str) -> None:
    [candidate] = read(Maths(), [text])
    assert candidate.invalid is not None and candidate.invalid.reason == reason and not candidate.valid


def test_money_and_braces_of_sets_are_not_broken_latex() -> None:
    for question in (
        "A pen costs $3. What do seven of them cost?",
        r"Find the number of subsets of \{1, 2, 3\} with $2$ elements.",
        r"Find all $x$ with $\left\{ x \right. = 2$.",
    ):
        assert isinstance(Maths().parse(tagged(question)), MathsTask)


@given(st.text(max_size=80))
def test_any_text_is_read(text: str) -> None:
    for domain in (Maths(), Maths(syntax="plain", min_characters=1)):
        for one in (text, tagged(text)):
            [candidate] = read(domain, [one])
            assert candidate.valid != (candidate.invalid is not None)


def test_the_topic_is_that_whose_words_occur_most() -> None:
    def topic(question: str) -> str:
        return Maths().topic(MathsTask(question))

    assert topic("Find the area of a triangle with sides 3, 4 and 5.") == "geometry"
    assert topic("What is the probability of two heads with a fair coin?") == "probability"
    assert topic("Find all real numbers with x + 1 = 3 as the equation says.") == "algebra"
    assert topic("What is this?") == "other"
    found = {topic(text) for pool in POOLS.values() for text in pool}
    assert len(found) >= 5 and "other" not in found


def test_the_generator_reads_two_examples_of_one_pool(tmp_path: Path) -> None:
    domain = Maths()
    prompts = [domain.prompt(Stream(0).at(i)) for i in range(60)]
    assert prompts[0] == domain.prompt(Stream(0).at(0)) and len(set(prompts)) > 10
    pools = Counter()
    for prompt in prompts:
        [pool] = [name for name, texts in POOLS.items() if sum(text in prompt for text in texts) == 2]
        pools[pool] += 1
    assert min(pools.values()) > 10
    file = tmp_path / "examples.jsonl"
    file.write_text('{"prompt": "one", "pool": "a"}\n\n{"prompt": "two", "pool": "a"}\n')
    assert example_pools(str(file)) == {"a": ["one", "two"]}
    assert {"one", "two"} <= set(Maths(examples_path=str(file)).prompt(Stream(0)).split("\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"maths\.examples_path: "),
        ("", "no problem"),
        ('{"prompt": "one"}', "pool '' "),
        ('{"text": "one"}', r"examples\.jsonl:1: "),
        ('{"prompt": 1}', r"examples\.jsonl:1: .*prompt.*pool"),
        ("[]", r"examples\.jsonl:1: "),
        ("[" * 100_000, r"examples\.jsonl:1: "),
    ],
)
def test_bad_examples_are_one_line(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=message):
        Maths(examples_path=str(file)).prompt(Stream(0))


def test_options_refuse_what_cannot_be() -> None:
    for changes, message in [
        ({"min_characters": 0}, r"maths\.min_characters"),
        ({"max_characters": 3}, r"maths\.max_characters"),
        ({"syntax": "plain", "examples_path": "x.jsonl"}, r"maths\.examples_path"),
    ]:
        with pytest.raises(UserError, match=message):
            Maths(**changes)  # type: ignore[arg-type]


# Answers.


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{7}", "7"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed {  x+1 }", "x+1"),
        (r"\fbox{3}", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\frac{1}{2}", ""),
        (r"\boxed{}", ""),
        ("the answer is 7", ""),
        ("", ""),
    ],
)
def test_the_final_answer_is_in_the_last_box(response: str, answer: str) -> None:
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        (["1/2", "0.5", r"\frac{1}{2}", r"\dfrac12"], True),
        (["x+1", "1+x"], True),
        ([r"\sqrt{8}", r"2\sqrt{2}"], True),
        (["7", "7", "7", "8"], False),
        (["7", "-7"], False),
        (["7", "]]]"], None),
        (["]]]", "]]]"], None),
    ],
)
def test_equivalence_is_of_all_pairs(answers: list[str], verdict: bool | None) -> None:
    assert equivalent(answers) is verdict and equivalent(answers[::-1]) is verdict


class Scripted:
    """An oracle that gives scripted answers and counts the questions."""

    attempts = 2

    def __init__(self, responses: dict[str, tuple[str, str]], default: tuple[str, str] = (r"\boxed{55}",) * 2):
        self.responses, self.default, self.asked = responses, default, 0

    def answer(self, problems: Sequence[Problem]) -> list[tuple[str, ...]]:
        self.asked += 2 * len(problems)
        return [self.responses.get(problem.prompt, self.default) for problem in problems]


def settle(first: tuple[str, str], second: tuple[str, str]) -> PanelVerdict:
    [verdict] = Panel((Scripted({}, first), Scripted({}, second))).settle([Problem("a", "?", "")])
    return verdict


def boxed(*answers: str) -> tuple[str, str]:
    first, second = (f"I get \\boxed{{{answer}}}" for answer in answers)
    return first, second


def test_four_equal_answers_are_a_reference() -> None:
    verdict = settle(boxed("1/2", "0.5"), boxed(r"\frac{1}{2}", r"\dfrac{2}{4}"))
    assert isinstance(verdict.outcome, Problem) and verdict.outcome.answer == r"\boxed{1/2}" and verdict.attempts == 4
    assert verdict.answers == ("1/2", "0.5", r"\frac{1}{2}", r"\dfrac{2}{4}")
    problem = Problem("a", "?", verdict.outcome.answer, verifier="symbolic")
    assert verify(problem, "it is $0.5$") and not verify(problem, r"\boxed{2}")


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (boxed("7", "7"), boxed("7", "8"), "oracles: disagree"),  # one of four attempts
        (boxed("7", "8"), boxed("7", "8"), "oracles: disagree"),  # with itself
        (boxed("7", "7"), boxed("8", "8"), "oracles: disagree"),
        (boxed("7", "7"), ("7", r"\boxed{7}"), "oracles: no answer"),
        (("", ""), boxed("7", "7"), "oracles: no answer"),  # cut
        (boxed("]]]", "]]]"), boxed("]]]", "]]]"), "oracles: unreadable answer"),
    ],
)
def test_answers_that_do_not_all_agree_give_no_reference(
    first: tuple[str, str], second: tuple[str, str], reason: str
) -> None:
    verdict = settle(first, second)
    assert isinstance(verdict.outcome, Invalid) and verdict.outcome.reason == reason and verdict.attempts == 4
    assert len(verdict.answers) == 4


def test_only_what_follows_the_rules_is_asked_about_and_each_problem_once() -> None:
    domain = Maths(instruction="")
    other = "What is the sum of the first ten positive odd integers?"
    texts = [tagged(QUESTION), "nothing", tagged(other), tagged(QUESTION)]
    oracles = Scripted({other: boxed("100", "99")}), Scripted({other: boxed("100", "100")})
    candidates = read(domain, texts, Panel(oracles))
    assert [one.valid for one in candidates] == [True, False, False, True]
    assert [one.well_formed for one in candidates] == [True, False, True, True]
    assert (
        check_health(1, [Written("", one, 1) for one in candidates], 0.0, "words", CheckpointRule()).top_topic == 3 / 4
    )
    assert [one.oracle_attempts for one in candidates] == [4, 0, 4, 0] and [o.asked for o in oracles] == [4, 4]
    assert candidates[3].problem == candidates[0].problem and candidates[3].answers == ("55",) * 4
    assert Counter(one.invalid.reason for one in candidates if one.invalid) == {"unreadable": 1, "oracles: disagree": 1}
    assert candidates[2].invalid is not None and candidates[2].invalid.detail == "100 | 99 | 100 | 100"
    # Without oracles the rules decide; the id is the same.
    by_rules = read(domain, texts)
    assert [one.valid for one in by_rules] == [True, False, True, True]
    assert by_rules[0].problem is not None and by_rules[0].problem.id == candidates[0].problem.id  # type: ignore[union-attr]


def test_oracles_are_not_asked_about_texts_that_break_the_rules() -> None:
    oracle = Scripted({})
    assert Panel((oracle, oracle)).settle([]) == [] and read(Maths(), ["no"], Panel((oracle,)))[0].oracle_attempts == 0
    assert oracle.asked == 0


# A whole study. Oracles, solver and generator are real models, through the ordinary engine.


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    authors = {"writer": writer, "reliable": reliable, "peculiar": peculiar, "solver": solver}
    return {name: make_model(author, folder / name) for name, author in authors.items()}


def study_of(models: dict[str, str], folder: Path, **changes: Any) -> PropelConfig:
    short = {"max_response_tokens": 16}
    raw = {
        "name": "maths",
        "output": str(folder),
        "domain": {"maths": {"syntax": "plain", "instruction": "", "min_characters": 3}},
        "generator": {"model": {"path": models["writer"]}, "rollouts": {"num_rollouts": 4, **short}},
        "solver": {"model": {"path": models["solver"]}, "rollouts": {"num_rollouts": 4, **short}},
        "oracles": {
            name: {"model": {"path": models[name]}, "rollouts": {"num_rollouts": 2, "temperature": 0.3, **short}}
            for name in ("reliable", "peculiar")
        },
        "corpus": {"generations": 300, "chunk": 100},
        "activations": {"layers": [0], "poolings": ["mean_full"]},
        "sweep": {
            "heads": ["linear"],
            "split": {"validation": 0.3, "test": 0.3},
            "policy_samples": 16,
            "permutations": 1,
            "training": {"epochs": 5},
        },
        "training": {"steps": 2, "groups": 2, "save_every": 1, "rule": {"samples": 8}, "learner": {"lr": 1e-2}},
        "evaluation": {"generations": 60},
        "arms": {"probe": {}, "rules": {"reward": {"oracles": False}}},
        "threads": 1,
    }
    return study_config({**raw, **changes})


def test_a_study_of_texts_from_end_to_end(models: dict[str, str], tmp_path: Path) -> None:
    study = Study(study_of(models, tmp_path), 0)
    corpus = run_corpus(study)
    why = Counter(row.invalid for row in corpus.rows)
    assert all(why[reason] > 3 for reason in ("", "asks nothing", "oracles: disagree", "oracles: no answer")), why
    for row in corpus.rows:
        asked = not row.invalid or row.invalid.startswith("oracles: ")
        assert (
            (len(json.loads(row.oracle_answers)) == 4)
            if asked
            else (row.oracle_answers, row.oracle_attempts) == ("", 0)
        )
    sums = [(re.search(r"(?<!\d)(\d)\+(\d)\?$", row.text), row.answer) for row in corpus.labelled]
    right = [answer == f"\\boxed{{{int(one[1]) + int(one[2])}}}" for one, answer in sums if one is not None]
    assert len(right) > 40 and sum(right) >= 0.95 * len(right)
    different = {(row.id.split("/")[0], row.text) for row in corpus.rows if row.oracle_answers}
    spent = sum(row.oracle_attempts for row in corpus.rows)
    assert spent == 4 * len(different)
    assert load_corpus(study.corpus_folder, study.provenance, 300) == corpus

    sweep = run_sweep(study)
    assert sweep["costs"]["oracle_attempts"] == spent and sweep["costs"]["trials"] == 4 * sweep["costs"]["labelled"]
    for arm in ("probe", "rules"):
        run_training(study, arm)
    scores = {arm: run_evaluation(study, arm) for arm in ("base", "probe", "rules")}
    base = scores["base"]
    assert base["valid"] < base["well_formed"] < 1 and base["utility"] < base["utility_of_valid"]
    assert base["utility_of_valid"] * base["valid"] == pytest.approx(base["utility"])
    assert base["oracle_attempts"] > 0 and base["offline_oracle_attempts"] == base["online_oracle_attempts"] == 0
    assert scores["rules"]["online_oracle_attempts"] == 0 < scores["probe"]["online_oracle_attempts"]
    assert scores["probe"]["offline_oracle_attempts"] > scores["rules"]["offline_oracle_attempts"] > spent
    assert scores["probe"]["self_bleu_3"] != base["self_bleu_3"] != scores["rules"]["self_bleu_3"]
    assert "oracle attempts" in write_summary(study.config).read_text()


def test_a_killed_corpus_has_the_same_answers(models: dict[str, str], tmp_path: Path) -> None:
    study = Study(study_of(models, tmp_path), 0)
    whole = run_corpus(study)
    (study.corpus_folder / "part-00001.parquet").unlink()
    assert run_corpus(Study(study.config, 0)) == whole
    named = plain(study.config)["oracles"]
    other = Study(study_of(models, tmp_path, oracles={"reliable": named["reliable"]}), 0)
    with pytest.raises(UserError, match=says("oracles", "another name")):
        run_corpus(other)


def test_paths_of_oracles_and_examples_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "problems.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    paths = dict.fromkeys(("writer", "reliable", "peculiar", "solver"), "model")
    raw = plain(study_of(paths, tmp_path, domain={"maths": {"examples_path": "problems.jsonl"}}))
    OmegaConf.save(OmegaConf.create(raw), tmp_path / "study.yaml")
    config = load_study(tmp_path / "study.yaml")
    assert config.oracles["peculiar"].model.path == config.generator.model.path == str(tmp_path / "model")
    assert "one" in config.domain.part.prompt(Stream(0))
    assert study_config(plain(config)) == config


def test_a_study_says_what_is_wrong_with_its_oracles(tmp_path: Path) -> None:
    paths = dict.fromkeys(("writer", "reliable", "peculiar", "solver"), "experiments/starting_models/sums")

    def found(**changes: Any) -> PropelConfig:
        return study_of(paths, tmp_path, **changes)

    one = {"model": {"path": "experiments/starting_models/sums"}}
    assert found().oracles["reliable"].rollouts.num_rollouts == 2
    for changes, message in [
        ({"oracles": {}}, r"oracles: cannot be {}; tasks of maths have no answer; name two models"),
        ({"domain": "sums"}, r"oracles: cannot be \['peculiar', 'reliable'\]; sums has its own answers"),
        (
            {"domain": "sums", "oracles": {}},
            r"arms\.rules\.reward\.oracles: must be true, not False; this study defines no oracles",
        ),
        ({"oracles": {"a b": one}}, r"oracles: cannot be 'a b'; use letters"),
        ({"oracles": {"a": {}}}, r"oracles\.a\.model: missing"),
        ({"oracles": {"a": {**one, "rollout": {}}}}, r"oracles\.a\.rollout: unknown name 'rollout'"),
        (
            {"oracles": {"a": {**one, "rollouts": {"engine": "vlm"}}}},
            r"oracles\.a\.rollouts\.engine: unknown name 'vlm'",
        ),
        ({"oracles": {"a": {"model": {"lora": {"rank": 2}}}}}, r"oracles\.a\.model\.lora\.rank: cannot be 2; "),
        ({"arms": {"a": {"reward": {"kind": "solver", "oracles": False}}}}, r"arms\.a\.reward\.oracles"),
    ]:
        with pytest.raises(UserError, match=message):
            found(**changes)
