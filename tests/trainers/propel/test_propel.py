"""Corpus, rewards, generator training and evaluation, on the lab's sums with tiny models."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from messages import says
from propel_study import DOMAIN, TEXTS, FakeEngine
from pyarrow import parquet
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn, UserError
from halfway.curriculum.tasks.lab import sums
from halfway.experiments.starting_models.warm_start import build_tokenizer
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.propel.corpus import (
    PROVENANCE,
    Corpus,
    CorpusRow,
    build_corpus,
    costs,
    labelled_rows,
    load_corpus,
    surface,
    try_all,
)
from halfway.trainers.propel.domains.candidates import Candidate, read
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.generator_scores import (
    CheckpointHealth,
    check_health,
    choose_checkpoint,
    numeric_features,
    score_generator,
)
from halfway.trainers.propel.probes.activations import model_fingerprint
from halfway.trainers.propel.probes.heads import Probe, Site
from halfway.trainers.propel.propel_options import Band, CheckpointRule, CorpusOptions, GeneratorTraining, RewardOptions
from halfway.trainers.propel.rewards import ProbeReward, Reader, SolverReward, below_invalid, shape
from halfway.trainers.propel.rollouts import RewardedRollouts, prompt_set
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Author, Written, judge

EIGHT = np.arange(8)


@pytest.fixture(scope="module")
def lab_tokenizer() -> Any:
    """The lab's tokenizer, which has as many tokens as the tiny model."""
    return build_tokenizer()


class FakeSolver:
    """Passes as often as the sheet's first operand says; counts its trials."""

    def __init__(self) -> None:
        self.trials = 0

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        groups = []
        for request in requests:
            self.trials += request.num_rollouts
            passes = sums.parse(request.problem.prompt).operands[0]
            rollouts = tuple(rollout(i < passes) for i in range(request.num_rollouts))
            groups.append(Group(request, np.zeros(1, np.int32), rollouts))
        return groups


def rollout(success: bool, reward: float | None = None, tokens: int = 3) -> Rollout:
    zeros_T = np.zeros(tokens, np.float32)
    return Rollout((Turn(np.full(tokens, 5, np.int32), zeros_T, zeros_T, 0),), success, reward=reward)


def solver(attempts: int = 8) -> Solver:
    return Solver(FakeSolver(), attempts, Band())


def written(texts: Sequence[str]) -> list[Written]:
    return [Written("!", candidate, len(candidate.text)) for candidate in read(DOMAIN, texts)]


def author(tokenizer: Any, texts: Sequence[str] = TEXTS, cut: frozenset[str] = frozenset()) -> Author:
    return Author(FakeEngine(tokenizer, texts, cut), tokenizer, DOMAIN, 40)


# Writing.


def test_a_text_that_was_cut_is_invalid_whatever_it_says() -> None:
    cut, whole = judge(DOMAIN, ["", ""], [TEXTS[0], TEXTS[0]], [False, True], [8, 8])
    assert not cut.valid and cut.candidate.invalid == Invalid("not ended") and whole.valid


def test_texts_are_a_function_of_stream_and_number(lab_tokenizer: Any) -> None:
    one = author(lab_tokenizer)
    few, many = one.write(3, Stream(0)), one.write(12, Stream(0))
    assert [w.text for w in few] == [w.text for w in many[:3]]
    assert len({w.text for w in many}) > 3
    assert [w.text for w in one.write(12, Stream(1))] != [w.text for w in many]


# The corpus.


def make_corpus(tokenizer: Any, folder: Path, texts: Sequence[str] = TEXTS, **changes: Any) -> tuple[Corpus, Any, Any]:
    writer, rollouts = author(tokenizer, texts), FakeSolver()
    provenance = {"reference model": "me", "seed": 0, **changes}
    options = CorpusOptions(generations=20, chunk=8)
    corpus = build_corpus(writer, Solver(rollouts, 8, Band()), options, provenance, folder, Stream(0))
    return corpus, writer.engine, rollouts


