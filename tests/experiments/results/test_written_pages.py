"""The committed pages agree with the committed numbers."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import says
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.experiments.results.write_pages import BEGIN, END, fill, tables_of, write_marked

PAYING = REPOSITORY / "experiments" / "results" / "when_does_it_pay"
PRETRAINED = PAYING.parent / "does_a_pretrained_model_learn"
VERDICT = json.loads((PAYING / "verdict.json").read_text())
PLAIN = yaml.safe_load((PAYING / "plan.yaml").read_text())["plain"]
POWER = json.loads((PAYING / "power.json").read_text())["rows"]
CHOOSING = json.loads((PAYING / "choosing.json").read_text())
SIGNS = json.loads((PAYING / "signs.json").read_text())


def test_the_committed_pages_are_not_stale() -> None:
    for page, blocks in tables_of(REPOSITORY).items():
        text = page.read_text()
        assert fill(text, blocks) == text, f"{page} is stale: run `make reproduction`"


def test_every_link_of_a_page_exists() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "experiments/results").glob("*/*.md")):
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
        assert [path for path in targets if not (page.parent / path).exists()] == [], page


def test_only_the_text_between_the_marks_changes() -> None:
    begin, end = BEGIN.format("a"), END.format("a")
    text = f"Before.\n\n{begin}\nold\n{end}\n\nAfter \\1.\n"
    assert fill(text, {"a": "new \\1"}) == f"Before.\n\n{begin}\n\nnew \\1\n\n{end}\n\nAfter \\1.\n"
    assert fill(fill(text, {"a": "new"}), {"a": "new"}) == fill(text, {"a": "new"})
    for broken in ("nothing", f"{text}{begin}\n", f"{end}\n{begin}\n"):
        with pytest.raises(UserError, match=says("once")):
            fill(broken, {"a": "new"})


def test_only_stale_pages_are_written(tmp_path: Path) -> None:
    for name in ("when_does_it_pay", "does_a_pretrained_model_learn", "how_fast_is_it"):
        shutil.copytree(PAYING.parent / name, tmp_path / "experiments/results" / name)
    folder = tmp_path / "experiments/results/when_does_it_pay"
    page, numbers = (folder / name for name in ("tables.md", "verdict.json"))
    numbers.write_text(numbers.read_text().replace('"start": 0.0', '"start": 0.9'))
    assert write_marked(tables_of(tmp_path)) == [page]
    assert "0.98" in page.read_text() and write_marked(tables_of(tmp_path)) == []


def test_without_the_numbers_the_script_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"verdict\.json"):
        tables_of(tmp_path)


def arms(contest: str, regime: str) -> Any:
    return json.loads((PAYING / "contests" / f"{contest}.json").read_text())["regimes"][regime]["arms"]


def said(*pages: str, folder: Path = PAYING) -> str:
    """The text of a folder's pages, in one line: all of them unless some are named."""
    paths = [folder / page for page in pages] or sorted(folder.glob("*.md"))
    return " ".join(" ".join(path.read_text() for path in paths).split())


def number(value: float | None, digits: int, sign: str = "") -> str:
    """A number as a sentence writes it: +0.036, or - for an end that is never reached."""
    return "-" if value is None else f"{value:{sign}.{digits}f}"


def interval(numbers: list[float | None], digits: int, sign: str = "") -> str:
    value, low, high = (number(each, digits, sign) for each in numbers[:3])
    return f"{value} [{low}, {high}]"


