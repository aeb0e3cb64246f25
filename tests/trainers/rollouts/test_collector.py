import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from messages import says
from msgspec import structs
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from halfway.curriculum import Group, Origin, Prefix, Problem, Request, Rollout, Stream, Unit, UserError, cut
from halfway.curriculum.decision_log import group_record
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.environments.ledger_turns import Ledger, LedgerEpisode
from halfway.trainers.engines.contract import Completion, Engine, EngineSetup, Finished
from halfway.trainers.engines.transformers.engine import TransformersEngine
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.rollouts import collector as judging
from halfway.trainers.rollouts.attempts import Replays
from halfway.trainers.rollouts.collector import Collector
from halfway.trainers.rollouts.sampling_process import Sampler

END = 1
STREAM = Stream(0, ("test",))


@dataclass
class Script(Engine):
    """An engine that answers by a function of (text read so far, seed), and remembers what it was asked."""

    tokenizer: PreTrainedTokenizerFast
    answer: Callable[[str, int], str]
    delay: float = 0.0
    contexts: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    calls: int = 0
    policy_version: int = 0

    def generate(
        self,
        contexts: Sequence[np.ndarray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        self.calls += 1
        time.sleep(self.delay)
        completions = [self._one(*call) for call in zip(contexts, max_new_tokens, seeds, strict=True)]
        for i, completion in enumerate(completions if finished else ()):
            finished(i, completion)
        return completions

    def _one(self, context: np.ndarray, limit: int, seed: int) -> Completion:
        text = self.tokenizer.decode(context.tolist(), skip_special_tokens=True)
        self.contexts.append(text)
        self.limits.append(limit)
        self.seeds.append(seed)
        tokens = [*self.tokenizer.encode(self.answer(text, seed), add_special_tokens=False), END]
        tokens_T = np.asarray(tokens[:limit], np.int32)
        constant_T = np.full(len(tokens_T), 0.5, np.float32)
        return Completion(
            tokens_T, -constant_T, constant_T, "end" if len(tokens) <= limit else "length", self.policy_version
        )

    def sync(self, policy: Any, version: int) -> None:
        self.policy_version = version


@dataclass
class OneTurn(Environment[Problem]):
    """Passes if the response is the answer."""

    unit: Unit = "tokens"
    max_turns: int = 1
    judged: list[str] = field(default_factory=list)

    def start(self, problems: Sequence[Problem]) -> list[Problem]:
        return list(problems)

    def step(self, episodes: Sequence[Problem], responses: Sequence[str]) -> list[StepResult[Problem]]:
        self.judged += responses
        return [StepResult(e, success=r == e.answer) for e, r in zip(episodes, responses, strict=True)]


@dataclass(frozen=True)
class Count:
    """State of a `Counting` episode."""

    target: int
    number: int
    total: int = 0
    steps: int = 0


@dataclass
class Counting(Environment[Count]):
    """ "+d" adds to a total, which is shown; anything else ends the episode, which passes at the target."""

    unit: Unit = "steps"
    max_turns: int = 8
    started: int = 0
    stepped: list[Count] = field(default_factory=list)

    def start(self, problems: Sequence[Problem]) -> list[Count]:
        first, self.started = self.started, self.started + len(problems)
        return [Count(int(problem.answer), first + i) for i, problem in enumerate(problems)]

    def step(self, episodes: Sequence[Count], responses: Sequence[str]) -> list[StepResult[Count]]:
        self.stepped += episodes
        return [self.one(episode, response) for episode, response in zip(episodes, responses, strict=True)]

    def one(self, episode: Count, response: str) -> StepResult[Count]:
        if not response.startswith("+"):
            return StepResult(episode, success=episode.total == episode.target)
        after = replace(episode, total=episode.total + int(response[1:]), steps=episode.steps + 1)
        if after.steps == self.max_turns:
            return StepResult(after, success=False, truncated=True)
        return StepResult(after, observation=f"={after.total};")


@dataclass
class Drifting(Counting):
    """Answers the episodes of the second run differently from those of the first, or ends them."""

    first_run: int = 2
    ends: bool = False

    def one(self, episode: Count, response: str) -> StepResult[Count]:
        result = super().one(episode, response)
        if episode.number < self.first_run:
            return result
        return replace(result, success=False) if self.ends else replace(result, observation="=0;")


def count_to_the_target(read: str, seed: int) -> str:
    """Adds 1 until the total, of which "=n;" is the last word, is 4."""
    total = int(read.rsplit("=", 1)[1].rstrip(";")) if "=" in read else 0
    return "." if total == 4 else "+1"


def problem(name: str = "p", prompt: str = "ab", answer: str = "4") -> Problem:
    return Problem(name, prompt, answer)


def prefix(rollout: Rollout, length: int, unit: Unit) -> Prefix:
    return Prefix(cut(rollout, length, unit), length, unit, 1, 2, True)


def prefixed(of: Problem, rollout: Rollout, length: int, unit: Unit, num_rollouts: int = 2) -> Request:
    return Request(of, num_rollouts, Origin.PREFIX, prefix(rollout, length, unit))


def contents(group: Group) -> list[Any]:
    """All that a rollout is, in comparable form."""
    return [
        [(t.tokens_T.tolist(), t.logprobs_T.tolist(), t.num_replayed, t.stop, t.observation) for t in rollout.turns]
        + [rollout.success, rollout.truncated]
        for rollout in group.rollouts
    ]


# One turn.


def test_groups_come_in_request_order_with_scored_rollouts(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, lambda read, seed: "7" if read == "3+4=" else str(seed % 2))
    engine.sync(None, 5)
    collector = Collector(engine, OneTurn(), tiny_tokenizer, 8)
    asked = [problem("b", "3+4=", "7"), problem("a", "1+0=", "1")]
    groups = collector.run([Request(asked[0], 3), Request(asked[1], 64, Origin.GENERATED)], STREAM)

    assert engine.calls == 1
    assert [(g.request.problem.id, g.size, g.policy_version, g.unit) for g in groups] == [
        ("b", 3, 5, "tokens"),
        ("a", 64, 5, "tokens"),
    ]
    assert groups[0].num_passed == 3
    assert 10 < groups[1].num_passed < 54  # every rollout has its own seed
    assert groups[0].prompt_tokens_P.tolist() == tiny_tokenizer.encode("3+4=")
    (turn,) = groups[0].rollouts[0].turns
    assert turn.tokens_T.tolist() == [*tiny_tokenizer.encode("7"), END]
    assert (turn.num_replayed, turn.stop, turn.observation) == (0, "end", "")
    assert groups[0].num_generated == 6 and groups[0].dropped == {}


def test_every_turn_says_which_weights_wrote_it(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Weights that change between the turns of an episode, as when an engine is synced while it samples."""

    class Moving(Script):
        def generate(self, *calls: Any) -> list[Completion]:
            self.sync(None, self.policy_version + 1)
            return super().generate(*calls)

    engine = Moving(tiny_tokenizer, lambda read, seed: "." if read.endswith("=2;") else "+1", policy_version=3)
    collector = Collector(engine, Counting(), tiny_tokenizer, 40)
    base = problem(answer="2")
    (parent,) = collector.run([Request(base, 2)], STREAM)
    assert [[turn.policy_version for turn in rollout.turns] for rollout in parent.rollouts] == [[4, 5, 6]] * 2
    assert parent.policy_versions == (4, 5, 6) and parent.policy_version == 4
    request = prefixed(base, parent.rollouts[0], 2, "steps")
    assert request.prefix is not None and request.prefix.policy_version == 5
    (child,) = collector.run([request], STREAM)
    assert [turn.policy_version for turn in child.rollouts[0].turns] == [4, 5, 7]
    assert child.policy_versions == (7,)  # what is replayed was written before


def test_no_request_gives_no_group(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, lambda read, seed: "7")
    assert Collector(engine, OneTurn(), tiny_tokenizer, 8).run([], STREAM) == []
    assert engine.calls == 0


def test_prefix_tokens_are_context_and_masked(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, lambda read, seed: "c" if read == "abab" else "abab")
    environment = OneTurn()
    collector = Collector(engine, environment, tiny_tokenizer, 10)
    base = problem(answer="abc")
    (parent,) = collector.run([Request(base, 1)], STREAM)
    (child,) = collector.run([prefixed(base, parent.rollouts[0], 2, "tokens")], STREAM)

    assert engine.contexts[1:] == ["abab"] * 2  # the prompt, then the prefix
    assert engine.limits == [10, 8, 8]  # what was replayed counts toward the limit
    assert environment.judged == ["abab", "abc", "abc"]  # the verifier sees the whole response
    assert child.num_passed == 2 and child.num_generated == 4
    assert child.prompt_tokens_P.tolist() == tiny_tokenizer.encode("ab")
    for rollout in child.rollouts:
        (turn,) = rollout.turns
        assert turn.tokens_T.tolist() == [*tiny_tokenizer.encode("abc"), END]
        assert (turn.num_replayed, rollout.num_replayed, rollout.num_generated) == (2, 2, 2)
        assert turn.logprobs_T.tolist() == [0, 0, -0.5, -0.5]
        assert turn.entropies_T.tolist() == [0, 0, 0.5, 0.5]


def test_a_response_cut_by_the_limit_fails_without_being_judged(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    environment = OneTurn()
    collector = Collector(Script(tiny_tokenizer, lambda read, seed: "777"), environment, tiny_tokenizer, 3)
    (group,) = collector.run([Request(problem(answer="777"), 2)], STREAM)
    assert [(r.success, r.truncated, r.turns[0].stop) for r in group.rollouts] == [(False, True, "length")] * 2
    assert environment.judged == []


def test_a_prefix_that_leaves_no_token_is_dropped_and_counted(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, lambda read, seed: "777")
    wide, narrow = (Collector(engine, OneTurn(), tiny_tokenizer, limit) for limit in (8, 3))
    (parent,) = wide.run([Request(problem(), 1)], STREAM)
    (full,) = narrow.run([prefixed(problem(), parent.rollouts[0], 3, "tokens")], STREAM)
    (room,) = narrow.run([prefixed(problem(), parent.rollouts[0], 2, "tokens")], STREAM)
    assert (full.size, full.dropped) == (0, {"no_room": 2})
    assert (room.size, room.dropped) == (2, {})


class Patient(Script):
    """Ends its first sequence, and goes on only when that one is judged."""

    judged: threading.Event

    def generate(self, contexts: Any, max_new_tokens: Any, seeds: Any, finished: Finished | None = None) -> Any:
        assert finished is not None
        completions = [self._one(*call) for call in zip(contexts, max_new_tokens, seeds, strict=True)]
        for i, completion in enumerate(completions):
            finished(i, completion)
            assert self.judged.wait(timeout=30)
        return completions


def test_finished_rollouts_are_judged_while_others_are_still_sampled(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    class Telling(OneTurn):
        def step(self, episodes: Any, responses: Any) -> Any:
            engine.judged.set()
            return super().step(episodes, responses)

    engine = Patient(tiny_tokenizer, lambda read, seed: "7")
    engine.judged = threading.Event()
    (group,) = Collector(engine, Telling(), tiny_tokenizer, 8).run([Request(problem(answer="7"), 3)], STREAM)
    assert group.num_passed == 3


def test_a_verifier_that_raises_ends_the_run(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    class Broken(OneTurn):
        def step(self, episodes: Any, responses: Any) -> Any:
            raise UserError("verifier: broken")

    engine = Script(tiny_tokenizer, lambda read, seed: "7")
    with pytest.raises(UserError, match="verifier: broken"):
        Collector(engine, Broken(), tiny_tokenizer, 8).run([Request(problem(), 3)], STREAM)


# Many turns.


def test_turns_are_read_back_with_their_observations(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    (group,) = Collector(engine, Counting(), tiny_tokenizer, 40).run([Request(problem(), 1)], STREAM)
    (rollout,) = group.rollouts
    assert rollout.success and not rollout.truncated and group.unit == "steps"
    assert [turn.observation for turn in rollout.turns] == ["=1;", "=2;", "=3;", "=4;", ""]
    assert engine.contexts == ["ab", "ab+1=1;", "ab+1=1;+1=2;", "ab+1=1;+1=2;+1=3;", "ab+1=1;+1=2;+1=3;+1=4;"]
    assert engine.limits == [40, 37, 34, 31, 28]  # three response tokens per turn; observations are free
    assert rollout.turns[1].observation_tokens_O.tolist() == tiny_tokenizer.encode("=2;")


def test_an_episode_out_of_tokens_or_turns_is_truncated(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    exact, within, turns = (
        Collector(engine, Counting(max_turns=limit), tiny_tokenizer, tokens).run([Request(problem(), 1)], STREAM)[0]
        for limit, tokens in ((8, 9), (8, 8), (2, 40))
    )
    expected = [(exact, 3, 9, "end"), (within, 3, 8, "length"), (turns, 2, 6, "end")]
    for group, num_turns, tokens, stop in expected:
        (rollout,) = group.rollouts
        assert (rollout.success, rollout.truncated) == (False, True)
        assert (len(rollout.turns), rollout.num_generated, rollout.turns[-1].stop) == (num_turns, tokens, stop)
        assert rollout.turns[-1].observation == "" and len(rollout.turns[-1].observation_tokens_O) == 0


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_replay_reconstructs_the_recorded_episode_without_the_engine(
    tiny_tokenizer: PreTrainedTokenizerFast, length: int
) -> None:
    parent_engine, child_engine = (Script(tiny_tokenizer, count_to_the_target) for _ in range(2))
    recorded, rebuilt = Counting(), Counting()
    (parent,) = Collector(parent_engine, recorded, tiny_tokenizer, 40).run([Request(problem(), 1)], STREAM)
    request = prefixed(problem(), parent.rollouts[0], length, "steps", num_rollouts=1)
    (child,) = Collector(child_engine, rebuilt, tiny_tokenizer, 40).run([request], STREAM)

    assert rebuilt.stepped[length:] == recorded.stepped[length:]  # equal states, from where the prefix ends
    assert child_engine.calls == parent_engine.calls - length == 5 - length
    assert child_engine.contexts == parent_engine.contexts[length:]
    assert child_engine.limits == parent_engine.limits[length:]
    (rollout,) = child.rollouts
    assert rollout.success and child.dropped == {}
    for i, (turn, original) in enumerate(zip(rollout.turns, parent.rollouts[0].turns, strict=True)):
        assert turn.tokens_T.tolist() == original.tokens_T.tolist()
        assert turn.observation == original.observation
        assert turn.num_replayed == (3 if i < length else 0) and turn.num_generated == (
            0 if i < length else turn.num_generated
        )
        assert turn.logprobs_T.any() == (i >= length) and turn.entropies_T.any() == (i >= length)


@dataclass
class Watched(Environment[LedgerEpisode]):
    """The ledger, and every episode that was stepped in it."""

    ledger: Ledger = field(default_factory=Ledger)
    stepped: list[LedgerEpisode] = field(default_factory=list)
    unit: Unit = "steps"
    max_turns: int = 9

    def start(self, problems: Sequence[Problem]) -> list[LedgerEpisode]:
        return self.ledger.start(problems)

    def step(self, episodes: Sequence[LedgerEpisode], responses: Sequence[str]) -> list[StepResult[LedgerEpisode]]:
        self.stepped += episodes
        return self.ledger.step(episodes, responses)


def play_the_ledger(read: str, seed: int) -> str:
    """A wrong first command and a refused second one; then straight to the balance 52."""
    balances = read.split("=", 1)[1].split("|")[:-1]
    if len(balances) < 2:
        return ["-4", "+0"][len(balances)]
    missing = 52 - (33 if balances[-1].endswith("?") else int(balances[-1][-2:]))
    return f"+{min(9, missing)}" if missing else "!"


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_replay_reconstructs_the_state_of_the_ledger(tiny_tokenizer: PreTrainedTokenizerFast, length: int) -> None:
    account = Problem("l", "@37>52:7=", "52")
    parent_engine, child_engine = (Script(tiny_tokenizer, play_the_ledger) for _ in range(2))
    recorded, rebuilt = Watched(), Watched()
    (parent,) = Collector(parent_engine, recorded, tiny_tokenizer, 40).run([Request(account, 1)], STREAM)
    assert parent.num_passed == 1
    assert [turn.observation for turn in parent.rollouts[0].turns] == ["33|", "?|", "42|", "51|", "52|", ""]
    (child,) = Collector(child_engine, rebuilt, tiny_tokenizer, 40).run(
        [prefixed(account, parent.rollouts[0], length, "steps", num_rollouts=1)], STREAM
    )
    assert rebuilt.stepped == recorded.stepped  # the same states, turn by turn, replayed and fresh
    assert child_engine.contexts == parent_engine.contexts[length:]
    assert child_engine.calls == parent_engine.calls - length
    assert child.num_passed == 1 and child.dropped == {}


def test_replaying_takes_less_time_than_generating(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target, delay=0.02)
    collector = Collector(engine, Counting(), tiny_tokenizer, 40)
    began = time.perf_counter()
    (parent,) = collector.run([Request(problem(), 4)], STREAM)
    generated = time.perf_counter()
    collector.run([prefixed(problem(), parent.rollouts[0], 4, "steps", num_rollouts=4)], STREAM)
    replayed = time.perf_counter()
    assert replayed - generated < 0.5 * (generated - began)  # one turn in five is left to the engine


@pytest.mark.parametrize("ends", [False, True])
def test_a_diverged_replay_is_rolled_out_from_the_beginning(
    tiny_tokenizer: PreTrainedTokenizerFast, ends: bool
) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    collector = Collector(engine, Drifting(ends=ends, first_run=1), tiny_tokenizer, 40, replays=Replays(1.0))
    base = problem()
    (parent,) = collector.run([Request(base, 1)], STREAM)
    before = len(engine.contexts)
    request = prefixed(base, parent.rollouts[0], 3, "steps", num_rollouts=4)
    (child,) = collector.run([request], STREAM)  # its replay is of episode 1, which drifts
    assert (child.request.origin, child.request.prefix, child.request.problem) == (Origin.FRESH, None, base)
    assert child.request.decisions[-1].member == "replay"
    assert child.request.decisions[-1].action.startswith("diverged at step 1: ")
    assert (child.size, child.dropped, collector.replays.diverged) == (4, {}, 1)
    assert all(not rollout.num_replayed for rollout in child.rollouts) and len(engine.contexts) - before >= 4


def test_other_requests_do_not_change_what_is_begun_anew(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    (parent,) = Collector(engine, Counting(), tiny_tokenizer, 40).run([Request(problem(), 1)], STREAM)
    anew, other = prefixed(problem(), parent.rollouts[0], 3, "steps", 2), Request(problem("q"), 1)
    drawn = []
    for requests in ([anew], [other, anew], [anew, anew]):
        engine.seeds.clear()
        collector = Collector(engine, Drifting(first_run=0), tiny_tokenizer, 40, replays=Replays(1.0))
        groups = collector.run(requests, STREAM)
        assert collector.replays.diverged == requests.count(anew) and groups[-1].request.origin is Origin.FRESH
        drawn.append(set(engine.seeds))
    assert drawn[0] < drawn[1] and drawn[0] < drawn[2]  # two such requests draw apart from each other


class Single(Counting):
    """Cannot continue one episode twice."""

    forkable: bool = False


def test_a_request_is_replayed_once_and_every_rollout_forks(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    environment, single = Counting(), Single()
    base = problem()
    (parent,) = Collector(engine, Counting(), tiny_tokenizer, 40).run([Request(base, 1)], STREAM)
    request = prefixed(base, parent.rollouts[0], 3, "steps", num_rollouts=4)
    groups = [Collector(engine, each, tiny_tokenizer, 40).run([request], STREAM)[0] for each in (environment, single)]
    assert contents(groups[0]) == contents(groups[1])
    assert len(environment.stepped) == 3 + 4 * 2 and len(single.stepped) == 4 * (3 + 2)


def test_too_many_divergences_stop_the_run_and_name_the_command(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    base = problem()
    (parent,) = Collector(engine, Counting(), tiny_tokenizer, 40).run([Request(base, 1)], STREAM)
    request = prefixed(base, parent.rollouts[0], 2, "steps")
    steady = Collector(engine, Counting(), tiny_tokenizer, 40, replays=Replays(0.1))
    steady.run([request] * 30, STREAM)
    assert (steady.replays.replayed, steady.replays.diverged) == (30, 0)
    drifting = replace(steady, environment=Drifting(first_run=0))
    with pytest.raises(UserError, match=says("max_diverged", 0.1, "step 1", "'+1'", "'=0;'")):
        drifting.run([request] * 30, STREAM)


@dataclass
class Slow(Counting):
    """Tools that take as long as the episode says, each in a thread of the collector's."""

    slow_tools: bool = True
    seconds: float = 0.0
    lost: bool = False

    def one(self, episode: Count, response: str) -> StepResult[Count]:
        time.sleep(self.seconds * (episode.number % 4))
        result = super().one(episode, response)
        if self.lost and episode.number == 1 and episode.steps == 2:
            return StepResult(episode, lost="the box is gone (exit code 137): /tmp/x")
        return replace(result, seconds=1.0, state="s" if result.success is None else "")


def test_slow_tools_give_the_same_groups_in_less_time(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Episodes of 5 turns with tools of 0, 40, 80 and 120 ms and responses of 30 ms: 5 x 150 ms if all wait."""
    requests = [Request(problem(), 4)]
    seconds, groups = [], []
    for slow in (False, True):
        engine = Script(tiny_tokenizer, count_to_the_target, delay=0.03)
        collector = Collector(engine, Slow(slow_tools=slow, seconds=0.04), tiny_tokenizer, 40)
        began = time.perf_counter()
        groups += collector.run(requests, STREAM)
        seconds.append(time.perf_counter() - began)
    assert contents(groups[0]) == contents(groups[1])
    assert seconds[1] < seconds[0]
    turns = groups[1].rollouts[0].turns
    assert [(turn.tool_seconds, turn.state) for turn in turns] == [(1.0, "s")] * 4 + [(1.0, "")]


@dataclass
class Hanging(Slow):
    """The tools of the second episode never answer."""

    def one(self, episode: Count, response: str) -> StepResult[Count]:
        if episode.number == 1:
            threading.Event().wait()
        return super().one(episode, response)


def test_a_tool_that_hangs_costs_only_its_own_rollout_which_has_failed(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    (group,) = Collector(engine, Hanging(), tiny_tokenizer, 40, max_seconds=1.0).run([Request(problem(), 4)], STREAM)
    assert (group.size, group.num_passed, group.pass_rate, group.dropped) == (4, 3, 0.75, {})
    assert [rollout.late and rollout.truncated for rollout in group.rollouts] == [False, True, False, False]
    assert group_record(group, 0, 0, "trained")["late"] == 1
    batch = make_batch([group], LearnerOptions())
    assert (len(batch.sequences), batch.left_out["late"]) == (3, 1)
    assert [sequence.advantage for sequence in batch.sequences] == pytest.approx([1 / 3] * 3)  # it is in the baseline


@pytest.mark.parametrize("slow", [False, True])
def test_an_attempt_unfinished_at_the_deadline_fails(tiny_tokenizer: PreTrainedTokenizerFast, slow: bool) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target, delay=0.02)
    collector = Collector(engine, Slow(slow_tools=slow), tiny_tokenizer, 40, max_seconds=0.03)
    (group,) = collector.run([Request(problem(), 2)], STREAM)
    assert (group.size, group.num_passed) == (2, 0) and all(rollout.late for rollout in group.rollouts)
    assert all(0 < len(rollout.turns) < 5 for rollout in group.rollouts)
    (group,) = replace(collector, max_seconds=1e-9).run([Request(problem(), 2)], STREAM)
    assert (group.size, group.dropped) == (0, {"late": 2})  # nothing of them was sampled


@dataclass
class Busy(Script):
    """Samples for several callers; the second response of one episode comes after all other episodes."""

    concurrent: bool = True
    others_done: threading.Event = field(default_factory=threading.Event)

    def _one(self, context: np.ndarray, limit: int, seed: int) -> Completion:
        read = self.tokenizer.decode(context.tolist(), skip_special_tokens=True)
        if read.startswith("ba") and read.endswith("=1;"):
            assert self.others_done.wait(timeout=30), "the others wait for this one"
        return super()._one(context, limit, seed)


def test_with_an_engine_for_several_callers_none_waits_for_the_slowest(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    engine = Busy(tiny_tokenizer, count_to_the_target)

    def progress(ended: int) -> None:
        if ended == 3:
            engine.others_done.set()

    collector = Collector(engine, Slow(), tiny_tokenizer, 40, progress=progress)
    groups = collector.run([Request(problem(), 3), Request(problem("q", "ba"), 1)], STREAM)
    assert [group.num_passed for group in groups] == [3, 1]


def test_the_cost_of_each_replay_is_known(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Of every request by itself, that of one that diverged included, which stops at its second step."""
    engine, base = Script(tiny_tokenizer, count_to_the_target), problem()
    collector = Collector(engine, Slow(slow_tools=False, seconds=0.01), tiny_tokenizer, 40, replays=Replays(1.0))
    (parent,) = collector.run([Request(base, 1)], STREAM)
    assert parent.replay_cost is None
    whole = prefixed(base, parent.rollouts[0], 3, "steps", num_rollouts=4)
    first, second, *rest = whole.prefix.turns
    broken = structs.replace(
        whole, prefix=replace(whole.prefix, turns=(first, replace(second, observation="?"), *rest))
    )
    began = time.perf_counter()
    groups = collector.run([Request(base, 2), whole, broken], STREAM)
    spent = time.perf_counter() - began
    costs = [group.replay_cost for group in groups]
    assert costs[0] is None and [(cost.responses, cost.seconds) for cost in costs if cost] == [(3, 3.0), (2, 2.0)]
    walls = [cost.wall_seconds for cost in costs if cost]
    assert walls[0] == pytest.approx(1.5 * walls[1]) and 0 < sum(walls) < spent
    assert groups[2].request.origin is Origin.FRESH
    records = [group_record(group, 0, 0, "trained") for group in groups]
    assert [record.get("replayed_responses") for record in records] == [None, 3, 2]


@pytest.mark.parametrize("slow", [False, True])
def test_the_time_that_the_environment_took_is_added_up_over_calls(
    tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    """Each look at the clock is a second later: a call takes one second, or more if others look meanwhile."""
    ticks = itertools.count()
    monkeypatch.setattr(judging.time, "perf_counter", lambda: float(next(ticks)))
    engine = Script(tiny_tokenizer, count_to_the_target)
    collector = Collector(engine, Counting() if not slow else Slow(), tiny_tokenizer, 40)
    assert collector.judge_seconds == 0
    collector.run([Request(problem(), 1)], STREAM)
    assert collector.judge_seconds == 5  # five turns of one episode, one after another
    collector.run([Request(problem(), 1)], STREAM)
    assert collector.judge_seconds == 10


@pytest.mark.parametrize("slow", [False, True])
def test_a_lost_episode_leaves_the_group_and_is_not_a_failure(
    tiny_tokenizer: PreTrainedTokenizerFast, slow: bool
) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    collector = Collector(engine, Slow(slow_tools=slow, lost=True), tiny_tokenizer, 40)
    (group,) = collector.run([Request(problem(), 4)], STREAM)
    assert (group.size, group.num_passed, group.dropped) == (3, 3, {"the box is gone": 1})


def test_the_context_budget_counts_observations(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Prompt 2, and five a turn ("+1", its end and "=1;" are 6): the third observation does not fit into 20."""
    engine = Script(tiny_tokenizer, count_to_the_target)
    collector = Collector(engine, Counting(), tiny_tokenizer, 40, max_context_tokens=20)
    (group,) = collector.run([Request(problem(), 1)], STREAM)
    (rollout,) = group.rollouts
    assert (rollout.success, rollout.truncated, len(rollout.turns)) == (False, True, 3)
    assert engine.limits == [18, 12, 6]


def test_an_environment_is_closed_after_every_collection(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    class Closing(Counting):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    environment = Closing()
    engine = Script(tiny_tokenizer, count_to_the_target)
    Collector(engine, environment, tiny_tokenizer, 40).run([Request(problem(), 2)], STREAM)
    assert environment.closed == 1


def test_no_run_in_another_process_closes_the_environment_of_another(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Several of its threads roll out at once, and an environment closes all boxes that it has open."""
    closed: list[Counting] = []

    class Closing(Counting):
        def copy_for_collection(self) -> "Closing":
            return Closing()

        def close(self) -> None:
            closed.append(self)

    sampler = object.__new__(Sampler)
    sampler._collector = Collector(Script(tiny_tokenizer, count_to_the_target), Closing(), tiny_tokenizer, 40)
    for name in "pq":
        sampler.run([Request(problem(name), 1)], STREAM)
    assert [len(each.stepped) for each in closed] == [5, 5] and closed[0] is not closed[1]


def test_a_group_never_mixes_starts(tiny_model: Qwen3ForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    collector = Collector(TransformersEngine(EngineSetup(tiny_model, "", [END], 0)), OneTurn(), tiny_tokenizer, 12)
    base = problem()
    (parent,) = collector.run([Request(base, 3)], STREAM)
    longest = max(parent.rollouts, key=lambda rollout: rollout.num_generated)
    requests = [prefixed(base, longest, length, "tokens", 4) for length in (1, 5, 2)] + [Request(base, 4)]
    for group in collector.run(requests, STREAM):
        length = 0 if group.request.prefix is None else group.request.prefix.length
        starts = {tuple(rollout.turns[0].tokens_T[:length].tolist()) for rollout in group.rollouts}
        assert starts == {tuple(longest.turns[0].tokens_T[:length].tolist())}
        assert {rollout.num_replayed for rollout in group.rollouts} == {length}
        assert len({tuple(rollout.turns[0].tokens_T.tolist()) for rollout in group.rollouts}) > 1


# Randomness.


@pytest.fixture
def sampled(tiny_model: Qwen3ForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast) -> Collector:
    return Collector(TransformersEngine(EngineSetup(tiny_model, "", [END, 26, 30], 0)), OneTurn(), tiny_tokenizer, 24)


def test_equal_streams_give_identical_groups(sampled: Collector) -> None:
    requests = [Request(problem("p", "abc"), 4), Request(problem("q", "1+2"), 4)]
    once, again, other = (sampled.run(requests, stream) for stream in (STREAM, STREAM, STREAM.at(1)))
    for left, right, different in zip(once, again, other, strict=True):
        assert contents(left) == contents(right) != contents(different)


def test_other_requests_do_not_change_a_rollout(sampled: Collector) -> None:
    base = problem("p", "abc")
    kept = Request(base, 4)
    (alone,) = sampled.run([kept], STREAM)
    longest = max(alone.rollouts, key=lambda rollout: rollout.num_generated)
    around = [Request(problem("q", "1+2=3"), 4), prefixed(base, longest, 2, "tokens"), kept, Request(base, 4)]
    groups = sampled.run(around, STREAM)

    def tokens(group: Group) -> list[list[int]]:
        return [rollout.turns[0].tokens_T.tolist() for rollout in group.rollouts]

    assert tokens(groups[2]) == tokens(alone)
    assert tokens(groups[3]) != tokens(alone)  # the same problem once more: its own draws
    assert len({tuple(row) for row in tokens(alone)}) == 4


def test_every_turn_of_every_rollout_has_a_seed_of_its_own(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, count_to_the_target)
    collector = Collector(engine, Counting(), tiny_tokenizer, 40)
    (parent,) = collector.run([Request(problem(), 3)], STREAM)
    collector.run([prefixed(problem(), parent.rollouts[0], 2, "steps", num_rollouts=3)], STREAM)
    assert len(engine.seeds) == len(set(engine.seeds)) == 3 * 5 + 3 * 3


def test_progress_counts_finished_rollouts(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    heard: list[int] = []
    engine = Script(tiny_tokenizer, lambda read, seed: "." if read.startswith("a") else count_to_the_target(read, seed))
    collector = Collector(engine, Counting(), tiny_tokenizer, 40, heard.append)
    collector.run([Request(problem("p", "a"), 2), Request(problem("q", "b"), 3)], STREAM)
    assert heard == [2, 2, 2, 2, 5]


def test_an_engine_that_continues_after_an_end_token_is_refused(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    engine = Script(tiny_tokenizer, lambda text, seed: "4")
    collector = Collector(engine, OneTurn(), tiny_tokenizer, 8, end_tokens=(END,))
    [group] = collector.run([Request(problem(), 2)], STREAM)
    assert group.num_passed == 2  # an end token may be the last
    four, five = (tiny_tokenizer.encode(digit, add_special_tokens=False)[0] for digit in "45")
    with pytest.raises(UserError, match=says("rollouts.engine", four, "stop")):
        replace(collector, end_tokens=(four,)).run([Request(problem(), 2)], STREAM)
    with pytest.raises(UserError, match=says("rollouts.engine", five, "return the token")):
        replace(collector, end_tokens=(five,)).run([Request(problem(), 2)], STREAM)