def test_a_corpus_labels_every_different_valid_task_once(lab_tokenizer: Any, tmp_path: Path) -> None:
    corpus, _, rollouts = make_corpus(lab_tokenizer, tmp_path)
    assert len(corpus.rows) == 20 and [row.id for row in corpus.rows[7:10]] == ["0/7", "1/0", "1/1"]
    prompts = [row.problem for row in corpus.labelled]
    assert len(prompts) == len(set(prompts)) == len({row.text for row in corpus.rows if not row.invalid})
    for row in corpus.rows:
        assert row.passed == (sums.parse(row.text).operands[0] if row.labelled else -1)
        assert row.duplicate == (not row.invalid and not row.labelled)
        assert row.attempts == (8 if row.labelled else 0)
        assert (row.invalid == "unreadable") == (row.text == "nonsense")
    assert rollouts.trials == 8 * len(prompts) == sum(row.attempts for row in corpus.rows)


def test_a_finished_chunk_is_not_made_again(lab_tokenizer: Any, tmp_path: Path) -> None:
    whole, _, _ = make_corpus(lab_tokenizer, tmp_path)
    (tmp_path / "part-00001.parquet").unlink()
    again, engine, _ = make_corpus(lab_tokenizer, tmp_path)
    assert again == whole and engine.calls == 1
    assert load_corpus(tmp_path, whole.provenance, 20) == whole


def test_a_corpus_that_stands_for_very_much_is_not_unpacked(tmp_path: Path) -> None:
    names = [field.name for field in fields(CorpusRow)]
    long = pyarrow.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["y" * 100_000])
    table = pyarrow.table(dict.fromkeys(names, long)).replace_schema_metadata({PROVENANCE: "{}"})
    parquet.write_table(table, tmp_path / "part-00000.parquet")
    with pytest.raises(UserError, match=says("part-00000.parquet", "unpacks to more than 100 times its size")):
        load_corpus(tmp_path, {}, 1)


def test_a_corpus_of_another_reference_model_is_refused(lab_tokenizer: Any, tmp_path: Path) -> None:
    provenance = make_corpus(lab_tokenizer, tmp_path)[0].provenance
    with pytest.raises(UserError, match=says("part-00000.parquet", "reference model", "another name")):
        load_corpus(tmp_path, {"reference model": "you", "seed": 0}, 20)
    with pytest.raises(UserError, match=says("another seed")):
        make_corpus(lab_tokenizer, tmp_path, seed=1)
    with pytest.raises(UserError, match="20 of 30 texts"):
        load_corpus(tmp_path, provenance, 30)
    with pytest.raises(UserError, match=says("no corpus")):
        load_corpus(tmp_path / "nothing", provenance, 20)
    (tmp_path / "part-00000.parquet").write_text("no")
    with pytest.raises(UserError, match=says("part-00000.parquet", "damaged", "remove it")):
        load_corpus(tmp_path, provenance, 20)