@pytest.mark.parametrize(
    ("contest", "name", "arm", "target", "measure"),
    [
        ("contest", "hard", "replay_frontier", "0.4", "tokens"),
        ("contest_easier", "middle", "replay_frontier_easier", "end", "tokens"),
        ("contest_easier", "hard", "replay_frontier_easier", "end", "tokens"),
        ("contest_easier", "middle", "frontier_easier", "end", "cost_1"),
        ("contest_easier", "hard", "frontier_easier", "end", "cost_1"),
        ("contest_probe", "middle", "probe_easier_sheets", "end", "rollouts"),
        ("contest_probe", "hard", "probe_easier_sheets", "end", "rollouts"),
        ("contest_variants", "easy", "prefix_sampling_chained", "0.6", "tokens"),
        ("contest_ledger", "ledger", "replay", "0.4", "rollouts"),
        ("zoo", "easy", "servo_adarft", "end", "rollouts"),
        ("zoo", "hard", "hints_shared", "end", "tokens"),
    ],
)
def test_ratios_in_sentences_are_those_of_the_numbers(
    contest: str, name: str, arm: str, target: str, measure: str
) -> None:
    assert interval(arms(contest, name)[arm]["spent"][target][measure], 2) in said()


@pytest.mark.parametrize(
    ("contest", "names", "arm", "words"),
    [
        ("contest", ("easy", "middle", "hard"), "pros", "by 0.129, 0.126 and 0.203"),
        ("contest", ("easy", "middle", "hard"), "greso", "+0.040, -0.060 and -0.069"),
        ("contest_variants", ("easy", "middle", "hard"), "pros_no_reuse", "0.065, 0.110 and 0.160 below"),
        ("contest_variants", ("easy", "middle", "hard"), "prefix_sampling_chained", "0.032, 0.041 and 0.052 below"),
        ("contest_variants", ("easy", "middle", "hard"), "dynamic_sampling_adaptive", "0.030, 0.042 and 0.025 below"),
        ("contest_probe", ("easy", "middle", "hard"), "easier_sheets", "+0.019 (easy), +0.059 (middle) and +0.032"),
    ],
)
def test_differences_in_sentences_are_those_of_the_numbers(
    contest: str, names: tuple[str, ...], arm: str, words: str
) -> None:
    assert words in said()
    found = [arms(contest, name)[arm]["gains"]["rollouts"][0] for name in names]
    numbers = [float(number) for number in re.findall(r"[+-]?\.\d+", words)]
    assert [abs(each) for each in numbers] == pytest.approx([abs(each) for each in found], abs=5.1e-4)


def test_the_steps_that_the_page_gives_are_those_of_the_numbers() -> None:
    regimes = [arms("contest", name) for name in ("easy", "middle", "hard")]
    ranges = {
        name: (round(min(each[name]["steps"] for each in regimes)), round(max(each[name]["steps"] for each in regimes)))
        for name in ("grpo", "frontier", "replay_frontier", "dynamic_sampling", "greso")
    }
    assert ranges["grpo"] == (120, 120) and ranges["frontier"] == (240, 240) and ranges["replay_frontier"] == (239, 239)
    assert ranges["dynamic_sampling"] == (61, 77) and ranges["greso"] == (83, 106)


@pytest.mark.parametrize(
    ("kind", "arm", "clear"),
    [
        *(("broad", "frontier_epochs", True), ("middle", "frontier_epochs", True), ("hard", "frontier_epochs", False)),
        *(("long", "replay_frontier_epochs", False), ("turns", "replay_frontier_epochs", False)),
        *(("turns", "frontier_epochs", False), ("hard", "four", False)),
    ],
)
def test_gains_in_sentences_are_those_of_the_verdict(kind: str, arm: str, clear: bool) -> None:
    gain = VERDICT["regimes"][kind]["axes"]["rollouts"][arm]["gain"]
    assert interval(gain, 3, "+") in said() and gain[3] is clear


@pytest.mark.parametrize("arm", ["replay_frontier_epochs", "frontier_epochs"])
def test_pooled_gains_in_sentences_are_those_of_the_verdict(arm: str) -> None:
    gain = VERDICT["pooled"]["rollouts"][arm]
    assert interval(gain, 3, "+") in said() and gain[3] is False


