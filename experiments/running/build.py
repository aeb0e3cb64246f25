"""Builds a run from its configuration; this is the only place where all of its parts are put together."""

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfway.curriculum.environments.base import check
from halfway.curriculum.session import ALWAYS_PROVIDED, Session
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import clean
from halfway.curriculum.tasks.sources import ProblemSplit, split, with_also, with_generated
from halfway.experiments.config.paths import find_model
from halfway.experiments.config.run import RunConfig
from halfway.trainers.policy import Policy, load_policy, prepare_torch
from halfway.trainers.prompt_states import NEED, with_prompt_states

if TYPE_CHECKING:
    from halfway.trainers.distributed.workers import WorkerGroup
    from halfway.trainers.engines.sync_check import SyncCheck
    from halfway.trainers.learner.learner import PolicyGradientLearner
    from halfway.trainers.loop.samples import Decode
    from halfway.trainers.loop.training import Training
    from halfway.trainers.rollouts.collector import Collector
    from halfway.trainers.rollouts.sampling_process import ProcessPool

    # Rollouts, learner, a function that hands the weights to the engine, and whether the engine serves all processes.
    Parts = tuple[Collector | ProcessPool, PolicyGradientLearner, Callable[[], None], bool]

CHECKED_SYNCS, CHECKED_EVERY = 5, 10
"""The first syncs, and every how manieth after them, that are checked unless `rollouts.sync_tolerance` is given."""
SUBMISSIONS_AT_ONCE = 64
"""How many draws are sampled at once if weights change under rollouts."""


def build_run(config: RunConfig, folder: Path) -> "Training":
    """The training run that a configuration describes, before its first step; `Training.train` resumes by itself.

    With several processes, only the first one calls this; the others call `build_worker_group`.

    Args:
        folder: the run directory.

    Raises:
        UserError: if a problem source, the model or its tokenizer cannot be loaded, or this machine cannot run the
            environment.
    """
    model_path = find_model(config.model.path)
    check(config.environment.part)
    problems = build_problems(config)
    for note in problems.report.notes:
        print(clean(note), file=sys.stderr)
    prepare_torch(config.seed, config.threads)
    policy = load_policy(config.model, model_path)
    problems = with_states(config, problems, policy)
    parts = _build_parts(config, policy)
    return _assemble(config, folder, problems, parts, partial(policy.tokenizer.decode, skip_special_tokens=False))


def with_states(config: RunConfig, problems: ProblemSplit, policy: Policy | None = None) -> ProblemSplit:
    """The problems with the policy's states, if the chain needs them; None = the policy that the run starts from."""
    if NEED not in config.chain.needs:
        return problems
    return problems._replace(
        train=with_prompt_states(problems.train, policy or load_policy(config.model, find_model(config.model.path)))
    )


def build_worker_group(config: RunConfig) -> "WorkerGroup":
    """The part of a run in one of several processes."""
    from halfway.trainers.distributed.workers import WorkerGroup

    model_path = find_model(config.model.path)
    prepare_torch(config.seed, config.threads)
    return WorkerGroup(*_build_parts(config, load_policy(config.model, model_path)))