def test_a_bit_flipped_in_a_corpus_is_one_line_or_changes_nothing(lab_tokenizer: Any, tmp_path: Path) -> None:
    made = make_corpus(lab_tokenizer, tmp_path)[0]
    file = tmp_path / "part-00000.parquet"
    whole = file.read_bytes()
    found = 0
    for place in range(4, len(whole) // 2, len(whole) // 40):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert load_corpus(tmp_path, made.provenance, 20) == made
        except UserError as error:
            found += 1
            assert str(error).startswith(f"{file}: is damaged") and "\n" not in str(error)
    assert found


def test_a_pool_without_a_valid_task_is_one_line(lab_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("corpus", "none of 20 texts", "20 times", "unreadable")):
        make_corpus(lab_tokenizer, tmp_path, ["nonsense"])


def test_one_class_only_is_one_line(lab_tokenizer: Any, tmp_path: Path) -> None:
    corpus, _, _ = make_corpus(lab_tokenizer, tmp_path, ["^1/0a4b1=", "^1/0a4b2="])
    with pytest.raises(UserError, match=says("2 labelled tasks")):
        labelled_rows(corpus, solver())


def test_costs_count_every_trial(lab_tokenizer: Any, tmp_path: Path) -> None:
    corpus, _, rollouts = make_corpus(lab_tokenizer, tmp_path)
    rows = labelled_rows(corpus, solver())
    account = costs(corpus, rows, trained=2, discarded=1)
    assert account.trials == rollouts.trials and account.trials_of_probe == 16 and account.trials_discarded == 8
    assert account.labelled == len(corpus.labelled) and account.positives == rows.labels_N.sum() > 0
    assert account.generations == 20 and account.valid >= account.labelled


def test_surface_features_are_those_of_the_labelled_tasks(lab_tokenizer: Any, tmp_path: Path) -> None:
    corpus, _, _ = make_corpus(lab_tokenizer, tmp_path)
    found = surface(corpus, ("length", "topic", "lines"))
    assert found["length"].tolist() == [len(row.text) for row in corpus.labelled]
    assert found["lines"].tolist() == [len(sums.parse(row.text).operands) for row in corpus.labelled]
    with pytest.raises(UserError, match=says("sweep.surface", "'colour'", "feature")):
        surface(corpus, ("colour",))


def test_a_band_holds_the_pass_counts_between_its_ends() -> None:
    assert Band().counts(8) == (1, 3) and [Band().holds(k, 8) for k in range(5)] == [False, True, True, True, False]
    third = Band(1 / 3, 2 / 3)
    assert third.counts(3) == (1, 2) and [third.holds(k, 3) for k in range(4)] == [False, True, True, False]
    with pytest.raises(UserError, match=r"solver\.band"):
        Band(0.5, 0.25)


# Rewards.


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("probe_only", [1 / (1 + np.exp(3)), 0.5, 1 / (1 + np.exp(-4)), -0.2]),
        ("soft", [0.1, -0.2, 0.95, -0.2]),
        ("hard", [-3.0, -0.2, 4.0, -0.2]),
    ],
)
def test_rewards_by_hand(kind: Any, expected: list[float]) -> None:
    logits_N, valid_N = np.asarray([-3.0, 0.0, 4.0, np.nan]), np.asarray([True, False, True, False])
    assert np.allclose(shape(logits_N, valid_N, RewardOptions(kind=kind)), expected)


def test_a_valid_task_can_rank_below_an_invalid_one_and_the_margin_prevents_it() -> None:
    logits_N, valid_N = np.asarray([-3.0, 0.0, 4.0, -0.1]), np.asarray([True, False, True, True])
    plain, mended = RewardOptions(), RewardOptions(margin=0.5)
    assert below_invalid(shape(logits_N, valid_N, plain), valid_N, plain) == pytest.approx(1 / 3)
    rewards_N = shape(logits_N, valid_N, mended)
    assert rewards_N.tolist() == [-3.0, -3.5, 4.0, -0.1] and below_invalid(rewards_N, valid_N, mended) == 0
    all_valid_N = np.ones(4, bool)
    assert below_invalid(shape(logits_N, all_valid_N, plain), all_valid_N, plain) == 1 / 4  # -0.2 it would have been
    assert below_invalid(shape(logits_N, all_valid_N, mended), all_valid_N, mended) == 0
    high_N = np.asarray([2.0, 3.0, 4.0, 5.0])  # invalid never gets more than it would without the margin
    assert shape(high_N, valid_N, mended)[1] == -0.2


def reader(model: Qwen3ForCausalLM, tokenizer: Any) -> Reader:
    return Reader(model, tokenizer, "me", 64, 4096)


def probes(number: int, width: int = 32) -> tuple[tuple[Probe, Site], ...]:
    made = []
    for i in range(number):
        torch.manual_seed(i)
        made.append((Probe("linear", width).eval(), Site(i % 2, "mean_full" if i % 2 else "last_token", "me")))
    return tuple(made)


def test_the_worst_case_is_the_lowest_logit(tiny_model: Qwen3ForCausalLM, lab_tokenizer: Any) -> None:
    several, two = written(TEXTS), probes(2)
    read_by = reader(tiny_model, lab_tokenizer)
    single = [ProbeReward(read_by, (one,), RewardOptions())(several, Stream(0)) for one in two]
    both = ProbeReward(read_by, two, RewardOptions(ensemble=2))(several, Stream(0))
    assert np.allclose(both, np.minimum(*single)) and not np.allclose(*single)
    assert both[3] == -0.2


