"""Advice on small logs that a simulated learner wrote: what is played, what is refused, and what is said."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

import halfway
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Problem, ProblemSet, chain
from halfway.curriculum.decision_log import group_record
from halfway.curriculum.session import Session
from halfway.curriculum.simulation.attempts import SkillRollouts
from halfway.curriculum.simulation.skills import Course, Dynamics, Lessons, SkillLearner, bumps, lessons
from halfway.curriculum.streams import Stream
from halfway.experiments.advice.candidates import BASELINE, Candidate, candidates, describing, of_arms, refusal
from halfway.experiments.advice.logs import of_history, read_run
from halfway.experiments.advice.play import Setting, play
from halfway.experiments.advice.ranking import Advice, advise
from halfway.experiments.advice.telling import NOT_ENOUGH, fit_lines, ranking_table, recipe, sentence
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.trainers.loop.options import FillOptions

SIZE, GROUPS = 8, 8
PLAIN = Candidate(BASELINE, (BASELINE,))


def learner_of(count: int, dynamics: Dynamics, seed: int = 0) -> SkillLearner:
    ease = np.random.default_rng(seed).normal(-1, 2, count)
    return SkillLearner(Course.of(ease, bumps(np.argsort(np.argsort(ease)) / count, 8)), dynamics, seed)


def log_of(path: Path, steps: int, dynamics: Dynamics, count: int = 48) -> Path:
    """The decision log of uniform draws."""
    learner, problems = learner_of(count, dynamics), ProblemSet([Problem(f"p{i:03}", "", "") for i in range(count)])
    session = Session(problems, chain(("uniform", Uniform())), SIZE)
    lines = []
    for step in range(steps):
        tickets = session.next_batch(GROUPS)
        groups = SkillRollouts(learner, problems, tokens=False).run([t.request for t in tickets], Stream(step))
        for ticket, group in zip(tickets, groups, strict=True):
            session.record_group(ticket.id, group)
            lines.append(json.dumps(group_record(group, step, 0, "degenerate" if group.degenerate else "trained")))
        session.commit()
        where = np.array([problems.position(group.request.problem.id) for group in groups])
        told = lessons(np.array([group.num_passed for group in groups]), np.full(GROUPS, SIZE))
        learner.update(where[None], Lessons(told.signal[None], told.energy[None], told.tokens[None]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_of(tmp_path_factory.mktemp("log") / "decisions.jsonl", 40, Dynamics(rate=0.15))


def test_a_log_becomes_evidence_group_by_group(log: Path):
    run = read_run(log)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert (run.num_rollouts, run.groups, run.rollouts) == (SIZE, GROUPS, 40 * GROUPS * SIZE)
    assert run.evidence.passed_G.tolist() == [record["k"] for record in records]
    assert [run.problems[i].id for i in run.evidence.problem_G] == [record["problem"] for record in records]
    trained = sum(record["outcome"] == "trained" for record in records)
    assert run.trained_share == pytest.approx(trained / len(records))
    assert run.config is None and run.notes


def test_without_learning_every_chain_stays_where_it_began():
    problems = ProblemSet([Problem(f"p{i}", "", "") for i in range(20)])
    for entries in (("uniform",), ("mopps",), ("prefix_sampling", "uniform")):
        learner = learner_of(20, Dynamics(rate=0.0))
        played = play(Candidate("x", entries).chain(), problems, learner, FillOptions(groups=4), Setting(8, 0, 640))
        assert played.rollouts == 640 and played.steps == 20
        assert played.scores == (played.scores[0],) * 7


def test_costs_count_what_is_generated_and_what_trains():
    problems = ProblemSet([Problem(f"p{i}", "", "") for i in range(20)])
    rho, budget = 0.5, 600.0
    learner = learner_of(20, Dynamics())
    played = play(PLAIN.chain(), problems, learner, FillOptions(groups=4), Setting(8, 0, budget, "cost", rho))
    assert played.generated == played.rollouts and played.trained == 8 * played.trained_groups
    last = 4 * SIZE * (1 + rho)
    assert budget <= played.generated + rho * played.trained < budget + last


def test_where_nothing_beats_plain_grpo_advice_says_so(log: Path):
    """A second name for the plain chain is never ahead of it."""
    run = read_run(log)
    found = advise(run, [PLAIN, Candidate("same", (BASELINE,))], Setting(8, 0, run.rollouts), draws=3)
    assert sentence(found).startswith("stay with plain GRPO")
    assert {row.ahead for row in found.rows} == {0.0}
    assert len(ranking_table(found).rows) == 2
    text = recipe(PLAIN, found, log)
    assert "controllers:\n- uniform\n" in text and "num_rollouts: 8" in text


def test_a_chain_that_throws_its_rollouts_away_comes_last(log: Path):
    wasteful = Candidate("wasteful", ("uniform",), {"policy": "refill", "groups": 2, "request_groups": 24})
    run = read_run(log)
    found = advise(run, [PLAIN, wasteful], Setting(8, 0, run.rollouts), draws=3)
    assert [row.candidate.name for row in found.rows] == [BASELINE, "wasteful"]
    assert found.clear is None


def test_what_a_log_lacks_is_said(tmp_path: Path):
    short = read_run(log_of(tmp_path / "short.jsonl", 4, Dynamics()))
    found = advise(short, [PLAIN], Setting(8, 0, 100))
    assert sentence(found).startswith(NOT_ENOUGH) and "log at least 200" in sentence(found)
    still = read_run(log_of(tmp_path / "still.jsonl", 30, Dynamics(rate=0.0)))
    assert "hardly change" in sentence(advise(still, [PLAIN], Setting(8, 0, 100)))


def test_who_cannot_be_played_is_told_why():
    problems = ProblemSet([Problem("a", "", "")])
    reasons = {candidate.name: refusal(candidate, problems) for candidate in candidates(8)}
    assert {name for name, why in reasons.items() if not why} >= {
        "uniform",
        "greso",
        "prefix_sampling",
        "pros",
        "refill",
    }
    assert "reference solution" in reasons["hints"] and "difficulty" in reasons["servo"]
    assert "what a new problem would teach" in reasons["variants"]


def test_frontier_knows_problems_by_what_describes_them():
    def of(problems: ProblemSet) -> dict[str, tuple[object, ...]]:
        return {each.name: each.controllers for each in candidates(8, problems)}

    words = [Problem(f"p{i}", "", "", features={"key": f"p{i}", "skill": "ab"[i % 2], "lines": i}) for i in range(16)]
    assert describing(ProblemSet(words)) == ("lines", "skill")  # each key stands for one problem
    frontier = {"frontier": {"features": ["lines", "skill"]}}
    chains = of(ProblemSet(words))
    assert chains["frontier"] == (frontier,) and chains["replay_frontier"] == ("replay", frontier)
    for name in ("frontier", "replay_frontier"):
        assert refusal(Candidate(name, chains[name]), ProblemSet(words)) == ""
    sorted_ = ProblemSet([replace(p, features={**p.features, "category": "ab"[i % 2]}) for i, p in enumerate(words)])
    assert of(sorted_)["frontier"] == ("frontier",)
    bare = ProblemSet([Problem("a", "", "")])
    assert refusal(Candidate("frontier", of(bare)["frontier"]), bare) == (
        "it needs the feature 'category' of every problem; known here: none"
    )


def test_every_recipe_is_a_run_and_a_chain_for_a_host(log: Path, tmp_path: Path):
    """Beside a configuration a recipe is a whole run; without one it says what a host has to be told."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "decisions.jsonl").write_bytes(log.read_bytes())
    (folder / "config.yaml").write_text(f"base: {REPOSITORY}/experiments/lab/grpo.yaml\n")
    runs = {folder: read_run(folder), log: read_run(log)}
    assert runs[folder].config is not None and runs[log].config is None
    rich = ProblemSet([Problem("a", "", "", features={"category": "x", "difficulty": 1.0}, solution="1")])
    chains = [each for each in candidates(GROUPS, rich) if not refusal(each, rich)]
    assert {"hints", "replay_frontier", "hints_replay_retire", "servo", "refill"} <= {each.name for each in chains}
    for place, run in runs.items():
        advice = Advice(run, Setting(SIZE, 0, 100), None, (), {}, (), {})
        for chain_ in chains:
            path = tmp_path / "recipe.yaml"
            path.write_text(recipe(chain_, advice, place))
            assert set(halfway.from_yaml(path).members) == set(chain_.chain().members), chain_.name
            if run.config is not None:
                config = load_run_config(path)
                assert config.name == f"advised_{chain_.name}"
                assert (config.fill.policy == "refill") == (chain_.name in ("refill", "refill_adaptive"))