def build_problems(config: RunConfig) -> ProblemSplit:
    """Training and held-out problems. They depend on `problems.seed` only, so all seeds of a comparison share them.

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
    own = [*problems.train, *problems.heldout]
    name, environment = config.environment.name, config.environment.part
    for where, some in (("source", own), ("generated", problems.train.generated)):
        try:
            environment.start(some)
        except UserError as error:
            raise UserError(f"environment: {name!r} does not suit the problems of problems.{where}: {error}") from None
    return problems


def _build_parts(config: RunConfig, policy: Policy) -> "Parts":
    from halfway.trainers.distributed.collectives import wait_for_all
    from halfway.trainers.learner.adapters import add_adapters
    from halfway.trainers.learner.learner import PolicyGradientLearner
    from halfway.trainers.rollouts.sampling_process import ProcessPool

    options, part = config.rollouts, config.rollouts.engine.part
    apart = options.staleness > 0 and int(os.environ.get("RANK", "0")) == 0
    # At ZeRO stage 3 a learner holds only a part of every weight. An engine that samples with the learner's own module
    # needs whole weights, so it gets a copy. So does one in another process.
    spread = config.learner.deepspeed.zero_stage == 3
    copied = copy.deepcopy(policy.model) if (spread or apart) and part.uses_module else None
    if config.model.lora.rank:
        add_adapters(policy.model, config.model.lora)
    learner = PolicyGradientLearner(
        policy.model, config.learner, policy.padding, options.temperature, tokenizer=policy.tokenizer
    )
    wait_for_all()  # so that the group exists before the first process starts servers
    limits = (options.max_response_tokens, options.max_context_tokens, options.max_diverged, options.max_seconds)
    rollouts: Any
    if apart:
        parts = part.apart(policy.engine_setup(options, learner.policy if copied is None else copied))
        there = (replace(policy, model=None), parts.there, config.environment.part, *limits)
        at_once = SUBMISSIONS_AT_ONCE if options.in_flight else 1
        rollouts = ProcessPool(partial(sampling_process, config.seed, config.threads, *there), at_once)
        engine = parts.here(rollouts.on_engine)
    else:
        sampled = learner.policy if copied is None else copied.to(learner.policy.device)
        engine = part.build(policy.engine_setup(options, sampled))
        rollouts = policy.collector(engine, config.environment.part, *limits)
    shared = part.uses_module and copied is None  # the engine samples from the learner's own module
    check = None
    if options.sync_tolerance or (options.sync_tolerance is None and not shared):
        check = _sync_check(engine, learner, part.max_length, options.largest_gap(config.model.dtype))
    sync = partial(_sync, engine, learner, check, options.sync_tolerance is not None)
    return rollouts, learner, sync, engine.serves_all


def build_session(config: RunConfig, problems: ProblemSplit) -> Session:
    """The session of a run, before its first step."""
    critic = {"values"} if config.learner.advantage == "gae" else set()
    provides = ALWAYS_PROVIDED | {"measured"} | critic
    return Session(problems.train, config.chain, config.rollouts.num_rollouts, config.seed, provides, "this run")


def sampling_process(seed: int, threads: int, policy: Policy, *options: Any) -> "Collector":
    """The collector of a process that only samples, see `Policy.collector`."""
    prepare_torch(seed, threads)
    return policy.collector(*options)


def _assemble(
    config: RunConfig,
    folder: Path,
    problems: ProblemSplit,
    parts: "Parts",
    decode: "Decode",
) -> "Training":
    from torch import distributed

    from halfway.trainers.contracts import AppraisingLearner, Rollouts
    from halfway.trainers.distributed.colocated import Colocated
    from halfway.trainers.distributed.workers import WorkerGroup
    from halfway.trainers.learner.critic import ValuedRollouts
    from halfway.trainers.loop.checkpoint import Checkpoints
    from halfway.trainers.loop.evaluation import evaluate
    from halfway.trainers.loop.training import Training

    rollouts: Rollouts
    learner: AppraisingLearner
    rollouts, learner, sync, _ = parts
    own: Any = rollouts
    shut_down = None
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        if config.rollouts.staleness and not parts[-1]:
            raise UserError(
                f"rollouts.staleness: {config.rollouts.staleness} is not acceptable; with several processes, only the "
                "engine vllm_servers samples apart from them; use that, or 0"
            )
        rollouts = learner = group = WorkerGroup(*parts)
        sync, shut_down = group.sync, group.shut_down
    if config.rollouts.engine.part.sleeps:
        learner = Colocated(learner, own.engine.sleep)
    session = build_session(config, problems)
    held_out, samples = problems.heldout, config.evaluation.samples
    oracle = partial(evaluate, rollouts, list(problems.train), config.evaluation.oracle_samples)
    # All evaluations use one stream, so that the sampling noise they share cancels in their differences.
    stream = Stream(config.seed).at("evaluate")
    return Training(
        folder=folder,
        session=session,
        rollouts=ValuedRollouts(rollouts, learner) if "values" in config.chain.needs else rollouts,
        pool=own if config.rollouts.staleness else None,
        staleness=config.rollouts.staleness,
        in_flight=config.rollouts.in_flight,
        learner=learner,
        sync=sync,
        fill=config.fill,
        budget=config.budget,
        seed=config.seed,
        checkpoints=Checkpoints(folder / "checkpoints", config.checkpoint),
        evaluate=partial(evaluate, rollouts, held_out, samples, stream) if held_out else None,
        evaluation_points=config.evaluation.points,
        oracle=oracle if "measured" in config.chain.needs else None,
        oracle_every=config.evaluation.oracle_every,
        finish=shut_down,
        decode=decode,
    )


def _sync(engine: Any, learner: Any, check: "SyncCheck | None", always: bool) -> None:
    """Hand the weights to the engine. Every process calls this, even if only the first one speaks to the engine.

    Args:
        check: is called after every sync if `always`, and otherwise after the first ones and every tenth.
    """
    from halfway.trainers.distributed.collectives import wait_for_all

    give_back()
    wait_for_all()  # since the first process wakes engines on all devices
    engine.sync(learner.policy, learner.policy_version)
    version = learner.policy_version
    if check is not None and (always or version <= CHECKED_SYNCS or version % CHECKED_EVERY == 0):
        check()


def give_back() -> None:
    """Free the device memory that this process holds in reserve, so that an engine on the device can wake up."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _sync_check(engine: Any, learner: Any, max_length: int, tolerance: float) -> "SyncCheck":
    """The check that engine and learner agree after a sync.

    Args:
        max_length: the most tokens that the engine holds; 0 = the length the model was made for.
    """
    from halfway.trainers.engines.sync_check import SyncCheck

    model = learner.policy.config.get_text_config()
    room = max_length or model.max_position_embeddings
    first = int(os.environ.get("RANK", "0")) == 0
    samples = first or not engine.serves_all
    return SyncCheck(engine, learner, model.vocab_size, room, tolerance, samples)