@pytest.mark.parametrize(
    ("kind", "arm", "beside", "clear"),
    [
        ("hard", "frontier_refill", "dynamic_sampling", True),
        ("broad", "frontier_refill", "dynamic_sampling", True),
        ("middle", "frontier_refill", "dynamic_sampling", False),
        ("hard", "four", "prefix_sampling_epochs", False),
        ("hard", "frontier_epochs", "frontier_told_epochs", False),
        *((kind, "remembered_epochs", "frontier_epochs", False) for kind in ("hard", "middle", "broad", "long")),
    ],
)
def test_pairs_in_sentences_are_those_of_the_verdict(kind: str, arm: str, beside: str, clear: bool) -> None:
    gain = pairs(kind, "rollouts")[arm, beside]
    assert interval(gain, 3, "+") in said() and gain[3] is clear


def pairs(kind: str, axis: str) -> dict[tuple[str, str], list[float]]:
    found = VERDICT["regimes"][kind]["pairs"]
    return {(pair["arm"], pair["beside"]): pair["gain"] for pair in found if pair["axis"] == axis}


def multiples(arm: str, kinds: Sequence[str], axis: str = "rollouts") -> list[str]:
    rows = [VERDICT["regimes"][kind]["axes"][axis][arm] for kind in kinds]
    return [number(row["ratio"][0] if "ratio" in row else None, 2) for row in rows]


def test_multiples_in_sentences_are_those_of_the_verdict() -> None:
    page = said()
    fewer = [f"{1 - float(each):.0%}".replace("%", " %") for each in multiples("frontier_epochs", ("broad", "middle"))]
    assert "{} fewer rollouts in *broad* and {} fewer in *middle*".format(*fewer) in page
    assert multiples("frontier_epochs", ["hard"]) == ["-"]
    long = interval(VERDICT["regimes"]["long"]["axes"]["rollouts"]["replay_frontier_epochs"]["ratio"], 2)
    (turns,) = multiples("replay_frontier_epochs", ["turns"])
    assert f"{long} and {turns} times the rollouts of four epochs" in page
    without = [multiples(f"four_without_{name}", ["hard"])[0] for name in ("prefix_sampling", "pros", "greso")]
    assert "Without Prefix Sampling it needs {}, without PROS {}, without GRESO {};".format(*without) in page


@pytest.mark.parametrize(("axis", "words"), [("rollouts", "needs {}"), ("tokens", "tokens {}"), ("cost_1", "| {}")])
def test_the_goals_are_judged_by_the_best_arms_without_extra_information(axis: str, words: str) -> None:
    found = []
    for kind in VERDICT["regimes"].values():
        rows = {
            arm: row
            for arm, row in kind["axes"][axis].items()
            if arm not in VERDICT["extra_information"] and "gain" in row
        }
        spent = [row["ratio"][0] for arm, row in rows.items() if row.get("ratio") and arm not in PLAIN]
        found.append(number(min(spent, default=None), 2))
    if axis != "tokens":
        reached = [each.replace("-", "not reached") for each in found]
        found = [f"{each} (*{kind}*)" for each, kind in zip(reached, VERDICT["regimes"], strict=True)]
    assert words.format(", ".join(found)) in said()


@pytest.mark.parametrize(
    ("kind", "arm"),
    [
        ("hard, verdict", "frontier_epochs"),
        ("middle, verdict", "frontier_epochs"),
        ("broad, verdict", "frontier_epochs"),
        ("long, verdict", "frontier_epochs"),
        ("hard, verdict", "remembered_mass_epochs"),
        ("hard", "signal_measured"),
        ("hard", "mass_measured"),
        ("long", "signal_measured"),
    ],
)
def test_gains_of_choosing_in_sentences_are_those_that_were_judged(kind: str, arm: str) -> None:
    assert interval(CHOOSING[kind][arm]["gain"], 3, "+") in said("README.md").split("**Answer.**")[0]


