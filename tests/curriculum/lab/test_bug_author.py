"""The author whose habits the lab's generator of bugs learns: what it writes, and how often."""

import random
from collections import Counter

from halfway.curriculum.domains.base import Invalid
from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.bug_author import HABITS, TWICE, BugAuthor, spoil, write_bug
from halfway.curriculum.lab.micro.bugs_domain import Bug, Bugs
from halfway.curriculum.lab.micro.repositories import LINE, MicroOptions

DOMAIN = Bugs(repositories=40, micro=MicroOptions(branches=1.0))


def test_the_author_has_its_habits() -> None:
    rng, prompts = random.Random(0), list(DOMAIN.known)
    kinds: Counter[str] = Counter()
    for prompt in prompts * 30:
        repository = DOMAIN.known[prompt][1]
        read = DOMAIN.parse(write_bug(BugAuthor(flawed=0.0), repository, rng), prompt)
        assert isinstance(read, Bug), read
        kinds[read.kind] += 1
        # Whatever it is, the grammar has such lines: it runs, and differs from what stands there.
        assert LINE.fullmatch(read.text) and read.text != repository.lines(read.function)[read.line - 1]
    # All kinds have a place in each of these repositories; two mutations of a line are none of the domain's.
    assert set(kinds) == {*micro.KINDS, "other"}
    for kind, share in HABITS.items():
        assert abs(kinds["other" if kind == TWICE else kind] / 1200 - share) < 4 * (share * (1 - share) / 1200) ** 0.5


def test_what_is_spoilt_is_no_bug() -> None:
    rng, reasons = random.Random(0), Counter[str]()
    for prompt, (_, repository) in DOMAIN.known.items():
        for _ in range(5):
            read = DOMAIN.parse(spoil(repository, rng), prompt)
            reasons["no grammar" if isinstance(read, Bug) else read.reason] += 1
            assert isinstance(read, Invalid) or not LINE.fullmatch(read.text)
    assert set(reasons) == {"changes nothing", "no such line", "no grammar"} and min(reasons.values()) > 40


def test_one_text_in_eight_is_spoilt() -> None:
    rng, prompts = random.Random(1), list(DOMAIN.known)
    sound = 0
    for prompt in prompts * 30:
        read = DOMAIN.parse(write_bug(BugAuthor(), DOMAIN.known[prompt][1], rng), prompt)
        sound += isinstance(read, Bug) and LINE.fullmatch(read.text) is not None
    assert abs(sound / 1200 - 0.88) < 4 * (0.88 * 0.12 / 1200) ** 0.5
