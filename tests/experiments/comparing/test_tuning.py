"""Sweeps: areas, choices, what is written, what a second call resumes, and what may be added later."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import says
from rich.console import Console

from halfway.curriculum import UserError
from halfway.experiments.comparing import runner
from halfway.experiments.comparing.compare import outcome, prepare_comparison, run_comparison
from halfway.experiments.comparing.jobs import Failure
from halfway.experiments.comparing.tuning import area_under_curve, at_edge, chosen, mean_height
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import Arm, Costs, TuneOptions, contrast_pairs
from halfway.experiments.config.loading import load_comparison_config, load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.analysis.sweeps import Trial, read_tuning
from halfway.experiments.report.tables.all_tables import tuning_table
from halfway.experiments.running.runs import read_state
from halfway.trainers.loop.loop_options import Budget

BASE = {"controllers": ["uniform"], "problems": {"source": "running_sums", "train": 8}, "tracking": {"mlflow": False}}


@pytest.mark.parametrize(
    ("points", "end", "mean"),
    [
        ([(0, 0.2), (10, 0.4)], 10, 0.3),
        ([(0, 0.2), (10, 0.4)], 5, 0.25),  # cut in the middle of a piece
        ([(0, 0.0), (10, 1.0), (20, 1.0)], 20, 0.75),
        ([(0, 0.0), (10, 1.0), (20, 1.0)], 10, 0.5),  # cut at a point
        ([(4, 0.5), (6, 0.5), (12, 0.5)], 12, 0.5),
        ([(0, 0.0), (1, 1.0), (4, 0.0)], 4, 0.5),  # (1/2 + 3/2) / 4
    ],
)
def test_the_mean_height_of_a_curve_by_hand(points: list[tuple[float, float]], end: float, mean: float) -> None:
    x_E, y_E = np.asarray(points, np.float64).T
    assert mean_height(x_E, y_E, end) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("budget", "mean"),
    [
        (Budget(rollouts=12), (0.4 * 8 + 0.8 * 4) / 12),  # the last step went beyond
        (Budget(tokens=100), (0.4 * 20 + 0.8 * 80) / 100),
        (Budget(steps=2), (0.4 + 0.8) / 2),
        (Budget(steps=4), (0.4 + 0.8 * 3) / 4),  # the run ended before
        (Budget(seconds=8.0), (0.4 * 6 + 0.8 * 2) / 8),
        (Budget(tool_seconds=5.0), 0.6),  # over all rollouts
    ],
)
def test_an_area_is_taken_over_the_budget(budget: Budget, mean: float, tmp_path: Path) -> None:
    write_curve(tmp_path, [(0, 0.0), (8, 0.8), (16, 0.8)], tokens=[0, 20, 100], seconds=[0.0, 6.0, 9.0])
    assert area_under_curve(tmp_path, budget) == pytest.approx(mean)


def trial(name: str, area: float | None, **values: Any) -> Trial:
    return Trial(name, values, {}, area)


def test_the_largest_area_is_chosen_and_the_first_of_equals() -> None:
    settings = [trial("a", 0.3, lr=1), trial("b", 0.4, lr=2), trial("c", 0.4, lr=3), trial("d", None, lr=4)]
    found = chosen(settings, {"lr": [1, 2, 3, 4]})
    assert (found.chosen, found.at_edge, found.equals) == ("b", [], 2)
    assert chosen(settings[:1], {"lr": [1, 2]}).at_edge == ["lr"]
    assert chosen([trial("zero", 0.0, lr=1)], {"lr": [1]}).chosen == "zero"
    assert chosen(settings[3:], {"lr": [4]}).chosen is None


def test_a_choice_among_equals_is_at_an_edge_only_where_they_agree() -> None:
    settings = [trial(f"{lr}-{n}", 0.3, lr=lr, n=n) for lr in (1, 2) for n in (8, 16)]
    found = chosen(settings, {"lr": [1, 2], "n": [8, 16]})
    assert (found.chosen, found.at_edge, found.equals) == ("1-8", [], 4)
    assert outcome("a", found).endswith("best of 4); 4 settings did equally well, the first one was chosen")
    agreed = chosen(settings[:2], {"lr": [1, 2], "n": [8, 16]})
    assert (agreed.at_edge, agreed.equals) == (["lr"], 2)
    final = [replace(each, final_area=area) for each, area in zip(settings, (0.4, 0.4, 0.5, 0.1), strict=True)]
    assert chosen(final, {"lr": [1, 2], "n": [8, 16]}, finals=4).at_edge == ["lr", "n"]


@pytest.mark.parametrize(
    ("value", "tried", "edge"),
    [
        (1e-4, [1e-4, 3e-4, 6e-4], True),
        (3e-4, [6e-4, 3e-4, 1e-4], False),
        (6e-4, [1e-4, 6e-4, 3e-4], True),
        (1, [1], False),
        ("token", ["token", "sequence"], False),
        (True, [True, False], False),
    ],
)
def test_only_the_smallest_and_largest_of_several_numbers_are_an_edge(
    value: Any, tried: Sequence[Any], edge: bool
) -> None:
    assert at_edge(value, tried) is edge


def write_curve(folder: Path, points: Sequence[tuple[float, float]], **others: Sequence[float]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {"step": i, "rollouts": x, "pass_at_1": y, "stderr": 0.1} | {name: of[i] for name, of in others.items()}
        for i, (x, y) in enumerate(points)
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


class Ended:
    """A process that has ended."""

    def __init__(self, status: int):
        self.exitcode = status

    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def join(self, seconds: float | None = None) -> None: ...


class Trainings:
    """Stands in for training: every run ends at once, at the pass@1 that `heights` has for its learning rate.

    Attributes:
        begun: names of the runs, in order.
        failing: parts of the names of runs that fail.
        whole: pass@1 for a learning rate in the finals, if it differs; or for a learning rate and a seed.
        interrupt_at: the number of the start at which the user presses Ctrl-C.
        warmth: what a temperature adds to pass@1.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.failing: set[str] = set()
        self.interrupt_at: int | None = None
        self.heights = {1.0: 0.3, 2.0: 0.5, 3.0: 0.4, 4.0: 0.6}
        self.whole: dict[float | tuple[float, int], float] = {}
        self.warmth: dict[float, float] = {}

    def start(self, config: RunConfig, folder: Path) -> Ended:
        if len(self.begun) == self.interrupt_at:
            self.interrupt_at = None
            raise KeyboardInterrupt
        name = config.name.partition("/")[2]
        self.begun.append(name)
        if any(part in name for part in self.failing):
            (folder / "log.txt").write_text("the learner: NaN\n")
            return Ended(2)
        height, lr = self.heights[config.learner.lr], config.learner.lr
        if "/whole/" in name:
            height = self.whole.get((lr, config.seed), self.whole.get(lr, height))
        height += self.warmth.get(config.rollouts.temperature, 0.0)
        write_curve(folder, [(0, 0.0), (20, height)])
        (folder / "status.json").write_text('{"state": "finished"}')
        return Ended(0)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainings]:
    made = Trainings()
    monkeypatch.setattr(runner, "start", lambda config, folder, parallel: made.start(config, folder))
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.0)
    yield made


