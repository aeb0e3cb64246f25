"""Single-turn and multi-turn environments, and replay through execution."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import says

from halfway.curriculum import Problem, Unit, UserError
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.environments.ledger_turns import Ledger, LedgerEpisode
from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.environments.single_turn import SingleTurn, SingleTurnEpisode
from halfway.curriculum.tasks.lab.ledger import Account


def account(prompt: str) -> Problem:
    return Problem(prompt, prompt, "", "ledger", "ledger")


def play(
    environment: Environment[LedgerEpisode], episode: LedgerEpisode, commands: Sequence[str]
) -> list[StepResult[LedgerEpisode]]:
    """Execute commands until they or the episode end."""
    results: list[StepResult[LedgerEpisode]] = []
    for command in commands:
        (result,) = environment.step([episode], [command])
        results.append(result)
        episode = result.episode
        if result.success is not None:
            break
    return results


# ---------------------------------------------------------------- single turn


def test_single_turn_is_judged_by_each_problems_verifier() -> None:
    environment = SingleTurn()
    problems = [Problem("a", "1+1=", "2"), Problem("b", "2+2=", "4", verifier="numeric"), Problem("c", "3+3=", "6")]
    episodes = environment.start(problems)
    assert episodes == [SingleTurnEpisode(problem) for problem in problems]
    results = environment.step(episodes, ["2", "it is 4", "it is 6"])
    assert [result.success for result in results] == [True, True, False]
    assert [(result.observation, result.truncated) for result in results] == [("", False)] * 3
    assert results[1].episode == SingleTurnEpisode(problems[1], "it is 4")
    assert (environment.unit, environment.max_turns) == ("tokens", 1)


def test_single_turn_refuses_an_unknown_verifier_before_any_rollout() -> None:
    with pytest.raises(UserError, match=says("'exact'")):
        SingleTurn().start([Problem("a", "1+1=", "2", verifier="exacts")])


def test_an_episode_that_is_over_is_not_stepped() -> None:
    environment = SingleTurn()
    (result,) = environment.step(environment.start([Problem("a", "1+1=", "2")]), ["2"])
    with pytest.raises(AssertionError, match="is over"):
        environment.step([result.episode], ["2"])


# ---------------------------------------------------------------- ledger


def test_a_ledger_episode_by_hand() -> None:
    environment = Ledger()
    (episode,) = environment.start([account("@37>52:4=")])
    assert episode == LedgerEpisode("@37>52:4=", Account(37, 52, 4))
    results = play(environment, episode, ["+9", "nonsense", "+6", "!"])
    assert [result.observation for result in results] == ["46|", "?|", "52|", ""]
    assert [result.success for result in results] == [None, None, None, True]
    assert results[-1].episode == LedgerEpisode("@37>52:4=", Account(52, 52, 0), 4, over=True)
    assert not any(result.truncated for result in results)
    assert episode.account == Account(37, 52, 4)  # a value: stepping changed nothing
    with pytest.raises(AssertionError, match="is over"):
        environment.step([results[-1].episode], ["+1"])


def test_ending_at_a_wrong_balance_fails_without_truncation() -> None:
    (result,) = play(Ledger(), LedgerEpisode("p", Account(37, 52, 4)), ["!"])
    assert (result.success, result.truncated) == (False, False)


@pytest.mark.parametrize(("allowed", "limit", "turns"), [(3, 9, 3), (9, 2, 2), (4, 4, 4)])
def test_a_turn_limit_fails_and_truncates(allowed: int, limit: int, turns: int) -> None:
    results = play(Ledger(max_turns=limit), LedgerEpisode("p", Account(10, 13, allowed)), ["+1"] * 9)
    assert len(results) == turns
    assert (results[-1].success, results[-1].truncated, results[-1].observation) == (False, True, "")
    assert results[-1].episode.over


def test_ending_in_the_last_turn_counts() -> None:
    results = play(Ledger(max_turns=2), LedgerEpisode("p", Account(10, 13, 9)), ["+3", "!"])
    assert (results[-1].success, results[-1].truncated) == (True, False)


def test_ledger_refuses_what_it_cannot_play() -> None:
    with pytest.raises(UserError, match=says("'x'", "another task")):
        Ledger().start([Problem("x", "1+1=", "2")])
    with pytest.raises(UserError, match=r"environment\.max_turns: .*0"):
        Ledger(max_turns=0)


# ---------------------------------------------------------------- replay

COMMANDS = st.lists(st.sampled_from(["+1", "+9", "-3", "-9", "nonsense", "", "!"]), max_size=8)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9), COMMANDS), max_size=6))
def test_replay_reconstructs_the_recorded_states_exactly(games: list[tuple[int, int, int, list[str]]]) -> None:
    environment = Ledger()
    problems = [account(f"@{start:02d}>{target:02d}:{turns}=") for start, target, turns, _ in games]
    starts = environment.start(problems)
    played = [play(environment, start, game[3]) for start, game in zip(starts, games, strict=True)]
    going = [[result for result in results if result.success is None] for results in played]
    responses = [game[3][: len(results)] for game, results in zip(games, going, strict=True)]
    observations = [[result.observation for result in results] for results in going]
    recorded = [results[-1].episode if results else start for start, results in zip(starts, going, strict=True)]
    assert replay(environment, environment.start(problems), responses, observations) == recorded


def test_an_observation_other_than_recorded_is_a_divergence() -> None:
    environment = Ledger()
    starts = environment.start([account("@10>20:5="), account("@10>20:5="), account("@10>20:5=")])
    replayed = replay(environment, starts, [["+1", "+2"], ["+1", "+2"], []], [["11|", "13|"], ["11|", "12|"], []])
    found = Divergence(2, "+2", "it answered '13|', recorded was '12|'")
    assert replayed == [LedgerEpisode("@10>20:5=", Account(13, 20, 3), 2), found, starts[2]]


def test_an_episode_that_ends_has_diverged() -> None:
    environment = Ledger()
    starts = environment.start([account("@10>20:5="), account("@10>20:1=")])
    found = replay(environment, starts, [["+1", "!"], ["+1"]], [["11|", ""], [""]])
    assert found == [Divergence(2, "!", "the episode ended"), Divergence(1, "+1", "the episode ended")]


def test_states_are_compared_where_they_are_recorded() -> None:
    class Holding(Fickle):
        def step(self, episodes: Sequence[int], responses: Sequence[str]) -> list[StepResult[int]]:
            return [
                StepResult(episode + 1, "same", state=response)
                for episode, response in zip(episodes, responses, strict=True)
            ]

    seen = [["same", "same"]]
    assert replay(Holding(), [0], [["a", "b"]], seen, [["a", "b"]]) == [2]
    assert replay(Holding(), [0], [["a", "b"]], seen, [["", ""]]) == [2]
    (found,) = replay(Holding(), [0], [["a", "b"]], seen, [["a", "c"]])
    assert isinstance(found, Divergence) and found.step == 2 and "the files that it left" in found.why


def test_an_episode_lost_in_a_replay_is_not_a_divergence() -> None:
    class Losing(Fickle):
        def step(self, episodes: Sequence[int], responses: Sequence[str]) -> list[StepResult[int]]:
            return [StepResult(episode, lost="the machine is gone") for episode in episodes]

    assert replay(Losing(), [0], [["a"]], [["b"]]) == [Divergence(1, "a", "the machine is gone", lost=True)]


def test_responses_without_observations_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="argument"):
        replay(Ledger(), Ledger().start([account("@10>20:5=")]), [["+1"]], [[]])


@dataclass
class Fickle(Environment[int]):
    """Answers with the number of steps it has taken in all, so that no replay is like the recording."""

    calls: int = 0
    batches: int = 0

    @property
    def unit(self) -> Unit:
        return "steps"

    @property
    def max_turns(self) -> int:
        return 9

    def start(self, problems: Sequence[Problem]) -> list[int]:
        return [0 for _ in problems]

    def step(self, episodes: Sequence[int], responses: Sequence[str]) -> list[StepResult[int]]:
        self.batches += 1
        results = []
        for episode, _ in zip(episodes, responses, strict=True):
            self.calls += 1
            results.append(StepResult(episode + 1, observation=str(self.calls)))
        return results


def test_a_fickle_environment_is_found_out_and_not_stepped_further() -> None:
    environment = Fickle()
    script = [["x"] * 3, ["x"] * 3]
    assert replay(environment, [0, 0], script, [["1", "3", "5"], ["2", "4", "6"]]) == [3, 3]
    assert (environment.calls, environment.batches) == (6, 3)  # one batch per turn
    assert replay(environment, [0, 0], script, [["7", "9", "10"], ["2", "4", "6"]]) == [
        3,
        Divergence(1, "x", "it answered '8', recorded was '2'"),
    ]
    assert environment.calls == 10  # the second episode took one step only
    (found,) = replay(environment, [0], [["x"] * 3], [["1", "2", "3"]])
    assert isinstance(found, Divergence) and found.step == 1
    assert environment.calls == 11