def test_gains_by_knowledge_stand_beside_the_verdicts_gains_of_the_same_recipes() -> None:
    """The verdict's areas are another computation, over all of its arms."""
    for kind in ("hard", "middle", "broad", "long"):
        areas = {arm: row["area"] for arm, row in VERDICT["regimes"][kind]["axes"]["rollouts"].items()}
        for arm, row in CHOOSING[f"{kind}, verdict"].items():
            if "gain" in row:
                assert row["runs"] == 16 and f"| {kind}, verdict |" in said("tables.md")
                assert row["gain"][0] == pytest.approx(areas[arm] - areas["grpo_epochs"], abs=0.002)


def test_losses_of_trying_again_in_sentences_are_those_that_were_judged() -> None:
    [ngu] = (row["gain"] for arm, row in CHOOSING["retries"].items() if arm == "ngu")
    assert f"{-ngu[0]:.3f} [{-ngu[2]:.3f}, {-ngu[1]:.3f}] of area below uniform" in said("tables.md")
    beside = interval(CHOOSING["retries, beside frontier"]["frontier_ngu"]["gain"], 3, "+")
    assert beside in said("tables.md")


def test_losses_in_sentences_are_those_of_the_verdict() -> None:
    gains = {
        kind: {arm: row["gain"] for arm, row in found["axes"]["rollouts"].items() if "gain" in row}
        for kind, found in VERDICT["regimes"].items()
    }
    chain = [found["chain_epochs"] for found in gains.values()]
    assert min(each[0] for each in chain) == pytest.approx(-0.021, abs=5e-4) and not any(each[3] for each in chain)
    behind = {arm for arm in VERDICT["headline"] if any(found[arm][0] < 0 for found in gains.values())}
    assert set(VERDICT["headline"]) - behind == {"replay_frontier_epochs"}
    ends = [found["grpo"][0] for found in gains.values()]
    assert f"is {number(-max(ends), 3)} to {number(-min(ends), 3)} of area behind" in said()
    alone = [number(-gains["hard"][arm][0], 3) for arm in ("prefix_sampling_epochs", "pros_epochs")]
    assert "**Prefix Sampling and PROS alone** are {} and {} behind in *hard*".format(*alone) in said()
    for kind, found in VERDICT["regimes"].items():
        for arm in ("replay_frontier_epochs", "chain_epochs"):
            lost = found["axes"]["cost_1"][arm]["gain"]
            assert (lost[0] < 0 and lost[3]) is (kind != "turns"), (kind, arm)


def test_the_front_page_has_the_verdicts_numbers() -> None:
    front = " ".join((REPOSITORY / "README.md").read_text().split())

    def fewer(arm: str, kinds: Sequence[str]) -> list[int]:
        rows = [VERDICT["regimes"][kind]["axes"]["rollouts"][arm] for kind in kinds]
        return [round(100 * (1 - row["ratio"][0])) for row in rows]

    def clear(arm: str, kinds: Sequence[str], axis: str = "rollouts") -> list[bool]:
        return [VERDICT["regimes"][kind]["axes"][axis][arm]["gain"][3] for kind in kinds]

    facts, steps = ("broad", "middle"), ("long", "turns")
    assert "two of three kinds of data: {} % and {} % fewer rollouts".format(*fewer("frontier_epochs", facts)) in front
    saved = round(100 * (1 - CHOOSING["hard"]["mass_measured"]["rollouts"]))
    assert f"measured pass rates needed {saved} % fewer than uniform choice" in front
    assert (
        all(clear("frontier_epochs", facts))
        and "ratio" not in VERDICT["regimes"]["hard"]["axes"]["rollouts"]["frontier_epochs"]
    )
    assert VERDICT["regimes"]["hard"]["baselines"]["rollouts"] == "greso"
    assert "{} % and {} % fewer rollouts (not significant)".format(*fewer("replay_frontier_epochs", steps)) in front
    assert not any(clear("replay_frontier_epochs", steps))
    dear = VERDICT["regimes"]["long"]["axes"]["cost_1"]["replay_frontier_epochs"]["gain"]
    assert dear[0] < 0 and dear[3]
    for arm in ("prefix_sampling_epochs", "pros_epochs"):
        for kind in ("hard", "long"):
            gain = VERDICT["regimes"][kind]["axes"]["rollouts"][arm]["gain"]
            assert gain[0] < 0.01 and not gain[3], (arm, kind, gain)