@pytest.fixture
def contest(tmp_path: Path) -> ComparisonConfig:
    return ComparisonConfig(
        name="contest",
        base={**BASE, "output": str(tmp_path)},
        seeds=(0, 1),
        budget=Budget(rollouts=20),
        arms={"a": Arm(), "b": Arm(grid={"learner.lr": [1.0, 3.0]})},
        tune=TuneOptions({"learner.lr": [1.0, 2.0, 3.0]}, (100, 101)),
    )


def go(config: ComparisonConfig) -> tuple[ComparisonConfig, list[Failure]]:
    config = prepare_comparison(config, config.folder)
    return config, run_comparison(config, config.folder, 2, Console(quiet=True))


def tuning_of(config: ComparisonConfig) -> dict[str, Any]:
    return dict(json.loads((config.folder / "tuning.json").read_text()))


def rates(config: ComparisonConfig) -> dict[str, float]:
    """The learning rate of every run that has been made."""
    paths = sorted(config.folder.glob("*/seed-*/config.yaml"))
    return {f"{path.parts[-3]}-{path.parts[-2][5:]}": load_run_config(path).learner.lr for path in paths}


def test_arms_train_with_what_their_sweeps_chose(contest: ComparisonConfig, trainings: Trainings) -> None:
    config, failures = go(contest)
    assert failures == []
    sweep = [f"tuning/{arm}/learner.lr-{lr}.0/seed-{s}" for s in (100, 101) for arm, lr in PLAN]
    assert trainings.begun == [*sweep, "a/seed-0", "b/seed-0", "a/seed-1", "b/seed-1"]
    assert rates(config) == {"a-0": 2.0, "a-1": 2.0, "b-0": 3.0, "b-1": 3.0}
    found = tuning_of(config)
    assert found["seeds"] == [100, 101]
    assert found["arms"]["a"]["chosen"] == "learner.lr-2.0" and found["arms"]["a"]["at_edge"] == []
    assert found["arms"]["b"]["chosen"] == "learner.lr-3.0" and found["arms"]["b"]["at_edge"] == ["learner.lr"]
    first = found["arms"]["a"]["settings"][0]
    assert first["values"] == {"learner.lr": 1.0} and first["areas"] == pytest.approx({"100": 0.15, "101": 0.15})
    assert first["mean_area"] == pytest.approx(0.15)


