"""The session of verl's driver process, shared by data set and replay buffer, which verl makes separately."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from halfway.controllers.chains import from_yaml
from halfway.curriculum import UserError, require
from halfway.trainers.hosts.fetching import Fetching
from halfway.trainers.hosts.hosting import Host, Hosting
from halfway.trainers.hosts.outcomes import Judge
from halfway.trainers.hosts.rows import Columns, rows_of

PROVIDES = frozenset({"tokens", "prefixes", "hints"})
"""Those of `halfway.curriculum.controller.NEEDS` that verl can give a chain."""


@dataclass
class Steering(Fetching):
    """The session that verl's data set and replay buffer share.

    A resumed session need not offer tickets again: asynchronous trainers restart rollouts in flight, and synchronous
    trainers have none in flight when they save.

    Attributes:
        judge: decides whether a rollout succeeded.
        success: name of the value beside the reward that decides success; None = the reward itself.
        synchronous: whether nothing is in flight when a batch is sampled.
        ends: tokens that end a response.
    """

    judge: Judge
    success: str | None
    synchronous: bool
    ends: frozenset[int]


_current: list[Steering] = []


def begin(data: Any, rows: Any, prompt: str, ends: frozenset[int]) -> Steering:
    """Make the session of this process from verl's `data` settings; `current` returns it from then on.

    Args:
        rows: the training rows, as read by verl.
        prompt: name of the column of prompts.
        ends: tokens that end a response.

    Raises:
        UserError: if a setting cannot work, or a controller needs something that verl lacks.
    """
    options = data.get("halfway")
    if options is None or not options.get("chain"):
        raise UserError("data.halfway.chain: missing; give a YAML file with controllers, and add +halfway=session")
    workers = data.dataloader_num_workers
    require(workers == 0, "data.dataloader_num_workers", workers, "give 0; a worker would use a copy of the chain")
    require(not data.shuffle, "data.shuffle", data.shuffle, "give false; the chain decides the order")
    require(options.get("v1", True), "trainer.use_v1", False, "give true; the older trainers cannot host a chain")
    chain = options.chain if isinstance(options.chain, str) else _plain(options.chain)
    controller = from_yaml(chain)
    host = Host(f"verl {version('verl')}", PROVIDES)
    problems = rows_of(rows, controller, Columns(prompt=prompt, answer="reward_model"))
    text = isinstance(rows[0][prompt], str)
    require(not text, "data.prompt_key", prompt, "give a column of messages; verl would read each letter as one")
    seed, folder = int(options.get("seed", 0)), Path(options.folder)
    hosting = Hosting(controller, problems, int(options.num_rollouts), folder, host, seed)
    success = options.get("success")
    judge = Judge(success or "reward", options.get("threshold"))
    synchronous = options.get("mode", "sync") == "sync"
    _current[:] = [Steering(hosting, int(data.train_batch_size), judge, success, synchronous, ends)]
    return _current[0]


def current() -> Steering:
    """The session of this process, made by the data set.

    Raises:
        UserError: if verl's data set is not Halfway's.
    """
    if not _current:
        raise UserError(
            "data.custom_cls: is not Halfway's data set; add +halfway=session, which sets data set and buffer"
        )
    return _current[0]


def find_value(values: Mapping[str, Any], name: str) -> float:
    """Find the value `name` among those that the user's reward function returned beside the reward.

    Raises:
        UserError: if the function did not return it.
    """
    if name not in values:
        known = ", ".join(sorted(values)) or "nothing"
        raise UserError(f"data.halfway.success: the reward function does not return {name!r}; choose from {known}")
    return float(values[name])


def _plain(value: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
