"""Builds a run from its configuration; the only place where all of its parts are put together."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from halfway.curriculum import ProblemSet, Session, Stream, UserError
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.curriculum.support.extras import clean
from halfway.curriculum.tasks.sources import ProblemSplit, split, with_also, with_generated
from halfway.experiments.config.paths import find_model
from halfway.experiments.config.run import RunConfig
from halfway.trainers.policy import Policy, load_policy, prepare_torch
from halfway.trainers.prompt_states import NEED, with_prompt_states
from halfway.trainers.rollouts.file_store import PAYLOADS, FileStore

SHOWN = 10_000
"""Problems for which an environment starts episodes at a time, as a check."""

if TYPE_CHECKING:
    from halfway.trainers.distributed.workers import WorkerGroup
    from halfway.trainers.loop.training import Training


def build_run(config: RunConfig, folder: Path) -> "Training":
    """Build the training run of a configuration, before its first step; `Training.train` resumes by itself.

    With several processes, only the first one calls this; the others call `build_worker_group`.

    Args:
        folder: the run directory.

    Raises:
        UserError: if a problem source, the model or its tokenizer cannot be loaded, or this machine cannot run the
            environment.
    """
    config.environment.part.check()
    problems = build_problems(config)
    for note in problems.report.notes:
        print(clean(note), file=sys.stderr)
    model_path = find_model(config.model.path)
    # These import torch, so they come after the checks above.
    from halfway.experiments.running.parts import build_parts
    from halfway.trainers.learner.critic import ValuedRollouts
    from halfway.trainers.loop.checkpoint import Checkpoints
    from halfway.trainers.loop.held_out import evaluate
    from halfway.trainers.loop.training import Training

    prepare_torch(config.seed, config.threads)
    policy = load_policy(config.model, model_path)
    session = build_session(config, problems.train, lambda: policy, folder)
    parts = build_parts(config, policy)
    shutil.rmtree(folder / PAYLOADS, ignore_errors=True)  # what the run left when it was killed
    store = FileStore(folder / PAYLOADS) if config.rollouts.payloads == "files" else None
    if parts.pool and store:
        parts.pool.store = store
    evaluation, needs = config.evaluation, config.chain.needs
    # All evaluations use one stream, so that the sampling noise they share cancels in their differences.
    stream = Stream(config.seed).at("evaluate")
    held_out = partial(evaluate, parts.rollouts, problems.heldout, evaluation.samples, stream)
    oracle = partial(evaluate, parts.rollouts, session.problems, evaluation.oracle_samples)
    return Training(
        folder=folder,
        session=session,
        rollouts=ValuedRollouts(parts.rollouts, parts.learner) if "values" in needs else parts.rollouts,
        pool=parts.pool,
        store=store,
        staleness=config.rollouts.staleness,
        in_flight=config.rollouts.in_flight,
        learner=parts.learner,
        sync=parts.sync,
        fill=config.fill,
        budget=config.budget,
        seed=config.seed,
        checkpoints=Checkpoints(folder / "checkpoints", config.checkpoint),
        evaluate=held_out if problems.heldout else None,
        evaluation_points=evaluation.points,
        oracle=oracle if "measured" in needs else None,
        oracle_every=evaluation.oracle_every,
        finish=parts.group.shut_down if parts.group else None,
        decode=parts.decode,
    )


def build_worker_group(config: RunConfig) -> "WorkerGroup":
    """Build the part of a run that belongs to one of several processes."""
    from halfway.experiments.running.parts import build_parts

    prepare_torch(config.seed, config.threads)
    group = build_parts(config, load_starting_policy(config)).group
    assert group is not None, "only one of several processes is a worker"
    return group


def build_problems(config: RunConfig) -> ProblemSplit:
    """Training and held-out problems. They depend only on `problems.seed`, so all seeds of a comparison share them.

    Raises:
        UserError: if the source has too few problems, no generated problem is left, or the environment cannot judge
            them.
    """
    stream = Stream(config.problems.seed).at("problems")
    options = config.problems.opened
    problems = split(options.source.part, options.train, config.evaluation.problems, stream)
    if options.also:
        problems = with_also(problems, options.also.part, options.also_train, stream.at("also"))
    if options.generated:
        problems = with_generated(problems, options.generated.part, stream.at("generated"))
    name, environment = config.environment.name, config.environment.part
    parts = ("source", problems.trained), ("source", problems.heldout), ("generated", problems.generated)
    for where, some in parts:
        try:
            for start in range(0, len(some), SHOWN):
                environment.start(some[start : start + SHOWN])
        except UserError as error:
            raise UserError(f"environment: {name!r} does not suit the problems of problems.{where}: {error}") from None
    return problems


def build_session(
    config: RunConfig, problems: ProblemSet, policy: Callable[[], Policy], folder: Path | None = None
) -> Session:
    """The session of a run, before its first step.

    Args:
        policy: returns the starting policy; called if the chain needs its hidden states of the prompts.
        folder: the run directory, which keeps these states.
    """
    if NEED in config.chain.needs:
        problems = with_prompt_states(problems, policy, folder=folder, model=repr(config.model))
    return start_session(config, problems)


def start_session(config: RunConfig, problems: ProblemSet) -> Session:
    """The session of a run on problems that have everything that its chain needs."""
    critic = {"values"} if config.learner.advantage == "gae" else set()
    provides = ALWAYS_PROVIDED | {"measured"} | critic
    size, trains_truncated = config.rollouts.num_rollouts, not config.learner.compact_filtering
    return Session(problems, config.chain, size, config.seed, provides, "this run", trains_truncated)


def load_starting_policy(config: RunConfig) -> Policy:
    """Load the policy that a run starts from."""
    return load_policy(config.model, find_model(config.model.path))