def test_a_second_epoch_gains_what_the_page_says() -> None:
    areas = [kind["axes"]["rollouts"] for kind in VERDICT["regimes"].values()]
    gains = [of["grpo_epochs"]["area"] - of["grpo"]["area"] for of in areas]
    assert f"{min(gains):.3f} to {max(gains):.3f} of area" in (REPOSITORY / "docs" / "choose.md").read_text()


def test_the_power_that_the_page_gives_is_what_was_simulated() -> None:
    shown = [number(row["shown"], 2) for row in POWER if row["runs"] == 16]
    assert (
        "clear in {} of 100 contests in *hard*, {} in *middle*, {} in *broad*, {} in *long* and {} in *turns*".format(
            *shown
        )
        in said()
    )
    assert max(row["equal arms called clear"] for row in POWER if row["runs"] == 16) == 0.05
    assert max(row["shown"] for row in POWER if row["runs"] == 8) == 0.26


SIGN_ROWS = {
    "zero_variance": "groups that have zero variance",
    "failed": "of them, all failed",
    "mixed_again": "visits after a mixed one that are mixed again",
    "zero_variance_after_failure": "groups after a prefix of a failure that have zero variance",
    "zero_variance_after_success": "the same where the prefix is of a success",
    "near_half": "mixed groups with 3 to 5 passes of 8",
}


def sign_row(sign: str, before: Sequence[str] = ()) -> str:
    lab = [number(share, 2) if count else "-" for share, count in (SIGNS[kind][sign] for kind in VERDICT["regimes"])]
    return " | ".join((f"| {SIGN_ROWS[sign]}", *before, *lab))


@pytest.mark.parametrize("sign", SIGN_ROWS)
def test_the_signs_of_the_lab_are_what_was_counted(sign: str) -> None:
    assert sign_row(sign) in said()


@pytest.mark.parametrize("sign", [sign for sign in SIGN_ROWS if sign != "mixed_again"])
def test_the_signs_of_the_pretrained_model_are_what_was_counted(sign: str) -> None:
    share, count = json.loads((PRETRAINED / "signs.json").read_text())["sums"][sign]
    here = number(share, 2) + (f" of {count}" if "after" in sign else "")
    assert sign_row(sign, [here]) in said(folder=PRETRAINED)


def test_the_contest_on_the_pretrained_model_is_reported_as_it_went() -> None:
    page = said(folder=PRETRAINED).replace("\\*", "*")
    front = " ".join((REPOSITORY / "README.md").read_text().split())
    found = json.loads((PRETRAINED / "verdict.json").read_text())["regimes"]["sums"]
    assert found["complete"] and set(found["runs"].values()) == {16}
    gains = {axis: rows["replay_frontier_epochs"]["gain"] for axis, rows in found["axes"].items()}
    for axis, clear in (("rollouts", False), ("cost_0.25", True), ("cost_0.5", True), ("cost_1", True)):
        value, low, high, *_ = gains[axis]
        star = "*" * clear
        assert f"{number(value, 3, '+')}{star} [{number(low, 3, '+')}, {number(high, 3, '+')}]" in page
        assert gains[axis][3] is clear
        lab = [kind["axes"].get(axis, {}).get("replay_frontier_epochs") for kind in VERDICT["regimes"].values()]
        listed = ", ".join(number(row["gain"][0], 3, "+") + "*" * row["gain"][3] for row in lab if row)
        assert listed in page
    assert "{:.3f} [{:.3f}, {:.3f}] of area".format(*gains["rollouts"][:3]) in front
    one = interval(found["axes"]["rollouts"]["grpo"]["gain"], 3, "+")
    assert one == "-0.012 [-0.043, +0.019]" and "+0.012 [-0.019, +0.043]" in page  # two epochs beside one
