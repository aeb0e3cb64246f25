"""Bugs written by a scripted author and tried by a scripted solver: labels, lookups, folds, turns, the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from repositories import Letters
from sandboxes import needs_sandbox
from transformers import Qwen3Config, Qwen3ForCausalLM

from halfway.curriculum import Group, Request, Rollout, Stream, Turn, UserError
from halfway.curriculum.lab.micro.bugs_domain import Bugs
from halfway.trainers.engines.base import Completion
from halfway.trainers.probes.activations import read
from halfway.trainers.probes.options import ActivationOptions
from halfway.trainers.probes.splits import group_folds
from halfway.trainers.probes.surface import lookups
from halfway.trainers.propel.corpus import Corpus, best_kind, build_corpus, groups_of, labelled_rows, surface
from halfway.trainers.propel.options import Band, CorpusOptions
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Author, Mutator

DOMAIN = Bugs(repositories=10)
THIRDS = Band(1 / 3, 2 / 3)


@dataclass
class ScriptedAuthor:
    """Reads the repository in its prompt, and writes a mutation of it; every eighth text is no Python."""

    serves_all = False
    replicas = 1

    def generate(self, contexts: Sequence[Any], limits: Sequence[int], seeds: Sequence[int]) -> list[Completion]:
        prompts = ["".join(map(chr, context)) for context in contexts]
        texts = [DOMAIN.mutation(prompt, Stream(seed)) for prompt, seed in zip(prompts, seeds, strict=True)]
        texts = [text[:-1] if seed % 8 == 0 else text for text, seed in zip(texts, seeds, strict=True)]
        tokens = [np.asarray([*map(ord, text)], np.int32) for text in texts]
        return [Completion(T, np.zeros(len(T), np.float32), np.zeros(len(T), np.float32), "end", 0) for T in tokens]

    def sync(self, policy: Any, version: int) -> None: ...


@dataclass
class ScriptedSolver:
    """Mends two of three bugs in operators, none else; of the bugs in h it loses an attempt."""

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        return [group(request, 2 if request.problem.features["kind"] == "operator" else 0) for request in requests]


def group(request: Request, passes: int) -> Group:
    lost = request.problem.features["function"] == "h"
    size = request.num_rollouts - lost
    zeros_T = np.zeros(1, np.float32)
    turn = Turn(np.ones(1, np.int32), zeros_T, zeros_T, 0)
    rollouts = tuple(Rollout((turn,), i < passes - lost) for i in range(size))
    return Group(request, np.zeros(1, np.int32), rollouts, dropped={"lost": 1} if lost else {})


AUTHOR = Author(ScriptedAuthor(), Letters(), DOMAIN, 40)
SOLVER = Solver(ScriptedSolver(), 3, THIRDS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    return build_corpus(AUTHOR, SOLVER, CorpusOptions(generations=150, chunk=150), {}, folder, Stream(0))


@needs_sandbox
def test_labels_are_the_band_of_trials_that_ended(corpus: Corpus) -> None:
    kinds = surface(corpus, ["kind", "function"])
    rows = labelled_rows(corpus, SOLVER, "repository")
    assert rows.labels_N.tolist() == (kinds["kind"] == "operator").tolist()
    assert {"h", "f"} <= set(kinds["function"]) and 0 < rows.labels_N.sum() < len(rows.labels_N)
    reasons = {row.invalid for row in corpus.rows} - {""}
    assert "says something else" in reasons  # a text cut short no longer makes the change that its message names
    assert reasons <= {"says something else", "no test fails", "no test passes"}
    assert all(row.topic in ("m.py", "n.py") for row in corpus.labelled)


@pytest.mark.parametrize(
    ("passed", "ended", "count"),
    [(1, 3, 1), (3, 3, 3), (0, 2, 0), (2, 2, 3), (1, 2, 2), (0, 1, -1), (1, 1, -1), (0, 0, -1)],
)
def test_lost_trials_are_neither_passes_nor_failures(passed: int, ended: int, count: int) -> None:
    assert SOLVER.count(passed, ended) == count
    assert SOLVER.useful(count) == (ended >= 2 and 0 < passed < ended)


@needs_sandbox
def test_no_repository_is_in_two_parts_of_a_fold(corpus: Corpus) -> None:
    rows = labelled_rows(corpus, SOLVER, "repository")
    assert len(set(rows.groups_N)) == 10
    folds = group_folds(rows.labels_N, rows.groups_N, 5, 0)
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(len(rows.labels_N)))
    for fold in folds:
        parts = [set(rows.groups_N[part]) for part in fold]
        assert all(parts) and not (parts[0] & parts[1] or parts[1] & parts[2] or parts[0] & parts[2])
    assert set(groups_of(corpus.labelled, "topic")) == {"m.py", "n.py"}
    with pytest.raises(UserError, match=r"^sweep\.split\.by: 'author' is no feature of these tasks; choose from "):
        groups_of(corpus.labelled, "author")


@needs_sandbox
def test_a_lookup_by_kind_knows_what_depends_on_the_kind_alone(corpus: Corpus) -> None:
    rows = labelled_rows(corpus, SOLVER, "repository")
    split = group_folds(rows.labels_N, rows.groups_N, 5, 0)[0]
    probe_M = np.random.default_rng(0).normal(size=len(split.test))
    best, other = lookups(surface(corpus, ["kind", "repository"]), rows.labels_N, split, probe_M)
    assert (best.feature, best.test.balanced_accuracy) == ("kind", 1.0)
    # No repository of the test rows is among the training rows, so a lookup by repository knows nothing.
    assert (other.feature, other.test.balanced_accuracy) == ("repository", 0.5) and best.probe_gain < 0


@needs_sandbox
def test_the_lookup_is_of_the_kind_that_was_useful_most_often(corpus: Corpus) -> None:
    assert best_kind(corpus, SOLVER, DOMAIN.kinds) == "operator"  # which the scripted solver mends, and no other
    written = Mutator(DOMAIN, "operator").write(20, Stream(5))
    assert {one.candidate.task.kind for one in written if one.candidate.task} == {"operator"}
    assert best_kind(corpus, SOLVER, ("name", "constant")) in ("name", "constant")
    prompt = written[0].prompt
    assert DOMAIN.mutation(prompt, Stream(1), "compare") == DOMAIN.mutation(prompt, Stream(1))  # it has no such place


@needs_sandbox
def test_the_baseline_mutates_what_the_author_would_be_shown() -> None:
    mutated, written = Mutator(DOMAIN).write(40, Stream(5)), AUTHOR.write(40, Stream(5))
    assert [one.prompt for one in mutated] == [one.prompt for one in written]
    assert {one.candidate.task.kind for one in mutated if one.candidate.task} <= {
        *("operator", "name", "constant", "compare")
    }
    assert sum(one.valid for one in mutated) > 10 and {one.num_tokens for one in mutated} == {0}
    assert Mutator(DOMAIN).write(40, Stream(5)) == mutated


def test_a_bug_is_read_turn_by_turn() -> None:
    """Function, line, old text, message and new text are five turns, whose vectors are pooled as the paper's."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "head_dim": 8,
    }
    config = Qwen3Config(vocab_size=128, num_key_value_heads=1, max_position_embeddings=256, **sizes)
    model = Qwen3ForCausalLM(config).eval()
    whole, turned = (Reader(model, Letters(), "", 4096, 4096, turns=turns) for turns in (None, DOMAIN.turns))
    prompt, text = next(iter(DOMAIN.known)), "f2return c-3|-+|return c+3"
    one, trajectory = (reader.reading("x", prompt, text) for reader in (whole, turned))
    start = len(prompt)
    assert one.tokens_T.tolist() == trajectory.tokens_T.tolist() == [*map(ord, prompt + text)]
    assert one.spans == ((start, start + 26),)
    ends = [start, start + 1, start + 2, start + 13, start + 16, start + 26]  # a stroke belongs to the turn before it
    assert trajectory.spans == tuple(pairwise(ends))
    names = ("last_token", "first_last_concat", "mean_last_3")
    pooled = read(model, [trajectory], ActivationOptions((1,), names, "last_token"))
    tokens = read(model, [one], ActivationOptions((1,), ("last_token",)))
    assert np.allclose(pooled[1, "last_token"], tokens[1, "last_token"], atol=1e-6)  # the last turn's last token
    assert pooled[1, "first_last_concat"].shape == (1, 32) and pooled[1, "mean_last_3"].shape == (1, 16)
    assert not np.allclose(pooled[1, "mean_last_3"], pooled[1, "last_token"], atol=1e-3)
    assert turned.reading("y", prompt, "nonsense").spans == ((start, start + 8),)