PLAN = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 3)]


def test_finals_are_run_by_the_best_with_the_whole_budget_and_decide(
    contest: ComparisonConfig, trainings: Trainings
) -> None:
    """2 leads 3 at half of the budget; at its end it has come apart."""
    contest = replace(contest, tune=replace(contest.tune, share=0.5, finals=2), seeds=(0,))
    trainings.whole = {2.0: 0.1, 3.0: 0.35}
    config, failures = go(contest)
    assert failures == []
    last = [name for name in trainings.begun if "whole" in name]
    assert last == [f"tuning/{arm}/learner.lr-{lr}/whole/seed-{seed}" for arm, lr in FINALS for seed in (100, 101)]
    assert trainings.begun[-2:] == ["a/seed-0", "b/seed-0"] and rates(config) == {"a-0": 3.0, "b-0": 3.0}
    budgets = {load_run_config(path).budget.rollouts for path in config.folder.glob("tuning/*/*/whole/*/config.yaml")}
    assert budgets == {20}
    settings = {each["name"]: each for each in tuning_of(config)["arms"]["a"]["settings"]}
    assert settings["learner.lr-3.0"]["final_area"] == pytest.approx(0.175)
    assert settings["learner.lr-1.0"]["final_area"] is None and settings["learner.lr-1.0"]["final_areas"] == {}
    finals = {row[0]: row[2] for row in tuning_table(read_tuning(config.folder)).rows}
    assert finals["a, learner.lr=1"] == "-" and finals["a, learner.lr=3"].startswith("0.175")
    trainings.begun.clear()
    go(contest)
    assert trainings.begun == []


FINALS = [("a", 2.0), ("a", 3.0), ("b", 3.0), ("b", 1.0)]


def test_finals_are_added_to_a_finished_contest(contest: ComparisonConfig, trainings: Trainings) -> None:
    """Arms for which they choose another setting train again; the earlier runs are put aside."""
    half = replace(contest, tune=replace(contest.tune, share=0.5), seeds=(0,))
    config, _ = go(half)
    assert rates(config) == {"a-0": 2.0, "b-0": 3.0}
    trainings.begun.clear()
    trainings.whole = {2.0: 0.1}
    config, _ = go(replace(half, tune=replace(half.tune, finals=2)))
    assert [name for name in trainings.begun if "tuning" not in name] == ["a/seed-0"]
    assert rates(config) == {"a-0": 3.0, "b-0": 3.0}
    assert (config.folder / "superseded" / "a" / "learner.lr-2.0" / "seed-0").is_dir()
    assert go(half)[0].tune.finals == 2  # leaving them out takes nothing away