def test_the_nearest_chain_is_written_down_where_none_is_clear(log: Path, tmp_path: Path):
    (tmp_path / "arms.yaml").write_text(
        f"base: {{base: {REPOSITORY}/experiments/lab/grpo.yaml}}\nseeds: [0]\nbudget: {{steps: 1}}\n"
        "arms: {uniform: {}, more: {controllers: [replay, uniform]}}\n"
    )
    words = ["advise", str(log), "--arms", str(tmp_path / "arms.yaml"), "--draws", "2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "out" / "advice.json").read_text())
    if told["advice"].startswith("stay"):
        assert list(halfway.from_yaml(tmp_path / "out" / "advice.yaml").members) == ["uniform"]
        assert list(halfway.from_yaml(tmp_path / "out" / "nearest.yaml").members) == ["replay", "uniform"]
    assert [row["candidate"] for row in told["rows"]] == ["more", "uniform"]


def test_equal_reasons_are_told_once(log: Path):
    run = read_run(log)
    chains = [PLAIN, *(each for each in candidates(GROUPS, run.problems) if each.name in ("downsample", "signal"))]
    lines = fit_lines(advise(run, chains, Setting(8, 0, 200), draws=2))
    assert lines[-1].startswith("not played: downsample, signal: the simulation knows outcomes")


def test_arms_of_a_comparison_are_candidates():
    found = of_arms({"grpo": {}, "skips": {"controllers": ["uniform", "greso"], "fill": {"policy": "refill"}}})
    assert [candidate.controllers for candidate in found] == [("uniform",), ("uniform", "greso")]
    assert found[1].filling(4).policy == "refill"
    with pytest.raises(Exception, match="learner"):
        of_arms({"faster": {"learner": {"lr": 1}}})


def test_an_audited_log_is_evidence_too(log: Path):
    class History:
        problems, category_P = ("a", "b"), ("easy", "")
        problem_V, step_V = np.array([1, 0, 1]), np.array([7, 6, 8])
        passed_V, size_V = np.array([8, 3, 2]), np.array([8, 8, 8])
        silent_V, fresh_V = np.array([True, False, False]), np.ones(3, np.bool_)
        outcome_V = np.array([-1, -1, 0], np.int8)

    run = of_history(History())
    assert run.evidence.problem_G.tolist() == [0, 1, 1] and run.evidence.step_G.tolist() == [0, 1, 2]
    assert run.evidence.trained_G.tolist() == [True, False, True]
    assert run.problems[0].features == {"category": "easy"}


def test_a_file_that_is_no_log_is_one_line(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"step": 1}\n')
    done = CliRunner().invoke(app, ["advise", str(path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2 and done.output.count("\n") == 1 and "its lines are no groups" in done.output
