"""Pools for solver training: the rate probe, what is exported, and what is refused."""

from typing import Any

import numpy as np
import pytest
from paths import REPOSITORY
from propel_study import finish, tiny
from typer.testing import CliRunner

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks.files import Pool
from halfway.experiments.cli import app
from halfway.experiments.propel.config import prepare
from halfway.experiments.propel.export import export_pool, export_problems, rate_probe
from halfway.experiments.propel.study import Study
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.sheets import Sums
from halfway.trainers.propel.pool import read_provenance
from halfway.trainers.propel.probes.options import ProbeTraining
from halfway.trainers.propel.probes.rates import fit_rates, score_rates
from halfway.trainers.propel.probes.splits import random_split
from halfway.trainers.propel.solver import Solver

RECIPES = REPOSITORY / "experiments" / "recipes"
POOLS = ("generated", "sheets")


def test_a_rate_probe_finds_the_log_odds() -> None:
    """Counts are binomial, the log-odds linear in the features; the best guess is the truth."""
    rng = np.random.default_rng(0)
    features_ND = rng.normal(0, 1, (1500, 3)).astype(np.float32)
    logits_N = 1.2 * features_ND[:, 0] - 0.8 * features_ND[:, 2] - 0.5
    truth_N = 1 / (1 + np.exp(-logits_N))
    passed_N = rng.binomial(8, truth_N)
    split = random_split(passed_N > 4, seed=0)
    probe = fit_rates(features_ND, passed_N, 8, split, "linear", ProbeTraining(lr=1e-2, epochs=60), seed=0)
    found_N = probe.logits(features_ND)
    assert np.abs(found_N - logits_N).mean() < 0.12
    scores = score_rates(found_N, passed_N / 8, 8, split)
    assert scores.rows == len(split.test) and scores.spearman > 0.8
    assert scores.error == pytest.approx(scores.sampling_error, abs=0.02) and scores.error < 0.75 * scores.error_of_mean


@pytest.mark.parametrize("intercept", [-2.5, 1.5])
def test_a_rate_probe_knows_how_rare_a_pass_is(intercept: float) -> None:
    """Equal class weights in calibration would pull every guess toward one half, by .06 and more."""
    rng = np.random.default_rng(0)
    features_ND = rng.normal(0, 1, (1500, 3)).astype(np.float32)
    truth_N = 1 / (1 + np.exp(-(features_ND[:, 0] + intercept)))
    passed_N = rng.binomial(8, truth_N)
    split = random_split(passed_N > 4, seed=0)
    probe = fit_rates(features_ND, passed_N, 8, split, "linear", ProbeTraining(lr=1e-2, epochs=60), seed=0)
    assert np.abs(1 / (1 + np.exp(-probe.logits(features_ND))) - truth_N).mean() < 0.02


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    config = tiny(tmp_path_factory.mktemp("pools"), "export.texts=40", "seeds=[0]")
    finish(Study(config, 0))
    return Study(config, 0)


def test_an_export_holds_each_valid_task_once_with_a_guessed_rate(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("an export calls no solver")

    monkeypatch.setattr(Solver, "passes", refuse)
    file, number = export_pool(study, "probe")
    problems = Pool(str(file)).load(None, Stream(0)).problems
    about = read_provenance(file)
    assert len(problems) == number and number + sum(about["left out"].values()) == 40
    assert about["reference model"] == study.reference and about["arm"] == "probe" and about["probe"]["rows"] > 0
    domain = study.domain
    assert all(candidate.valid for candidate in read(domain, [problem.prompt for problem in problems]))
    assert len({problem.prompt for problem in problems}) == number
    rates = [float(problem.features["probed_rate"]) for problem in problems]
    assert all(0 < rate < 1 for rate in rates) and {p.features["probed_by"] for p in problems} == {study.reference}
    before = file.read_bytes()
    export_pool(study, "probe")
    assert file.read_bytes() == before
    # The data set's own problems get the guesses that the same texts of a generator get.
    again, _ = export_problems(study, "same", list(problems))
    guessed = {p.id: p.features["probed_rate"] for p in Pool(str(again)).load(None, Stream(0)).problems}
    assert [guessed[p.id] for p in problems] == pytest.approx(rates, abs=1e-6)


def test_an_export_without_valid_tasks_or_of_another_model_is_refused(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UserError, match=r"^export: problem 'x' is not a task of the domain sums \(unreadable\), so that"
    ):
        export_problems(study, "none", [Problem("x", "2+2=", "4")])
    with monkeypatch.context() as patch:
        patch.setattr(Sums, "check", lambda self, tasks: [self._check(task._replace(start=9)) for task in tasks])
        with pytest.raises(
            UserError, match=r"^export: none of 40 texts is a valid task \(\d+ times: start out of range"
        ):
            export_pool(study, "probe")
    rate_probe(study)
    other = Study(study.config, 0)
    other.__dict__["reference"] = "another"
    with pytest.raises(UserError, match=r"rates\.safetensors: a probe of another reference model"):
        rate_probe(other)


def test_the_command_exports(study: Study) -> None:
    recipe = str(REPOSITORY / "experiments" / "recipes" / "propel" / "sums.yaml")

    def halfway(*words: str) -> Any:
        file = str(study.config.folder / "config.yaml")
        return CliRunner().invoke(app, ["propel", words[0], file, *words[1:]])

    prepare(study.config)
    done = halfway("export", "export.texts=12")  # another size does not make another study
    assert done.exit_code == 0 and "problems: " in done.output, done.output
    assert "pools/probe.parquet" in done.output.replace("\n", "")
    done = halfway("export", "--run", str(RECIPES / "lab" / "sums.yaml"))
    assert done.exit_code == 0 and "384 problems" in done.output, done.output
    for words, message in [
        (("train", "--run", str(RECIPES / "lab" / "sums.yaml")), "goes with `halfway propel export` alone"),
        (("export", "--run", str(RECIPES / "lab" / "sums.yaml"), "--arm=probe"), "without --arm"),
        (
            ("export", "--run", str(RECIPES / "methods" / "propel.yaml")),
            "is not a task of the domain sums (number of lines)",
        ),
    ]:
        done = halfway(*words)
        assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = CliRunner().invoke(app, ["propel", "export", recipe, f"output={study.config.output}", "name=none"])
    assert "holds no finished sweep" in done.stderr


def test_the_pools_of_the_lab_are_of_one_study() -> None:
    about = [read_provenance(RECIPES / "pools" / f"{name}.parquet") for name in POOLS]
    for key in ("reference model", "solver model", "study", "seed", "domain", "probe"):
        assert about[0][key] == about[1][key], key
    generated, sheets = (Pool(str(RECIPES / "pools" / f"{n}.parquet")).load(None, Stream(0)).problems for n in POOLS)
    assert len(generated) == about[0]["tasks"] >= 500 and len(sheets) == 384
    assert {p.verifier for p in (*generated, *sheets)} == {"running_sums"}