def test_more_seeds_in_the_finals_see_what_one_does_not(contest: ComparisonConfig, trainings: Trainings) -> None:
    """2 leads 3 with seed 100, and comes apart with one of two further seeds."""
    tune = replace(contest.tune, seeds=(100,), share=0.5, finals=2)
    contest = replace(contest, tune=tune, seeds=(0,))
    trainings.whole = {(2.0, 102): 0.1}
    config, _ = go(contest)
    assert rates(config) == {"a-0": 2.0, "b-0": 3.0} and tuning_of(config)["final_seeds"] == [100]
    trainings.begun.clear()
    config, failures = go(replace(contest, tune=replace(tune, final_seeds=(101, 102))))
    assert failures == [] and config.tune.final_seeds == (100, 101, 102)  # those that have run count too
    added = [f"tuning/{arm}/learner.lr-{lr}/whole/seed-{seed}" for arm, lr in FINALS for seed in (101, 102)]
    assert trainings.begun == [*added, "a/seed-0"] and rates(config) == {"a-0": 3.0, "b-0": 3.0}
    assert (config.folder / "superseded" / "a" / "learner.lr-2.0" / "seed-0").is_dir()
    found = tuning_of(config)
    assert found["seeds"] == [100] and found["final_seeds"] == [100, 101, 102]
    second = found["arms"]["a"]["settings"][1]
    assert second["final_areas"] == pytest.approx({"100": 0.25, "101": 0.25, "102": 0.05})
    assert second["final_area"] == pytest.approx(0.55 / 3)
    assert load_run_config(config.folder / "tuning/a/learner.lr-2.0/whole/seed-102/config.yaml").seed == 102
    trainings.begun.clear()
    assert go(contest)[0].tune.final_seeds == (100, 101, 102)  # leaving them out takes nothing away
    assert trainings.begun == []


def test_an_interrupted_final_resumes_with_the_seeds_now_in_the_file(
    contest: ComparisonConfig, trainings: Trainings
) -> None:
    tune = replace(contest.tune, seeds=(100,), share=0.5, finals=2)
    contest = replace(contest, tune=tune, seeds=(0,))
    trainings.interrupt_at = 6  # in the middle of the finals
    with pytest.raises(KeyboardInterrupt):
        go(contest)
    config, _ = go(replace(contest, tune=replace(tune, final_seeds=(100, 101))))
    assert len(trainings.begun) == len(set(trainings.begun)) == 5 + 8 + 2
    assert tuning_of(config)["arms"]["b"]["settings"][0]["final_areas"] == pytest.approx({"100": 0.15, "101": 0.15})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"finals": 0}, r"^tune\.final_seeds: (?=.*\[102\]).*tune\.finals"),
        ({"final_seeds": (102, 102)}, r"^tune\.final_seeds: .*\[102, 102\]"),
        ({"final_seeds": (0, 102)}, r"^tune\.final_seeds: .*\[0\]"),
    ],
)
def test_impossible_seeds_of_finals_are_refused(contest: ComparisonConfig, changes: dict[str, Any], error: str) -> None:
    tune = replace(contest.tune, share=0.5, finals=2, final_seeds=(102,))
    with pytest.raises(UserError, match=error):
        replace(contest, tune=replace(tune, **changes))


def test_a_final_that_fails_leaves_the_choice_to_the_others(contest: ComparisonConfig, trainings: Trainings) -> None:
    contest = replace(contest, tune=replace(contest.tune, share=0.5, finals=2), seeds=(0,))
    trainings.failing = {"a/learner.lr-2.0/whole"}
    config, _ = go(contest)
    assert rates(config)["a-0"] == 3.0
    with pytest.raises(UserError, match=says("tune.finals", 1, "2 or more", "share")):
        replace(contest.tune, finals=1)


def results(config: ComparisonConfig) -> dict[str, Any]:
    """The data of a report: the sweep, and the settings and curve of every run of the comparison."""
    runs = {
        f"{arm}-{seed}": (run / "evaluations.jsonl").read_text() + (run / "config.yaml").read_text()
        for arm in config.arms
        for seed in config.seeds
        if (run := config.folder / arm / f"seed-{seed}")
    }
    where = str(config.folder.parent)
    return {"runs": {name: text.replace(where, "") for name, text in runs.items()}, "tuning": tuning_of(config)}


TWO_FIELDS = {"rollouts.temperature": [1.0, 1.3], "learner.lr": [2.0, 3.0, 4.0]}