def test_the_reward_depends_on_the_task_and_the_reference_alone(
    tiny_model: Qwen3ForCausalLM, lab_tokenizer: Any
) -> None:
    policy, reference = tiny_model, copy.deepcopy(tiny_model)
    reward = ProbeReward(reader(reference, lab_tokenizer), probes(2), RewardOptions())
    several = written(TEXTS)
    before, stamp = reward(several, Stream(0)), model_fingerprint(reference)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += torch.randn_like(parameter)
    assert np.array_equal(reward(several, Stream(1)), before)  # nor on the stream
    assert np.allclose(reward(several[::-1], Stream(0))[::-1], before, atol=1e-5)  # nor on the batch
    assert np.allclose(reward(several[:1], Stream(0)), before[:1], atol=1e-5)
    assert model_fingerprint(reference) == stamp
    with torch.no_grad():
        reference.model.layers[0].mlp.down_proj.weight += 0.5
    assert not np.allclose(reward(several, Stream(0)), before)


def test_a_text_without_anything_to_read_is_invalid(tiny_model: Qwen3ForCausalLM, lab_tokenizer: Any) -> None:
    reward = ProbeReward(reader(tiny_model, lab_tokenizer), probes(1), RewardOptions(kind="probe_only"))
    rewards_N = reward(written(["", "nonsense", TEXTS[0]]), Stream(0))
    assert rewards_N[0] == -0.2 and 0 < rewards_N[1] < 1 and 0 < rewards_N[2] < 1


def test_the_solvers_reward_is_the_band() -> None:
    reward = SolverReward(solver(), RewardOptions(kind="solver"))
    assert reward(written(TEXTS), Stream(0)).tolist() == [1.0, 1.0, 0.0, -0.2, 1.0, 0.0]
    assert reward.trials == 8


def test_the_reader_reads_prompt_and_text(tiny_model: Qwen3ForCausalLM, lab_tokenizer: Any) -> None:
    reading = reader(tiny_model, lab_tokenizer).reading("a", "!?", "a1b2")
    assert lab_tokenizer.decode(reading.tokens_T.tolist()) == "!?a1b2" and reading.start == 2


# Training on rewards.


def test_advantages_are_made_of_rewards_where_there_are_any() -> None:
    request = Request(Problem("p", "", ""), 4)
    rewards = [2.0, -1.0, 0.5, -0.2]
    group = Group(request, np.ones(1, np.int32), tuple(rollout(r > 0, r) for r in rewards))
    options = LearnerOptions(advantage="mean", divide_by_std=True)
    found = [sequence.advantage for sequence in make_batch([group], options).sequences]
    expected = (np.asarray(rewards) - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-4)
    assert np.allclose(found, expected) and group.num_passed == 2
    plain = Group(request, np.ones(1, np.int32), tuple(rollout(r > 0) for r in rewards))
    binary = [sequence.advantage for sequence in make_batch([plain], LearnerOptions(advantage="mean")).sequences]
    assert binary == [0.5, -0.5, 0.5, -0.5]


class Drawn:
    """Rollouts with given texts, the last of them cut."""

    def __init__(self, tokenizer: Any, texts: Sequence[str]):
        self.tokenizer, self.texts = tokenizer, texts

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        made, groups = iter(self.texts), []
        for request in requests:
            rollouts = []
            for _ in range(request.num_rollouts):
                tokens_T = np.asarray(self.tokenizer.encode(next(made), add_special_tokens=False), np.int32)
                zeros_T = np.zeros(len(tokens_T), np.float32)
                rollouts.append(Rollout((Turn(tokens_T, zeros_T, zeros_T, 0),), True))
            groups.append(Group(request, np.ones(1, np.int32), tuple(rollouts)))
        last = replace(groups[-1].rollouts[-1], truncated=True)
        return [*groups[:-1], replace(groups[-1], rollouts=(*groups[-1].rollouts[:-1], last))]


