"""A replay buffer for verl that records rollouts in the session.

verl's setting `custom_sampler` is meant for such buffers. They override one private method,
`_sync_metadata_from_transfer_queue`: verl evicts groups inside `sample`, and only this method runs before it in every
mode.
"""

import json
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from halfway.curriculum import require
from halfway.trainers.hosts.outcomes import rollout_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.verl import steering
from halfway.trainers.hosts.verl.prefix_loop import START
from halfway.trainers.hosts.verl.steering import find_value

FIELDS = ("rm_scores", "responses", "extra_fields", TICKET, START)


class Observing:
    """A mixin for verl's replay buffers that records every finished group before verl evicts it."""

    def __init__(self, **options: Any):
        self._seen: dict[str, str] = {}  # uid of a prompt still in verl -> ticket
        super().__init__(**options)

    def _sync_metadata_from_transfer_queue(self: Any) -> None:
        super()._sync_metadata_from_transfer_queue()  # type: ignore[misc]
        known = self.prompt_global_steps["train"]
        self._seen = {uid: ticket for uid, ticket in self._seen.items() if uid in known}
        failed = self.failure_keys["train"] - self._seen.keys()
        new = (self.finished_keys["train"] | failed) - self._seen.keys()
        keys = [key for key in self.partitions["train"] if key.split("_")[0] in new]
        if keys:
            data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=list(FIELDS))
            self._record(keys, data)
        unknown = sorted(failed - self._seen.keys())
        if unknown and not steering.current().synchronous:  # without rollouts; only asynchronous trainers keep rows
            rows = tq.kv_batch_get(keys=unknown, partition_id="train", select_fields=[TICKET])
            self._seen |= {uid: plain(rows[TICKET][i]) for i, uid in enumerate(unknown)}
        for uid in sorted(failed & self._seen.keys()):
            steering.current().fail(self._seen[uid])

    def _record(self: Any, keys: list[str], data: Any) -> None:
        """Record the rollouts stored under these keys, one per key.

        Tickets that the session no longer expects are ignored: a resumed asynchronous trainer still has groups observed
        before its checkpoint.
        """
        steered = steering.current()
        ends = steered.ends
        tickets = [plain(data[TICKET][i]) for i in range(len(keys))]
        self._seen |= {key.split("_")[0]: ticket for key, ticket in zip(keys, tickets, strict=True)}
        expected = {ticket for ticket in tickets if steered.hosting.session.expects(ticket)}
        for i, (key, ticket) in enumerate(zip(keys, tickets, strict=True)):
            if ticket not in expected:
                continue
            reward = float(data["rm_scores"][i].sum())
            extra = plain(data["extra_fields"][i]).get("reward_extra_info") or {}
            success = steered.judge.success(find_value(extra, steered.success) if steered.success else reward)
            tag = self.partitions["train"][key]
            version = int(tag.get("min_global_steps") or tag["global_steps"])
            replayed = len(json.loads(plain(data[START][i])))
            tokens = data["responses"][i].tolist()
            rollout = None if success is None else rollout_of(tokens, success, reward, ends, version, replayed)
            steered.hosting.record(ticket, rollout)

    def sample(self: Any, global_steps: int, partition_id: str, batch_size: int) -> Any:
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id != "train":
            return batch, metrics
        steered = steering.current()
        surplus: dict[str, str] = {}
        if steered.synchronous:  # nothing is in flight: missing rollouts failed, and unused groups are surplus
            steered.fail_all()
            taken = {self._seen[key.split("_")[0]] for key in batch.keys}
            whole = {group.request.ticket for group in steered.hosting.session.in_hand() if not group.zero_variance}
            surplus = dict.fromkeys(whole - taken, "surplus")
        else:
            steered.hosting.session.age(global_steps)
        steered.commit(global_steps, surplus)
        return batch, {**metrics, **steered.hosting.metrics()}


class SessionBuffer(Observing, ReplayBuffer):  # type: ignore[misc]
    """The replay buffer of synchronous trainers."""


class SessionBufferAsync(Observing, ReplayBufferAsync):  # type: ignore[misc]
    """The replay buffer of asynchronous trainers."""


def session_buffer(trainer_mode: str, sampler_kwargs: Any, **options: Any) -> Any:
    """Make the replay buffer for a trainer's mode, with the settings of verl's own buffer.

    Raises:
        UserError: if group filtering is enabled without a metric.
    """
    filters = sampler_kwargs.get("filter_groups")
    metric = None
    if filters is not None and filters.get("enable", False):
        metric = filters.get("metric")
        require(bool(metric), "algorithm.filter_groups.metric", metric, "name one, such as reward")
    refills = bool(sampler_kwargs.get("sync_refill_failed_groups", False))
    options |= {"filter_groups_metric": metric, "sync_refill_failed_groups": refills, "sampler_kwargs": sampler_kwargs}
    if trainer_mode != "sync":
        return SessionBufferAsync(trainer_mode=trainer_mode, **options)
    size = sampler_kwargs.get("train_batch_size")
    return SessionBuffer(
        trainer_mode=trainer_mode,
        train_batch_size=size,
        gen_batch_size=1 if metric is not None or refills else size,
        max_inflight_gen_batches=filters.get("max_inflight_gen_batches", 1) if metric is not None else 1,
        **options,
    )


def plain(value: Any) -> Any:
    """Unwrap a value that verl has wrapped for a tensor dictionary."""
    return getattr(value, "data", value)