@pytest.mark.parametrize("moment", [None, 3, 8, 12])
def test_a_sweep_that_grew_and_was_interrupted_is_that_of_the_whole_file(
    contest: ComparisonConfig, trainings: Trainings, tmp_path: Path, moment: int | None
) -> None:
    """Grown by values of two fields and by seeds of the finals, which 3 at 1.0 reaches at first but not at the end."""
    trainings.warmth = {1.3: 0.15}
    trainings.whole = {(4.0, 102): 0.05, 2.0: 0.45}
    tune = TuneOptions(TWO_FIELDS, (100,), share=0.5, finals=2, final_seeds=(100, 102))
    whole = replace(contest, arms={"a": Arm()}, seeds=(0,), tune=tune)
    first = {"rollouts.temperature": [1.0], "learner.lr": [2.0, 3.0]}
    stages = [replace(whole, tune=replace(tune, grid=grid, final_seeds=())) for grid in (first, TWO_FIELDS)]
    stages.append(whole)
    trainings.interrupt_at = moment
    for stage in stages:
        try:
            grown, failures = go(stage)
        except KeyboardInterrupt:
            grown, failures = go(stage)
        assert failures == []
    assert trainings.interrupt_at is None
    fresh, _ = go(replace(whole, base={**whole.base, "output": str(tmp_path / "fresh")}))
    found = results(fresh)
    chosen_a = found["tuning"]["arms"]["a"]
    assert chosen_a["chosen"] == "rollouts.temperature-1.3_learner.lr-2.0"
    assert sum(bool(each["final_areas"]) for each in chosen_a["settings"]) == 2
    assert sorted_settings(results(grown)) == sorted_settings(found)
    rows = [tuning_table(read_tuning(config.folder)).rows for config in (grown, fresh)]
    assert sorted(rows[0]) == sorted(rows[1])


def sorted_settings(found: dict[str, Any]) -> dict[str, Any]:
    """The same with the settings of each arm in one order: values that are added come after earlier ones."""
    arms = {
        arm: {**sweep, "settings": sorted(sweep["settings"], key=lambda setting: setting["name"])}
        for arm, sweep in found["tuning"]["arms"].items()
    }
    return {**found, "tuning": {**found["tuning"], "arms": arms}}


@pytest.mark.parametrize("moment", [0, 4, 10, 12])
def test_an_interrupted_contest_resumes(contest: ComparisonConfig, trainings: Trainings, moment: int) -> None:
    trainings.interrupt_at = moment
    with pytest.raises(KeyboardInterrupt):
        go(contest)
    config, failures = go(contest)
    assert failures == [] and len(trainings.begun) == 14
    assert len(set(trainings.begun)) == 14  # here a run that was begun finishes at once
    assert rates(config) == {"a-0": 2.0, "a-1": 2.0, "b-0": 3.0, "b-1": 3.0}


def test_seeds_and_arms_are_added_without_tuning_again(contest: ComparisonConfig, trainings: Trainings) -> None:
    go(contest)
    trainings.begun.clear()
    go(replace(contest, seeds=(5,)))
    assert trainings.begun == ["a/seed-5", "b/seed-5"]
    trainings.begun.clear()
    config, _ = go(replace(contest, arms={"c": Arm({"learner": {"eps": 1e-6}})}))
    assert [name.split("/")[1] for name in trainings.begun[:6]] == ["c"] * 6
    assert trainings.begun[6:] == ["c/seed-0", "c/seed-1", "c/seed-5"]
    assert rates(config)["c-0"] == 2.0 and set(tuning_of(config)["arms"]) == {"a", "b", "c"}


def test_values_are_added_and_an_arm_that_is_tuned_to_another_trains_again(
    contest: ComparisonConfig, trainings: Trainings
) -> None:
    go(contest)
    trainings.begun.clear()
    wider, _ = go(replace(contest, tune=replace(contest.tune, grid={"learner.lr": [4.0]})))
    assert wider.tune.grid == {"learner.lr": [1.0, 2.0, 3.0, 4.0]}
    sweep = [f"tuning/a/learner.lr-4.0/seed-{seed}" for seed in (100, 101)]
    assert trainings.begun == [*sweep, "a/seed-0", "a/seed-1"]
    assert rates(wider) == {"a-0": 4.0, "a-1": 4.0, "b-0": 3.0, "b-1": 3.0}
    kept = wider.folder / "superseded" / "a" / "learner.lr-2.0"
    assert [read_state(kept / f"seed-{seed}") for seed in (0, 1)] == ["finished"] * 2


