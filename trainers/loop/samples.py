"""Prompts and responses of a run for reading: samples.jsonl, one line per group, the same bytes for equal runs.

For `PROBLEMS` problems, the same in all runs on the same data, groups are kept at visits 1, 2, 3, 4, 6, 8, 12, 16 and
so on, which covers early, middle and late visits of a run of any length. Two passing and two failing rollouts of each
group are kept, with texts of at most `LETTERS` letters.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum import Group, Origin, Rollout
from halfway.curriculum.decision_log import GroupRecord, sort_records
from halfway.curriculum.support.atomic import blocks_of_lines, reading

PROBLEMS, EACH, LETTERS = 8, 2, 4000
REMEDY = "put the whole file back"
Decode = Callable[[Sequence[int]], str]


class Samples:
    """Chooses which groups and rollouts of a run are kept.

    Args:
        problems: the ids to choose from.
        decode: the text of tokens.
        decisions: the decision log of the run, from which a resumed run counts earlier visits.
    """

    def __init__(self, problems: Sequence[str], decode: Decode, decisions: Path):
        self.chosen = frozenset(nsmallest(PROBLEMS, problems, key=lambda name: blake2b(name.encode()).digest()))
        self.decode, self.decisions = decode, decisions
        self._visits: Counter[str] | None = None

    def records(self, groups: Sequence[Group], step: int) -> Iterator[Mapping[str, Any]]:
        """The lines on the groups of a step. Call it once per step, before its decisions are logged."""
        if self._visits is None:
            self._visits = Counter(self._logged())
        for group in groups:
            name = group.request.problem.id
            if name in self.chosen and group.size:
                self._visits[name] += 1
                if kept(self._visits[name]):
                    yield self._record(group, step, self._visits[name])

    def _logged(self) -> Iterator[str]:
        """The problem of each rolled-out group in the decision log; of a group that waited, once per step."""
        decoder, records = msgspec.json.Decoder(GroupRecord), list[GroupRecord]()
        with reading(self.decisions, REMEDY):
            for lines in blocks_of_lines(self.decisions, REMEDY):
                records += (one for one in decoder.decode_lines(lines) if one.problem in self.chosen)
        groups = sort_records([replace(one, earlier_k=0, earlier_n=0) for one in records]).groups
        return (group.problem for group in groups if group.scored and group.origin != Origin.STORED)

    def _record(self, group: Group, step: int, visit: int) -> Mapping[str, Any]:
        request = group.request
        sides = [[one for one in group.rollouts if one.success is passed][:EACH] for passed in (True, False)]
        return {
            "step": step,
            "problem": request.problem.id,
            "visit": visit,
            "origin": str(request.origin),
            "k": group.num_passed,
            "n": group.size,
            "decisions": [list(decision) for decision in request.decisions],
            "prompt": self._text(group.prompt_tokens_P) or shorten(request.problem.prompt),
            "hint": shorten(request.hint.text) if request.hint else "",
            "rollouts": [self._rollout(one) for side in sides for one in side],
        }

    def _rollout(self, rollout: Rollout) -> Mapping[str, Any]:
        turns = [
            {
                "replayed": self._text(turn.tokens_T[: turn.num_replayed]),
                "text": self._text(turn.tokens_T[turn.num_replayed :]),
                "observation": shorten(turn.observation),
            }
            for turn in rollout.turns
        ]
        return {"passed": rollout.success, "truncated": rollout.truncated, "turns": turns}

    def _text(self, tokens: Any) -> str:
        return shorten(self.decode(tokens.tolist())) if len(tokens) else ""


def kept(visit: int) -> bool:
    """True if a visit is among 1, 2, 3, 4, 6, 8, 12, 16, ...: powers of two, and halfway between them."""
    return visit >> max(visit.bit_length() - 2, 0) << max(visit.bit_length() - 2, 0) == visit


def shorten(text: str) -> str:
    """The text, or its beginning and end with the number of omitted letters between them."""
    if len(text) <= LETTERS:
        return text
    half = LETTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} letters ...]\n{text[-half:]}"