def test_a_generators_rollout_succeeds_if_it_is_valid(lab_tokenizer: Any) -> None:
    options = RewardOptions(kind="solver")
    rewarded = RewardedRollouts(
        Drawn(lab_tokenizer, TEXTS), lab_tokenizer, DOMAIN, SolverReward(solver(), options), options
    )
    [problem] = prompt_set(DOMAIN, 5, Stream(0))
    assert problem.prompt == "!"
    groups = rewarded.run([Request(problem, 3)] * 2, Stream(0))
    outcomes = [(r.success, r.reward) for group in groups for r in group.rollouts]
    invalid = (False, -0.2)
    assert outcomes == [(True, 1.0), (True, 1.0), (True, 0.0), invalid, (True, 1.0), invalid]
    metrics = rewarded.metrics
    assert metrics["tasks/valid"] == pytest.approx(4 / 6) and metrics["tasks/solver_trials"] == 32
    assert metrics["tasks/parsed"] == pytest.approx(4 / 6)  # one is not a sheet, one was cut
    assert metrics["tasks/top_topic"] == pytest.approx(3 / 6) and metrics["reward/valid_mean"] == pytest.approx(3 / 4)


# Evaluation.


def test_a_generators_scores_by_hand() -> None:
    rows = try_all(written([*TEXTS, TEXTS[0]]), solver(), Stream(0))
    scores = score_generator(rows, 8, Band(), "characters")
    assert scores.generations == 7 and scores.utility == pytest.approx(4 / 7)  # 1, 2, 3 and again 1 of 8
    assert scores.valid == pytest.approx(6 / 7) and scores.too_easy == pytest.approx(2 / 7) and scores.too_hard == 0
    assert scores.solve_counts == (0, 2, 1, 1, 2, 0, 0, 0, 0) and scores.trials == 48
    assert scores.top_topic == pytest.approx(4 / 7) and scores.different == pytest.approx(6 / 7)


def test_numeric_features_of_valid_tasks_have_mean_and_median() -> None:
    rows = try_all(written(TEXTS[:4]), solver(), Stream(0))
    facts = [{"failing": 1, "kind": "name"}, {"failing": 2}, {"failing": 6, "line": 2}, {"failing": 90}]
    rows = [replace(row, features=json.dumps(fact)) for row, fact in zip(rows, facts, strict=True)]
    valid = [replace(row, invalid="") for row in rows[:3]] + [replace(rows[3], invalid="unreadable")]
    assert numeric_features(valid) == {"failing": {"mean": 3.0, "median": 2.0}, "line": {"mean": 2.0, "median": 2.0}}


def test_the_rule_takes_the_last_checkpoint_without_an_alert() -> None:
    checked = [
        CheckpointHealth(10, 1, 1, 1, ()),
        CheckpointHealth(20, 1, 1, 1, ()),
        CheckpointHealth(30, 1, 1, 1, ("min_valid",)),
    ]
    assert choose_checkpoint(checked).step == 20
    alarmed = [
        CheckpointHealth(10, 0, 1, 0, ("min_valid",)),
        CheckpointHealth(20, 0, 1, 0, ("min_valid", "min_distinct")),
    ]
    assert choose_checkpoint(alarmed).step == 10
    rule = CheckpointRule(min_valid=0.9, max_top_topic=0.3, min_distinct=0.5)
    assert check_health(10, written(TEXTS), 1.0, "characters", rule).alerts == ("min_valid", "max_top_topic")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RewardOptions(ensemble=0), r"reward\.ensemble: .*0"),
        (lambda: RewardOptions(kind="solver", ensemble=2), r"reward\.kind: .*'solver'"),
        (lambda: RewardOptions(margin=-1), r"reward\.margin"),
        (lambda: CorpusOptions(generations=0), r"corpus\.generations"),
        (lambda: GeneratorTraining(steps=-1), r"training\.steps"),
        (lambda: CheckpointRule(min_valid=2), r"training\.rule\.min_valid"),
    ],
)
def test_options_refuse_what_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_rows_are_plain(lab_tokenizer: Any, tmp_path: Path) -> None:
    corpus, _, _ = make_corpus(lab_tokenizer, tmp_path)
    assert all(json.loads(row.features) for row in corpus.labelled)
    assert Candidate("x", None, None, Invalid("no"), "").valid is False