def test_a_sweep_that_returns_to_a_setting_takes_its_runs_back(contest: ComparisonConfig, trainings: Trainings) -> None:
    """More tuning seeds change the choice from 2 to 3, and still more back to 2."""
    go(contest)
    for heights, seed, lr in (({2.0: 0.0}, 102, 3.0), ({2.0: 1.0}, 103, 2.0)):
        trainings.begun.clear()
        trainings.heights |= heights
        config, _ = go(replace(contest, tune=replace(contest.tune, seeds=(seed,))))
        assert rates(config)["a-0"] == lr
    assert not [name for name in trainings.begun if name.startswith("a/")]
    assert (config.folder / "superseded" / "a" / "learner.lr-3.0" / "seed-0").is_dir()


def test_settings_that_fail_are_not_chosen(contest: ComparisonConfig, trainings: Trainings) -> None:
    trainings.failing = {"a/learner.lr-2.0/seed-101"}
    config, failures = go(contest)
    assert failures == [] and rates(config)["a-0"] == 3.0
    settings = tuning_of(config)["arms"]["a"]["settings"]
    assert settings[1]["mean_area"] is None and list(settings[1]["areas"]) == ["100"]
    trainings.failing = set()
    config, _ = go(contest)
    assert rates(config)["a-0"] == 2.0


def test_an_arm_without_a_setting_is_not_trained(contest: ComparisonConfig, trainings: Trainings) -> None:
    trainings.failing = {"tuning/a/"}
    config, failures = go(contest)
    assert {failure.job.arm.split("/")[1] for failure in failures} == {"a"} and len(failures) == 6
    assert rates(config) == {"b-0": 3.0, "b-1": 3.0}
    assert tuning_of(config)["arms"]["a"]["chosen"] is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tune": TuneOptions({"learner.eps": [1.0]}, (100,))}, r"^tune\.grid\.learner\.lr: .*None"),
        ({"tune": TuneOptions({"learner.lr": [1.0]}, (100,), share=0.5)}, r"^tune\.share: .*1\.0.*0\.5"),
        ({"tune": TuneOptions({"learner.lr": [1.0]}, (1,))}, r"^tune\.seeds: .*\[1\]"),
        ({"arms": {"b": Arm(grid={"learner.eps": [1.0]})}}, r"^arms\.b\.tune\.grid\.learner\.lr"),
        ({"targets": (0.4,)}, r"^targets: .*\(\).*\(0\.4,\)"),
        ({"contrasts": {"baseline": "a"}}, "^contrasts.*: .*None"),
    ],
)
def test_settings_fixed_in_advance_cannot_change(
    contest: ComparisonConfig, trainings: Trainings, changes: dict[str, Any], error: str
) -> None:
    prepare_comparison(contest, contest.folder)
    with pytest.raises(UserError, match=error):
        other = replace(contest, **changes)
        prepare_comparison(other, contest.folder)


def test_contrasts_are_added_with_their_arms_only(contest: ComparisonConfig) -> None:
    planned = replace(contest, contrasts=[["b", "a"]], costs=Costs((1,)))
    prepare_comparison(planned, contest.folder)
    with_c = replace(planned, arms={**contest.arms, "c": Arm()})
    more = prepare_comparison(replace(with_c, contrasts=[["c", "a"]], costs=Costs((2,))), contest.folder)
    assert contrast_pairs(more.contrasts, more.arms) == [("b", "a"), ("c", "a")] and more.costs.rho == (2,)
    assert load_comparison_config(contest.folder / "comparison.yaml") == more
    third = replace(with_c, arms={**with_c.arms, "d": Arm()}, contrasts=[["c", "b"]])
    with pytest.raises(UserError, match=says("contrasts", "[['b', 'a'], ['c', 'a']]")):
        prepare_comparison(third, contest.folder)
