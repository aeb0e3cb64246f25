"""The parts of a run in one process: rollouts, learner, and the transfer of weights between them."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import distributed

from halfway.curriculum import refusal
from halfway.experiments.config.run import RunConfig
from halfway.trainers.contracts import AppraisingLearner, Rollouts
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.distributed.colocated import Colocated
from halfway.trainers.distributed.workers import WorkerGroup
from halfway.trainers.engines.contract import Engine, SleepingEngine
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.loop.samples import Decode
from halfway.trainers.policy import Policy, prepare_torch
from halfway.trainers.rollouts.collector import Collector
from halfway.trainers.rollouts.ray_pool import RayPool, RayScatter
from halfway.trainers.rollouts.sampling_process import ProcessPool, WorkerPool

CHECKED_SYNCS, CHECKED_EVERY = 5, 10
"""Number of first syncs to check, and interval of checks after them, unless `rollouts.sync_tolerance` is set."""
SUBMISSIONS_AT_ONCE = 64
"""Number of draws sampled at once if weights change under rollouts."""


@dataclass(frozen=True)
class Parts:
    """The parts of a run, as the loop or `WorkerGroup.serve` uses them in this process.

    Attributes:
        rollouts, learner: shared by all processes, if there are several.
        sync: sends the learner's weights to the engine.
        decode: the text of tokens.
        pool: runs rollouts during an update; None = the loop waits for them.
        group: the place of this process among several; None = the only process.
    """

    rollouts: Rollouts
    learner: AppraisingLearner
    sync: Callable[[], None]
    decode: Decode
    pool: WorkerPool | None = None
    group: WorkerGroup | None = None


def build_parts(config: RunConfig, policy: Policy) -> Parts:
    """Build the parts of this process. The policy gets the configured adapters."""
    options, part = config.rollouts, config.rollouts.engine.part
    splits = (options.staleness > 0 or options.workers == "ray") and int(os.environ.get("RANK", "0")) == 0
    # At ZeRO stage 3 a learner holds only a part of every weight, but an engine needs whole weights: one that would
    # sample with the learner's own module gets a copy. So does an engine in another process.
    spread = config.learner.deepspeed.zero_stage == 3
    copied = copy.deepcopy(policy.model) if (spread or splits) and part.uses_module else None
    learner = PolicyGradientLearner(
        policy.model,
        config.learner,
        policy.padding,
        options.temperature,
        tokenizer=policy.tokenizer,
        lora=config.model.lora,
    )
    wait_for_all()  # so that the group exists before the first process starts servers
    if copied is not None and not splits:
        copied.to(learner.policy.device)
    setup = policy.engine_setup(options, learner.policy if copied is None else copied)
    collector = partial(
        replace(policy, model=None).collector,
        environment=config.environment.part,
        max_response_tokens=options.max_response_tokens,
        max_context_tokens=options.max_context_tokens,
        max_diverged=options.max_diverged,
        max_seconds=options.max_seconds,
    )
    pool = None
    if splits:
        sampler = part.split(setup)
        build = partial(build_in_process, config.seed, config.threads, collector, sampler.there)
        workers = RayPool if options.workers == "ray" else ProcessPool
        pool = workers(build, SUBMISSIONS_AT_ONCE if options.in_flight else 1)
        engine = sampler.here(pool.on_engine)
    else:
        engine = part.build(setup)
    shared = part.uses_module and copied is None  # the engine samples from the learner's own module
    check, always = None, options.sync_tolerance is not None
    if options.sync_tolerance or not (always or shared):
        check = SyncCheck.between(engine, learner, part.max_length, options.largest_gap(config.model.dtype))
    decode = partial(policy.tokenizer.decode, skip_special_tokens=False)
    sync = partial(sync_weights, engine, learner, check, always)
    parts = Parts(pool or collector(engine), learner, sync, decode, pool)
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        if splits and not engine.serves_all:
            raise refusal(
                "rollouts.staleness",
                options.staleness,
                "give 0 with several processes; or use the engine vllm_servers, which samples apart from them",
            )
        scatter = RayScatter() if options.workers == "ray" else None
        group = WorkerGroup(parts.rollouts, learner, sync, engine.serves_all, scatter)
        parts = replace(parts, rollouts=group, learner=group, sync=group.sync, group=group)
    if part.sleeps and isinstance(engine, SleepingEngine):
        parts = replace(parts, learner=Colocated(parts.learner, engine.sleep))
    return parts


def build_in_process(seed: int, threads: int, collector: Callable[[Engine], Collector], engine: Engine) -> Collector:
    """Build the collector of a process that only samples."""
    prepare_torch(seed, threads)
    return collector(engine)


def sync_weights(engine: Engine, learner: PolicyGradientLearner, check: SyncCheck | None, always: bool) -> None:
    """Send the weights to the engine. Every process calls this, even if only the first one talks to the engine.

    Args:
        check: called after every sync if `always`; otherwise after the first syncs and every tenth.
    """
    free_reserve()
    wait_for_all()  # since the first process wakes engines on all devices
    version = learner.policy_version
    engine.sync(learner.policy, version)
    if check is not None and (always or version <= CHECKED_SYNCS or version % CHECKED_EVERY == 0):
        check()


def free_reserve() -> None:
    """Free the device memory that this process has cached, so that an engine on the device can wake up."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
