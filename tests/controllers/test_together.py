"""Pairs and triples of all members, with options, in every accepted order, keep the laws of chains.

CI runs a few hundred chains. `HALFWAY_CHAINS=5000 HALFWAY_CHAINS_TABLE=PATH pytest tests/controllers/test_together.py`
runs that many, other ones, and writes the numbers of the page experiments/results/do_members_share_a_chain.
"""

import itertools
import json
import os
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from halfway.controllers import CONTROLLERS
from halfway.controllers.chains import Member, members
from halfway.curriculum import Session, Stream, UserError
from halfway.curriculum.controller import NEEDS
from halfway.testing import Conduct, SimulatedRollouts, check_pairs, check_together, sample_problems
from halfway.testing.together import arranged

NUMBER = int(os.environ.get("HALFWAY_CHAINS", "1500"))
TABLE = os.environ.get("HALFWAY_CHAINS_TABLE", "")


def of(**choices: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Options, each from its list or strategy."""
    return st.fixed_dictionaries(
        {name: each if isinstance(each, st.SearchStrategy) else st.sampled_from(each) for name, each in choices.items()}
    )


BELIEF = of(
    kind=["hierarchical", "beta", "last_rate", "measured"], forgetting=[0.0, 0.9, 1.0], decay_on=["step", "observe"]
)
LAW = of(kind=["nearest", "band", "mass", "straddle"], target=[0.3, 0.5, 0.9])
OPTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "bandit": of(kind=["sec", "dump", "learnability", "survival", "thompson"], window=[1, 300], floor=[None, 0.3]),
    "bots": of(rho=[0.0, 0.5], adaptive=[False, True], law=LAW),
    "cdas": of(shrink=[False, True], law=LAW),
    "downsample": of(keep=[0.25, 0.5, 0.9], baseline=["selected", "group"]),
    "frontier": of(
        features=[["category"], ["category", "embedding"]],
        worth=["signal", "gain", "mass"],
        sharpness=[0.0, 4.0],
        candidates=[None, 1, 64],
        rates=["believed", "measured"],
        model=of(memory=[0.0, 0.98, 1.0], residual=[0.0, 1.5]),
    ),
    "greso": of(streaks=["separate", "joint"], frozen_epochs=[0, 1], floor=[0.001, 0.01, 1.0]),
    "hints": of(
        kind=["reverse", "shared", "adaprefix", "schedule", "ghpo", "seele"],
        place=["prompt", "response"],
        tries=[1, 2],
        stage_steps=[1, 6],
    ),
    "knapsack": of(most=[16, 128], certainty=[0.5, 1.0], alpha=[0.5, 1.0]),
    "lilo": of(share=[0.1, 0.25, 0.9]),
    "ragen": of(mass=[0.1, 0.9]),
    "maxrl": of(cap=[1.0, 4.0]),
    "mixture": of(rho=[0.0, 0.25, 1.0], worth=["groups", "mass"], floor=[0.1, 1.0], memory=[0.0, 0.9]),
    "mopps": of(candidates=[None, 1, 16], belief=BELIEF, law=LAW),
    "ngu": of(size=[0, 2, 4], again=[0.0, 0.5, 0.9, 1.0], age=[None, 1, 4], patience=[1, 32]),
    "pilot": st.one_of(
        of(kind=["speed", "hora"], initial=[2, 4]),
        of(kind=["commit"], initial=[2, 4], commits=[0, 2], patience=[0, 2]),
    ),
    "prefix_sampling": of(
        variant=["buckets", "categories"],
        control=["adaptive", "fixed"],
        sides=["both", "hard", "easy"],
        max_share=[0.2, 1.0],
        max_age=[1, 3],
    ),
    "probe": of(
        share=[0.1, 0.5, 1.0],
        selection=["target", "random"],
        tries=[1, 3],
        band=[[0.0, 1.0], [0.2, 0.8]],
        impossible=[0.0, 0.5],
    ),
    "pros": of(
        selection=["target", "random", "mass"],
        exploration=[0.0, 0.1, 1.0],
        per_tree=[None, 1],
        reuse=[True, True, False],
        grandchildren=[True, False],
        tree_children=[1, 8],
        total_children=[5, 65536],
    ),
    "replay": of(
        capacity=[1, 5, 512],
        share=[0.25, 0.9],
        uses=[None, 1],
        age=[None, 1, 5],
        matched=[False, True],
        order=["random", "rare"],
        tokens=[200, 2_000_000],
        failures=[0, 2],
    ),
    "retire": of(above=[0.1, 0.9, 1.0], returns=[None, 1, 5], belief=BELIEF),
    "rounds": of(stop=["balanced", "positive"], rounds=[2, 4], size=[0, 2], keep=[0, 2, 4]),
    "reinforce_ada": of(),
    "ar3po": of(size=[0, 4]),
    "ngu_rounds": of(rounds=[2, 8]),
    "servo": of(rule=["adarft", "cosine", "gaussian"], bounds=[[-3.0, 6.0]], steps=[1, 20]),
    "signal": of(kind=["rl_zvp", "ngrpo"], virtual=[1, 3]),
    "uniform": of(),
    "vcrl": of(early_steps=[0, 20]),
}
CHOOSERS = [name for name in OPTIONS if "problems" in CONTROLLERS.get(name)().claims]
OTHERS = sorted(set(OPTIONS) - set(CHOOSERS))
CONDUCT = st.builds(
    Conduct,
    seed=st.integers(0, 10_000),
    steps=st.just(6),
    size=st.integers(1, 16),
    wanted=st.sampled_from([1, 3, 8, 12]),
    problems=st.sampled_from([10, 20, 40]),
    generated=st.sampled_from([3, 60]),
    skill=st.sampled_from([-9.0, -1.5, 0.0, 1.5, 9.0]),
    unit=st.sampled_from(["tokens", "tokens", "steps"]),
    late=st.sampled_from([0.0, 0.3, 0.7]),
    lost=st.sampled_from([0.0, 0.3]),
    pieces=st.sampled_from([0.0, 0.5]),
    cut=st.sampled_from([0.0, 0.4]),
    overdue=st.sampled_from([0.0, 0.3]),
    partial=st.booleans(),
    trains_truncated=st.booleans(),
    resumes=st.frozensets(st.integers(0, 5), max_size=2),
)


CLAIMS = {name: CONTROLLERS.get(name)().claims for name in OPTIONS}
SHARING = [pair for pair in itertools.combinations(sorted(OPTIONS), 2) if CLAIMS[pair[0]].isdisjoint(CLAIMS[pair[1]])]


@st.composite
def chains(draw: st.DrawFn, pair: tuple[str, str]) -> list[dict[str, dict[str, Any]]]:
    """The pair in any order, with a third member: one that chooses problems, if neither does."""
    claimed = CLAIMS[pair[0]] | CLAIMS[pair[1]]
    thirds = [name for name in OPTIONS if name not in pair and claimed.isdisjoint(CLAIMS[name])]
    if "problems" not in claimed:
        thirds = [name for name in thirds if name in CHOOSERS]
    names = draw(st.permutations([*pair, *draw(st.lists(st.sampled_from(thirds), min_size=1, max_size=1))]))
    return [{name: draw(OPTIONS[name])} for name in names]


@dataclass
class Tally:
    """The outcomes of the chains."""

    chains: Counter[str]
    pairs: Counter[tuple[str, str]]
    observed: int = 0
    reordered: int = 0


TALLY = Tally(Counter(), Counter())


@pytest.mark.parametrize("pair", SHARING, ids=" ".join)
def test_whatever_may_share_a_chain_works_in_it(pair: tuple[str, str]) -> None:
    @seed(zlib.crc32(" ".join(pair).encode()))
    @settings(
        max_examples=max(2, NUMBER // len(SHARING)),
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(entries=chains(pair), conduct=CONDUCT)
    def run(entries: list[dict[str, Any]], conduct: Conduct) -> None:
        try_chain(entries, conduct)

    run()


def try_chain(entries: list[dict[str, Any]], conduct: Conduct) -> None:
    chosen = [name for entry in entries for name in entry]
    try:
        listed = members(entries)
    except UserError:
        TALLY.chains["options refused"] += 1
        return
    chain = arranged(listed)  # a refusal names the order that works
    if chain is None:
        TALLY.chains["claims shared, by their options"] += 1
        return
    TALLY.reordered += list(chain.members) != chosen
    try:
        TALLY.observed += check_together(chain, conduct)
    except UserError as error:
        assert "\n" not in str(error) and ("; " in str(error) or "must be " in str(error))
        TALLY.chains["numbers refused"] += 1
        return
    TALLY.chains["run"] += 1
    TALLY.pairs.update(itertools.combinations(sorted(chosen), 2))


def test_most_chains_were_run_and_the_table_is_written() -> None:
    drawn = sum(TALLY.chains.values())
    if drawn < NUMBER // 2:
        pytest.skip("only some pairs were asked for")
    assert TALLY.chains["run"] > 0.5 * drawn
    if TABLE:
        pairs = {f"{one} {other}": number for (one, other), number in sorted(TALLY.pairs.items())}
        found = {"chains": dict(TALLY.chains), "reordered": TALLY.reordered, "groups": TALLY.observed, "pairs": pairs}
        Path(TABLE).write_text(json.dumps(found, indent=1) + "\n")


def test_every_pair_and_triple_is_accepted_in_some_order_or_shares_a_claim() -> None:
    parts = {name: Member(name, CONTROLLERS.get(name)(), name) for name in CONTROLLERS.names()}
    refused = []
    for number in (2, 3):
        for names in itertools.combinations(parts, number):
            listed = [parts[name] for name in names]
            claims = Counter(claim for member in listed for claim in member.part.claims)
            if "problems" not in claims:
                listed.append(parts["uniform"])
            lonely = (
                "quotas" in claims and not claims.keys() & {"generated", "stored"} and "prefix_sampling" not in names
            )
            if (arranged(listed) is None) is not (max(claims.values(), default=0) > 1 or lonely):
                refused.append(names)
    assert refused == []


def test_one_line_runs_a_controller_with_all_that_may_share_its_chain() -> None:
    tried = check_pairs(CONTROLLERS.get("probe")(), [Conduct(steps=2, wanted=4)])
    assert set(tried) == {name for name in OPTIONS if not CLAIMS[name] & CLAIMS["probe"]}


SMALL = {"replay": {"capacity": 4}, "pros": {"tree_children": 2, "total_children": 8}, "bandit": {"window": 10}}


@pytest.mark.parametrize("name", CONTROLLERS.names())
def test_no_state_grows_with_steps(name: str) -> None:
    company = ["replay", "uniform"] if name == "mixture" else ["uniform"]
    own = CLAIMS[name] & CLAIMS["uniform"]
    entries = [{each: SMALL.get(each, {})} for each in ([name] if own else [name, *company])]
    chain = arranged(members(entries))
    assert chain is not None
    session, sizes = Session(sample_problems(10, 10), chain, 6, provides=NEEDS), {}
    for step in range(60):
        for round_ in range(3):
            tickets = session.next_batch(0 if round_ else 4)
            asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
            for group in SimulatedRollouts(length=6).run(asked, Stream(0).at(step, round_)):
                session.record_group(group.request.ticket, group)
            if not session.continues:
                break
        session.commit()
        sizes[step] = len(json.dumps(session.state_dict()))
    assert sizes[59] < 1.1 * max(sizes[step] for step in range(20, 40)) + 500


def test_options_of_every_member_are_drawn() -> None:
    assert sorted(OPTIONS) == CONTROLLERS.names()
