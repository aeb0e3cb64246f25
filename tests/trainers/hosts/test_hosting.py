"""The parts of every host's adapter, without a host: rows, outcomes, records, state."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controller_harness import problem_set
from messages import says

from halfway.controllers.contrib.bandit import Bandit
from halfway.controllers.greso import Greso
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Chain, Problem, ProblemSet, Stream, UserError, chain
from halfway.curriculum.problems import Message
from halfway.experiments.cli import app
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.hosts.hosting import Host, Hosting
from halfway.trainers.hosts.outcomes import Judge, rollout_of
from halfway.trainers.hosts.rows import Columns, Rows, rows_of

GROUPS, SIZE = 4, 8
CHAIN = chain(("uniform", Uniform()), ("greso", Greso()))


def hosting(folder: Path, controller: Chain = CHAIN, rows: Rows | None = None, **options: Any) -> Hosting:
    rows = rows or rows_of(problem_set(40), controller)
    return Hosting(controller, rows, SIZE, folder, Host("a host"), **options)


def steps(run: Hosting, first: int, last: int) -> None:
    """Training steps of a host that draws one step ahead, on the simulated learner."""
    simulated = SimulatedRollouts()
    waiting = run.draw(GROUPS) if run.session.step == 0 else run.session.next_batch(GROUPS)
    for step in range(first, last):
        ahead = run.draw(GROUPS)
        groups = simulated.run([ticket.request for ticket in waiting], Stream(step))
        for ticket, group in zip(waiting, groups, strict=True):
            for rollout in group.rollouts:
                run.record(ticket.id, rollout)
        run.commit(version=step)
        waiting = ahead


def test_a_hosted_run_that_is_killed_and_resumed_decides_the_same(tmp_path: Path) -> None:
    whole, broken = hosting(tmp_path / "whole"), hosting(tmp_path / "broken")
    (tmp_path / "checkpoint").mkdir()
    whole.begin()
    steps(whole, 0, 8)
    broken.begin()
    steps(broken, 0, 4)
    broken.save(tmp_path / "checkpoint")
    steps_lost = hosting(tmp_path / "broken")  # another process, whose last steps are forgotten
    steps_lost.load(tmp_path / "checkpoint")
    steps(steps_lost, 4, 6)
    resumed = hosting(tmp_path / "broken")
    resumed.load(tmp_path / "checkpoint")
    steps(resumed, 4, 8)
    resumed.end()
    name = "decisions.jsonl"
    assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "broken" / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(8)) and lines[-1]["rollouts"] == 8 * GROUPS * SIZE
    groups = [json.loads(line) for line in (tmp_path / "broken" / name).read_text().splitlines()]
    assert sum(group["outcome"] != "skipped" for group in groups) == 8 * GROUPS


def test_only_one_process_writes_records(tmp_path: Path) -> None:
    run = hosting(tmp_path / "rank1", writes=False)
    run.begin()
    steps(run, 0, 2)
    run.save(tmp_path)
    run.end()
    assert list(tmp_path.iterdir()) == []


def test_halfway_report_reads_a_hosted_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine" / "halfway"
    run = hosting(folder)
    run.begin()
    steps(run, 0, 8)
    run.end()
    app(["report", str(folder)], standalone_mode=False)
    assert "report.html" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    [arm] = summary["arms"]
    assert arm["arm"] == "mine" and arm["controller_share"] < 1 and summary["timing"] is None
    page = (folder / "report.html").read_text()
    assert "No texts to read: a host reported none." in page and "<title>mine</title>" in page
    assert "wasted; not evaluated" in page and "final pass@1" not in page and '<div class="first">' not in page


@pytest.mark.parametrize("blocked", [".summary.json.tmp", "figures"])
def test_a_run_whose_folder_takes_no_files_shows_its_table(
    blocked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = hosting(tmp_path / "mine")
    run.begin()
    steps(run, 0, 8)
    run.end()
    if blocked == "figures":
        (tmp_path / "mine" / blocked).touch()
    else:
        (tmp_path / "mine" / blocked).mkdir()
    with pytest.raises(SystemExit):
        app(["report", str(tmp_path / "mine"), "--figures"], standalone_mode=False)
    said = capsys.readouterr()
    assert "pass@1" in said.out and "cannot be written" in said.err


def test_a_hosted_run_whose_rewards_are_all_0_says_so_once_and_in_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = hosting(tmp_path / "mine")
    run.begin()
    for step in range(12):
        for ticket in run.draw(GROUPS):
            for _ in range(SIZE):
                run.record(ticket.id, rollout_of([5, 1], False, 0.0, {1}, step))
        run.commit(step)
        said = capsys.readouterr().err
        assert ("halfway: all" in said and "rewards" in said and "verifier" in said) == (step == 4), said
    run.end()
    app(["report", str(tmp_path / "mine")], standalone_mode=False)
    assert "mine: 100 % of its" in capsys.readouterr().out


def test_a_batch_that_does_not_fill_is_one_line(tmp_path: Path) -> None:
    nobody = chain(("greso", Greso()))
    run = hosting(tmp_path, nobody, rows_of(problem_set(3), nobody))
    with pytest.raises(UserError, match=says("0 of 4 problems", "batch")):
        run.draw(GROUPS)


def test_rollouts_that_cannot_be_scored_are_lost_and_counted(tmp_path: Path) -> None:
    run = hosting(tmp_path)
    run.begin()
    for place, ticket in enumerate(run.draw(GROUPS)):
        for i in range(SIZE):
            run.record(
                ticket.id, None if place == 0 or i == 0 else rollout_of([5, 1], i % 2 == 0, float(i % 2 == 0), {1}, 0)
            )
    run.commit(0)
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    assert [(line["n"], line["outcome"], line["dropped"]) for line in lines] == [
        (0, "empty", {"unscored": SIZE}),
        *[(SIZE - 1, "trained", {"unscored": 1})] * 3,
    ]


def test_texts_are_kept_where_the_host_hands_over_tokens(tmp_path: Path) -> None:
    run = hosting(tmp_path / "run")
    run.decode = lambda tokens: " ".join(map(str, tokens))
    run.begin()
    steps(run, 0, 2)
    run.save(tmp_path)
    file = tmp_path / "run" / "samples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines and {line["visit"] for line in lines} <= {1, 2}
    problem = run.session.problems[run.session.problems.position(lines[0]["problem"])]
    assert lines[0]["prompt"] == problem.prompt and all(one["turns"][0]["text"] for one in lines[0]["rollouts"])
    before = file.read_bytes()
    steps(run, 2, 4)
    again = hosting(tmp_path / "run")
    again.decode = run.decode
    again.load(tmp_path)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"state": 1}', '{"state": {"session": {"step": "x"}}}', "[" * 9999]
)
def test_a_damaged_state_is_one_line(text: str, tmp_path: Path) -> None:
    run = hosting(tmp_path / "run")
    run.begin()
    run.save(tmp_path)
    [file] = tmp_path.glob("*.json")
    file.write_text(text)
    with pytest.raises(UserError, match=says(file, "damaged", "another checkpoint")) as told:
        run.load(tmp_path)
    assert "\n" not in str(told.value)


def test_a_state_of_which_anything_was_changed_is_one_line(tmp_path: Path) -> None:
    run = hosting(tmp_path / "run")
    run.begin()
    steps(run, 0, 2)
    run.save(tmp_path)
    file = tmp_path / "halfway.json"
    sound = json.loads(file.read_text())
    for part in (sound["state"]["session"], sound["state"]):
        for name, value in part.items():
            part[name] = [value]
            file.write_text(json.dumps(sound))
            with pytest.raises(UserError, match=says(file, "damaged", "has changed since it was written")):
                hosting(tmp_path / "run").load(tmp_path)
            part[name] = value
    file.write_text(json.dumps(sound))
    hosting(tmp_path / "run").load(tmp_path)


def test_a_state_without_what_the_run_has_spent_changes_nothing(tmp_path: Path) -> None:
    run = hosting(tmp_path / "run")
    run.begin()
    steps(run, 0, 2)
    saved = run.state_dict()
    other = hosting(tmp_path / "other")
    for spent in ([], [1, 2], "abc", None):
        with pytest.raises((LookupError, TypeError, ValueError)):
            other.load_state_dict({**saved, "spent": spent})
    assert other.session.step == 0
    run.load_state_dict(saved)  # without the damage it is sound
    assert run.session.step == 2


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, -math.inf, np.float32("nan")])
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_a_reward_that_is_not_a_finite_number_is_unscored(reward: float | None, threshold: float | None) -> None:
    assert Judge("a reward", threshold).success(reward) is None


def test_a_report_without_a_ticket_or_a_second_report_is_refused_in_one_line(tmp_path: Path) -> None:
    run = hosting(tmp_path)
    run.begin()
    [ticket, *_] = run.draw(GROUPS)
    rollout = rollout_of([5, 1], True, 1.0, {1}, 0)
    for _ in range(SIZE):
        run.record(ticket.id, rollout)
    for name, complaint in ((ticket.id, "has all its rollouts already"), ("nobody", "was never drawn")):
        with pytest.raises(UserError, match=f"'{name}' {complaint}"):
            run.record(name, rollout)
    assert [(group.size, group.num_passed) for group in run.commit(0)] == [(SIZE, SIZE)]


ROWS = [
    {
        "prompt": [{"role": "user", "content": f"{i}+1="}],
        "answer": str(i + 1),
        "topic": "even" if i % 2 else "odd",
        "x": i,
    }
    for i in range(6)
]


def test_rows_become_problems_and_keep_their_columns() -> None:
    choosing = chain(("bandit", Bandit(category="topic")))
    rows = rows_of(ROWS, choosing)
    assert [problem.id for problem in rows.problems] == list("012345")
    assert rows.problems[1].messages == (Message("user", "1+1="),) and rows.problems[1].prompt == "1+1="
    assert list(rows.problems.column("topic")) == ["odd", "even"] * 3
    assert rows.row(rows.problems[4]) == ROWS[4]
    with pytest.raises(UserError, match=says("no column 'question' among prompt, answer, topic, x", "rename")):
        rows_of(ROWS, choosing, Columns(prompt="question"))
    with pytest.raises(UserError, match=r"id '(even|odd)' occurs twice"):
        rows_of(ROWS, choosing, Columns(id="topic"))
    with pytest.raises(UserError, match="row 2 has no column 'answer', unlike row 0; add it"):
        rows_of([*ROWS[:2], {"id": "2", "prompt": "2+1=", "topic": "even"}], choosing)
    with pytest.raises(UserError, match=says("problems", "'str'", "ProblemSet", "Dataset")):
        rows_of("train.jsonl", choosing)


def test_the_rows_of_a_data_set_become_problems() -> None:
    datasets = pytest.importorskip("datasets")
    rows = rows_of(datasets.Dataset.from_list(ROWS), CHAIN)
    assert rows.problems[2].answer == "3" and rows.row(rows.problems[2])["x"] == 2
    with pytest.raises(UserError, match=says("problems", "'IterableDataset'", "ProblemSet", "Dataset")):
        rows_of(datasets.Dataset.from_list(ROWS).to_iterable_dataset(), CHAIN)


@pytest.mark.parametrize("kind", ["text", "messages"])
def test_a_data_set_makes_the_problems_that_its_rows_make(kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    choosing = chain(("bandit", Bandit(category="topic")))
    rows = [{**row, "id": f"p{i}", "more": {"style": "rule", "n": [i] * i}} for i, row in enumerate(ROWS)]
    if kind == "text":
        rows = [{**row, "prompt": f"{i}+1="} for i, row in enumerate(rows)]
    columns = Columns(answer="more")
    own = rows_of(rows, choosing, columns).problems
    given = datasets.Dataset.from_list(rows)
    lazy = rows_of(given, choosing, columns).problems
    assert list(lazy) == list(own) and lazy[-1] == own[-1] and lazy[1:3] == own[1:3]
    assert [lazy.position(f"p{i}") for i in range(6)] == list(range(6))
    assert (
        list(lazy.column("topic")) == list(own.column("topic"))
        and ProblemSet(lazy, ()).fingerprint() == lazy.fingerprint()
    )
    # The same rows in other pieces, and looked up through indices, are the same set; any other cell is another one.
    pieces = datasets.concatenate_datasets([given.select([0, 1]), given.select([2, 3, 4, 5])])
    backwards = datasets.Dataset.from_list(rows[::-1]).select(range(5, -1, -1))
    for same in (pieces, backwards):
        assert rows_of(same, choosing, columns).problems.fingerprint() == lazy.fingerprint()
    for changed in (
        {**rows[3], "id": "p9"},
        {**rows[3], "answer": "4", "more": {"style": "rule", "n": [3, 3, 4]}},
        {**rows[3], "prompt": rows[2]["prompt"]},
    ):
        other = datasets.Dataset.from_list([*rows[:3], changed, *rows[4:]])
        assert rows_of(other, choosing, columns).problems.fingerprint() != lazy.fingerprint()
    with pytest.raises(UserError, match=says("'p0'", "twice")):
        rows_of(datasets.concatenate_datasets([given, given]), choosing, columns)
    grown = ProblemSet(lazy, [Problem("new", "?", "!")])
    assert grown.generated and grown.fingerprint() != lazy.fingerprint() and grown[2] == own[2]


def test_a_success_is_a_reward_of_1_or_one_above_the_threshold() -> None:
    judge = Judge("right")
    assert [judge.success(value) for value in (0, 1.0, True, None, float("nan"))] == [False, True, True, None, None]
    with pytest.raises(UserError, match=says("reward", "'right'", "0.5", "0", "1", "threshold=")):
        judge.success(0.5)
    assert [Judge("score", 0.5).success(value) for value in (-1.0, 0.4, 0.5, 7.0)] == [False, False, True, True]
    rollout = rollout_of([7, 8, 9, 1], True, 0.7, {1}, 3, num_replayed=2)
    assert (rollout.num_generated, rollout.num_replayed, rollout.truncated, rollout.policy_versions) == (
        2,
        2,
        False,
        (3,),
    )
    assert rollout.trained_reward == 0.7 and rollout_of([7], False, 0.0, {1}, 0).truncated
