"""Records of skipped problems: one for each round, member and reason, read back as one for each problem."""

import json

import msgspec

from halfway.curriculum.decision_log import GroupRecord, skip_records, sort_records
from halfway.curriculum.plan import Skip

SKIPS = [
    (0, Skip("a", "greso", "hard")),
    (0, Skip("b", "greso", "easy")),
    (0, Skip("c", "greso", "hard")),
    (1, Skip("a", "greso", "hard")),
    (1, Skip("d", "retire", "retired")),
]


def read(lines: list[str]) -> list[GroupRecord]:
    decoded: list[GroupRecord] = msgspec.json.Decoder(GroupRecord).decode_lines("\n".join(lines))
    return decoded


def test_each_skipped_problem_comes_back_with_its_reason() -> None:
    lines = [json.dumps(record) for record in skip_records(SKIPS, step=7)]
    assert [json.loads(line)["round"] for line in lines] == [0, 0, 1, 1]
    skips = sort_records(read(lines)).skips
    assert [(skip.problem, skip.reason) for skip in skips] == [
        ("a", "greso: hard"),
        ("c", "greso: hard"),
        ("b", "greso: easy"),
        ("a", "greso: hard"),
        ("d", "retire: retired"),
    ]
    assert {skip.step for skip in skips} == {7} and not any(skip.problems for skip in skips)
    assert sort_records(read(lines), last_step=6).skips == []


def test_a_record_of_one_skipped_problem_is_read_too() -> None:
    """Earlier versions wrote one each."""
    [record] = skip_records(SKIPS[:1], step=0)
    old = {**record, "problem": "a"}
    del old["problems"]
    [skip] = sort_records(read([json.dumps(old)])).skips
    assert (skip.problem, skip.outcome) == ("a", "skipped")


def test_a_skip_takes_twenty_bytes() -> None:
    skips = [(0, Skip(f"problem-{i}", "greso", "hard")) for i in range(10_000)]
    size = sum(len(json.dumps(record, separators=(",", ":"))) for record in skip_records(skips, 0))
    assert size <= 20 * len(skips)
