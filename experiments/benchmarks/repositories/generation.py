"""Compares the time of a replay with the time of generating the same steps with a model.

The model continues the recorded conversation, one response after the other, by exactly as many tokens as the recorded
response has, whatever these tokens are; observations are cut to `SHOWN` characters in its context. It does so for a
single rollout and for several at once, since a replay is done once for all rollouts of its request. Only the replay
executes commands, so a fresh rollout takes the sum of both times.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from halfway.curriculum.repositories.environment import Repository, shortened
from halfway.curriculum.rollouts import IntArray
from halfway.curriculum.support.errors import UserError
from halfway.experiments.benchmarks.repositories.page import Page
from halfway.experiments.benchmarks.repositories.recordings import Recording
from halfway.experiments.benchmarks.repositories.replays import again
from halfway.experiments.benchmarks.repositories.usage import cpu_seconds
from halfway.experiments.report.tables.text import TextTable
from halfway.trainers.engines.base import Engine
from halfway.trainers.policy import ModelOptions, Policy, load_policy
from halfway.trainers.rollouts.chat import Prompts

SHOWN = 500
MAX_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Generated:
    """The times of one episode.

    Attributes:
        tokens: number of tokens in its responses.
        context: number of tokens in its last context.
        replay, replay_cpu: wall-clock and processor seconds of executing its commands again.
        generation, generation_cpu: wall-clock and processor seconds of generating its responses, by number of rollouts
            at once.
    """

    project: str
    steps: int
    tokens: int
    context: int
    replay: float
    replay_cpu: float
    generation: dict[int, float]
    generation_cpu: dict[int, float]


def generation(
    environment: Repository, recordings: Sequence[Recording], model: Path, engine: str, rollouts: Sequence[int]
) -> Page:
    """Measure the first episode of each project, and return the page about them.

    Raises:
        UserError: if the model cannot be loaded, or the engine is not installed.
    """
    policy = load_policy(ModelOptions(str(model), chat="all"), str(model))
    sampler = endless(policy, engine, max(rollouts))
    firsts = {each.project: each for each in reversed(recordings)}
    sampler.generate([np.full(8, policy.padding, np.int32)], [2], [0])  # the first call is slow
    found = [measure(environment, each, policy, sampler, rollouts) for _, each in sorted(firsts.items())]
    rows = [row(each, rollouts) for each in found]
    columns = ("project", "steps", "tokens", "last context", "replay s")
    table = TextTable(
        "Replay and generation of the same steps",
        (*columns, *(f"{what} {n}" for n in rollouts for what in ("generation s,", "replay / generation,"))),
        tuple(rows),
        f"{model.name}, engine {engine}, float32 on a CPU; wall-clock seconds, {' and '.join(map(str, rollouts))} "
        f"rollouts at once. Observations are cut to {SHOWN:,} characters in the context.",
    )
    tokens, steps = sum(each.tokens for each in found), sum(each.steps for each in found)
    notes = [f"{tokens / steps:.0f} tokens per response; real policies write more, which makes a replay worth more"]
    for n in rollouts:
        wall = sum(each.replay for each in found) / sum(each.generation[n] for each in found)
        cpu = sum(each.replay_cpu for each in found) / sum(each.generation_cpu[n] for each in found)
        speed = n * tokens / sum(each.generation[n] for each in found)
        notes.append(
            f"{n} at once, all projects: replay / generation {wall:.3f} (wall-clock), {cpu:.3f} (processor seconds); "
            f"{speed:.1f} generated tokens per second"
        )
    return Page((table,), {"model": model.name, "engine": engine, "episodes": [*map(asdict, found)]}, tuple(notes))


def row(each: Generated, rollouts: Sequence[int]) -> tuple[str, ...]:
    times = [f"{value:.2f}" for n in rollouts for value in (each.generation[n], each.replay / each.generation[n])]
    counts = (str(each.steps), str(each.tokens), str(each.context))
    return (each.project, *counts, f"{each.replay:.2f}", *times)


def endless(policy: Policy, engine: str, sequences: int) -> Engine:
    """An engine for which no token ends a response, so that responses have the lengths that are asked for."""
    from halfway.trainers.rollouts.options import RolloutOptions

    setup = replace(policy.engine_setup(RolloutOptions()), eos_token_ids=[], max_sequences=sequences)
    if engine == "vllm":
        from halfway.trainers.engines.vllm.part import Vllm

        return Vllm(max_length=MAX_LENGTH).build(setup)
    from halfway.trainers.engines.transformers.part import Transformers

    return Transformers().build(setup)


def measure(
    environment: Repository, recording: Recording, policy: Policy, engine: Engine, rollouts: Sequence[int]
) -> Generated:
    contexts, lengths = conversation(recording, policy)
    if len(contexts[-1]) + lengths[-1] > MAX_LENGTH:
        raise UserError(f"{recording.project}: its conversation has more than {MAX_LENGTH} tokens; record another")
    (start,) = environment.start([recording.problem])
    began, before = time.perf_counter(), cpu_seconds()
    _, diverged = again(environment, start, recording.steps)
    replay, replay_cpu = time.perf_counter() - began, cpu_seconds() - before
    assert not diverged, diverged
    seconds, cpu = dict[int, float](), dict[int, float]()
    for n in rollouts:
        began, used = time.perf_counter(), cpu_seconds()
        for turn, (context_T, length) in enumerate(zip(contexts, lengths, strict=True)):
            made = engine.generate([context_T] * n, [length] * n, [1000 * n + 10 * turn + i for i in range(n)])
            assert all(len(completion.tokens_T) == length for completion in made)
        seconds[n], cpu[n] = time.perf_counter() - began, cpu_seconds() - used
    size = len(contexts[-1])
    return Generated(recording.project, len(lengths), sum(lengths), size, replay, replay_cpu, seconds, cpu)


def conversation(recording: Recording, policy: Policy) -> tuple[list[IntArray], list[int]]:
    """What the model reads before each response, and how many tokens that response has, its end included."""
    prompts = Prompts(policy.tokenizer, policy.chat, policy.system)
    context_T = prompts.of_problem(recording.problem)
    contexts, lengths = [], []
    for step in recording.steps:
        said_T = np.asarray([*policy.tokenizer.encode(step.response, add_special_tokens=False), policy.end_tokens[0]])
        contexts.append(context_T)
        lengths.append(len(said_T))
        seen_T = prompts.of_observation(recording.problem, shortened(step.seen, SHOWN))
        context_T = np.concatenate([context_T, said_T.astype(np.int32), seen_T])
    return contexts, lengths
