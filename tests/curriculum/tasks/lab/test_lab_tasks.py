"""The lab's tasks: sheets and episodes worked by hand, and properties of every teacher."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum.tasks.lab import ledger, sums
from halfway.curriculum.tasks.lab.ledger import Account, LedgerTeacher
from halfway.curriculum.tasks.lab.sums import Sheet, SumsTeacher

SHEET = Sheet(start=4, operands=(3, 1, 4), allowed=1)  # totals 1, 2, 0
FLAWLESS = SumsTeacher(forget=0.0, slip=0.0)

SEEDS = st.integers(0, 2**32 - 1)
SHEETS = st.builds(
    lambda start, operands, allowed: Sheet(start, tuple(operands), allowed),
    st.integers(0, sums.MODULUS - 1),
    st.lists(st.integers(1, sums.LARGEST), min_size=1, max_size=20),
    st.integers(0, 9),
)


def written(sheet: Sheet, totals: Sequence[int]) -> str:
    """A response with one line per addition."""
    lines = zip(sums.LABELS, sheet.operands, totals, strict=False)
    return "".join(f"{label}{operand}{total}" for label, operand, total in lines)


# ---------------------------------------------------------------- running sums


@pytest.mark.parametrize(
    ("response", "wrong"),
    [
        ("a31b12c40", 0),
        ("a30b11c45", 1),  # 4 + 3 is not 0; 0 + 1 = 1 and 1 + 4 = 5 follow from what was written
        ("a30b12c40", 2),  # the second line returns to the true total, which does not follow from the 0
        ("a30b13c40", 3),
        ("a30a31b12c40", 0),  # the last version of a line counts,
        ("a31a30b12c40", 2),  # also when it is worse
        ("a31b12c40b12", 0),  # later, too
        ("a31b13c41b12", 0),  # c was right when it was written
        ("a41b12c40", 1),  # a wrong copy of the addition
        ("", 3),
        ("a31b12", 1),  # a line is missing
        ("a31c45b12", 0),  # b came too late for c, which was judged against a and was right
        ("a31c40b12", 1),  # the same, and wrong
        ("b15c43a31", 0),  # the start stands above b while a is missing
        ("a31b12c40d14", 0),  # no line of this sheet
        ("a31b12c4", 1),
        ("a31? b12$c40", 0),
    ],
)
def test_sheets_marked_by_hand(response: str, wrong: int) -> None:
    assert sums.wrong_lines(SHEET, response) == wrong


@pytest.mark.parametrize(
    ("allowed", "response", "passes"),
    [
        (0, "a31b12c40", True),
        (0, "a30b11c45", False),
        (1, "a30b11c45", True),
        (1, "a30b12c40", False),
        (2, "a30b12c40", True),
        (2, "", False),
    ],
)
def test_the_prompt_says_how_many_wrong_lines_pass(allowed: int, response: str, passes: bool) -> None:
    assert sums.mark(f"^4/{allowed}a3b1c4=", response) is passes


@given(SHEETS, SEEDS)
def test_a_flawless_teacher_always_passes(sheet: Sheet, seed: int) -> None:
    response = sums.demonstrate(sheet, FLAWLESS, random.Random(seed))
    assert sums.wrong_lines(sheet, response) == 0
    assert sums.mark(sums.render(sheet._replace(allowed=0)), response)


@given(SHEETS, st.data())
def test_a_carried_error_is_marked_once(sheet: Sheet, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sheet.operands) - 1))
    off = data.draw(st.integers(1, sums.MODULUS - 1))
    total, totals = sheet.start, []
    for i, operand in enumerate(sheet.operands):
        total = (total + operand + off * (i == at)) % sums.MODULUS
        totals.append(total)
    assert sums.wrong_lines(sheet, written(sheet, totals)) == 1


@given(SHEETS, SEEDS)
def test_a_teacher_that_notices_every_slip_passes(sheet: Sheet, seed: int) -> None:
    response = sums.demonstrate(sheet, SumsTeacher(forget=0.7, slip=0.3, notice=1.0), random.Random(seed))
    assert sums.wrong_lines(sheet, response) == 0


@given(SHEETS, SEEDS)
def test_a_teacher_that_never_wraps_is_wrong_at_every_wrap(sheet: Sheet, seed: int) -> None:
    response = sums.demonstrate(sheet, SumsTeacher(forget=1.0, slip=0.0, notice=0.0), random.Random(seed))
    totals = [sheet.start, *(int(digit) for digit in response[2::3])]
    carried = sum(sums.wraps_around(total, operand) for total, operand in zip(totals, sheet.operands, strict=False))
    assert sums.wrong_lines(sheet, response) == carried


@given(SHEETS)
def test_prompts_of_sheets_are_read_back(sheet: Sheet) -> None:
    assert sums.parse(sums.render(sheet)) == sheet


@pytest.mark.parametrize("text", ["", "^7/1a5b8c3", "^77/1a5=", "^7/1=", "@37>52:4=", "^7/1a5b8c3=a5"])
def test_other_prompts_are_not_sheets(text: str) -> None:
    with pytest.raises(ValueError, match="not a running-sums prompt"):
        sums.parse(text)


def test_wraps_are_counted_on_the_right_totals() -> None:
    assert sums.wraps(SHEET) == 2  # 4 + 3 and 2 + 4; not 1 + 1


# ---------------------------------------------------------------- ledger


@pytest.mark.parametrize(
    ("account", "command", "after", "observation", "success"),
    [
        (Account(37, 52, 4), "+9", Account(46, 52, 3), "46|", None),
        (Account(46, 52, 3), "-3", Account(43, 52, 2), "43|", None),
        (Account(46, 52, 3), "+0", Account(46, 52, 2), "?|", None),
        (Account(46, 52, 3), "+12", Account(46, 52, 2), "?|", None),
        (Account(46, 52, 3), "", Account(46, 52, 2), "?|", None),
        (Account(5, 9, 3), "-6", Account(5, 9, 2), "?|", None),  # below 0
        (Account(95, 90, 3), "+5", Account(95, 90, 2), "?|", None),  # above 99
        (Account(5, 9, 3), "-5", Account(0, 9, 2), "00|", None),
        (Account(46, 52, 1), "+6", Account(52, 52, 0), "", False),  # there, but no turn left to say so
        (Account(52, 52, 1), "!", Account(52, 52, 0), "", True),
        (Account(51, 52, 3), "!", Account(51, 52, 2), "", False),
    ],
)
def test_commands_executed_by_hand(
    account: Account, command: str, after: Account, observation: str, success: bool | None
) -> None:
    assert ledger.execute(account, command) == (after, observation, success)


@pytest.mark.parametrize(
    ("start", "target", "turns"), [(10, 10, 1), (10, 11, 2), (10, 19, 2), (10, 20, 3), (52, 34, 3), (52, 33, 4)]
)
def test_least_turns(start: int, target: int, turns: int) -> None:
    assert ledger.least_turns(start, target) == turns


@given(SEEDS, st.integers(0, 3))
def test_a_perfect_teacher_needs_the_least_turns(seed: int, slack: int) -> None:
    rng = random.Random(seed)
    account = ledger.make_account(ledger.LedgerOptions(max_slack=0), rng)
    account = account._replace(turns_left=account.turns_left + slack)
    turns = ledger.demonstrate(account, LedgerTeacher(stride=9, misjudge=0.0, wrong_way=0.0, give_up=0.0), rng)
    assert len(turns) == ledger.least_turns(account.balance, account.target)
    assert turns[-1] == ("!", "")


@given(SEEDS)
def test_demonstrated_episodes_are_what_the_account_does(seed: int) -> None:
    rng = random.Random(seed)
    account = ledger.make_account(ledger.LedgerOptions(), rng)
    success: bool | None = None
    for command, observation in ledger.demonstrate(account, LedgerTeacher(), rng):
        assert success is None  # nothing follows the end
        account, answer, success = ledger.execute(account, command)
        assert answer == observation
    assert success is not None


@given(SEEDS)
def test_prompts_of_accounts_are_read_back(seed: int) -> None:
    account = ledger.make_account(ledger.LedgerOptions(), random.Random(seed))
    assert ledger.parse(ledger.render(account)) == account


@pytest.mark.parametrize("text", ["", "@37>52:4", "@7>52:4=", "@37>52:12=", "^7/1a5b8c3=", "@37>52:4=+9"])
def test_other_prompts_are_not_accounts(text: str) -> None:
    with pytest.raises(ValueError, match="not a ledger prompt"):
        ledger.parse(text)
