"""Samples and judges in Ray actors, one on each node of the cluster; arrays stay in Ray's object store.

`RayScatter` has each training process fetch the arrays that it reads.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
from torch import distributed

from halfway.curriculum import Request, Stream, UserError
from halfway.curriculum.support.extras import blaming, load_extra, one_line
from halfway.trainers.distributed.collectives import broadcast_from_first, wait_for_all
from halfway.trainers.rollouts.collector import Collector
from halfway.trainers.rollouts.sampling_process import Done, Sampler, WorkerPool

NAMESPACE = "halfway"
AUTHENTICATION = "RAY_AUTH_MODE"
"""Set by Ray in the process that starts a cluster."""
SECONDS_TO_CONNECT = 5.0
TRIES = 3
"""Times that an actor may end while it works on one submission."""
NOTICE_SECONDS, STUCK_SECONDS = 60.0, 600.0
"""While no processor is free for an actor: seconds between messages, and seconds with no other call in progress until
the run stops."""


def connect_to_ray(field: str, **options: Any) -> Any:
    """Connect this process to the cluster at RAY_ADDRESS, or to a new one on this host; returns the module `ray`.

    Args:
        field: the option that needs Ray.
        options: of `ray.init`, such as another address.

    Raises:
        UserError: if Ray is not installed, or no cluster responds.
    """
    ray = load_extra("ray", field)
    if ray.is_initialized():
        return ray
    handler = signal.getsignal(signal.SIGTERM)  # Ray's own would end the process with status 1
    try:
        host, _, port = os.environ.get("RAY_ADDRESS", "").rpartition("/")[2].rpartition(":")
        if port.isdigit():  # Ray itself waits for minutes, and then ends the process
            socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()
        # Without an address, Ray would join whatever cluster runs on this host, or wait for one that has ended.
        ray.init(log_to_driver=False, **{"address": os.environ.get("RAY_ADDRESS") or "local"} | options)
    except Exception as error:  # Ray raises bare ones, too
        raise UserError(f"{field}: no Ray cluster responds ({one_line(error)}); set RAY_ADDRESS") from error
    finally:
        with suppress(ValueError, TypeError):  # in another thread Ray sets none; one set by C cannot be given back
            signal.signal(signal.SIGTERM, handler)
    return ray


class RayArrays:
    """The arrays of a group in Ray's object store; see `halfway.curriculum.stored.Payload`.

    They stay on the node that sampled them, until nothing refers to them. The process that asked for the rollouts owns
    them, so they outlive the actor, but not its node.

    Attributes:
        ref: Ray's reference, unknown in the actor itself.
    """

    name = "rollouts.workers: an object in Ray's store"

    def __init__(self) -> None:
        self.ref: Any = None

    def read(self, start: int, size: int) -> memoryview:
        import ray

        try:
            return _content(self.ref)[start : start + size]
        except ray.exceptions.ObjectLostError as error:
            raise UserError(
                "rollouts.workers: a node was lost with rollouts that were not trained on yet; resume the run"
            ) from error
        except ray.exceptions.RayError as error:  # such as a full disk
            raise UserError(f"{self.name} cannot be read ({one_line(error)}); resume the run") from error


@lru_cache(maxsize=1)  # a group's arrays are often read one after another
def _content(ref: Any) -> memoryview:
    import ray

    return memoryview(ray.get(ref))


class Kept:
    """A store that collects what an actor returns."""

    def __init__(self) -> None:
        self.payloads: list[RayArrays] = []
        self.contents: list[Any] = []

    def put(self, content: bytes) -> RayArrays:
        self.payloads.append(RayArrays())
        self.contents.append(np.frombuffer(content, np.uint8))  # which is read without a copy
        return self.payloads[-1]


class Actor(Sampler):
    """A sampler that leaves arrays in the object store.

    It builds its collector when that is first used. So an actor that waits for a processor does not answer, and one
    that builds does.
    """

    def __init__(self, build: Callable[[], Collector]):
        self._build, self._building = build, threading.Lock()
        self._built: Collector | None = None

    @property
    def _collector(self) -> Collector:  # type: ignore[override]
        with self._building:
            if self._built is None:
                self._built = self._build()
            return self._built

    def build(self) -> None:
        """Build the collector, if that has not been done."""
        _ = self._collector

    def run_stored(self, requests: Sequence[Request], stream: Stream, kept: Kept) -> list[Any]:
        """See `Sampler.run`. Returns that with the payloads, then the content of each, as one object per request."""
        done = self.run(requests, stream, kept)
        return [(done, kept.payloads), *kept.contents, *[None] * (len(requests) - len(kept.contents))]


class RayPool(WorkerPool):
    """Rolls out in actors, one on each node of the cluster at RAY_ADDRESS, or of one that it starts on this host.

    The outcome is the same on any number of actors. If one ends, Ray starts it again, perhaps on another node, and its
    requests are sampled again. While other jobs have all processors, the pool waits, and says so.
    """

    def __init__(self, build: Callable[[], Collector], at_once: int = 1):
        """Start the actors, and wait until they are ready.

        Args:
            build: makes the collector in an actor; it and the requests are pickled.

        Raises:
            UserError: if Ray is not installed, RAY_ADDRESS leads nowhere, no processor for an actor becomes free in
                `STUCK_SECONDS`, or an actor cannot build its collector.
        """
        self.ray = ray = connect_to_ray("rollouts.workers")
        nodes = sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
        if not nodes:
            raise UserError("rollouts.workers: no node of Ray's cluster offers a CPU; start one with --num-cpus")
        super().__init__(nodes, at_once, Kept())
        self._told: tuple[Any, ...] = ()
        self._busy = set[int]()  # threads whose call is in progress
        self._closed, self._noticed = False, 0.0
        remote = ray.remote(Actor).options(
            max_concurrency=at_once, max_restarts=-1, scheduling_strategy="SPREAD", num_cpus=1
        )
        self._build = ray.put(build)  # Ray drops what nothing refers to, and a restart needs it again
        self.actors = [remote.remote(self._build) for _ in range(nodes)]
        try:
            for actor in self.actors:
                self._await(actor)
            ray.get([actor.build.remote() for actor in self.actors])  # however long that takes
        except BaseException as error:
            self.close()
            if not isinstance(error, ray.exceptions.RayActorError | ray.exceptions.RayTaskError):
                raise
            last = str(error).strip().rpartition("\n")[2]
            raise UserError(f"rollouts.workers: an actor did not start ({one_line(last)}); see `ray logs`") from error

    def on_engine(self, method: str, *arguments: Any) -> Any:
        self._told = (method, *arguments)
        return super().on_engine(method, *arguments)

    def close(self) -> None:
        self._closed = True
        for actor in self.actors:
            self.ray.kill(actor)
        super().close()

    def _ask(self, worker: int, method: str, *arguments: Any) -> Any:
        actor, tries, errors = self.actors[worker], 0, self.ray.exceptions
        while True:
            try:
                if tries:
                    self._await(actor, again=True)
                    if self._told:
                        self._call(actor, "on_engine", *self._told)
                return self._call(actor, method, *arguments)
            except (errors.RayActorError, errors.ObjectLostError) as error:  # or what it returned, with its node
                tries += 1
                if tries == TRIES:
                    raise UserError(
                        f"rollouts.workers: an actor ended {tries} times ({one_line(error)}), possibly out of "
                        "memory; resume the run"
                    ) from error
                self.resampled += len(arguments[0]) if method == "run" else 0
            except errors.RayError as error:
                raise UserError(f"rollouts.workers: Ray has failed ({one_line(error)}); resume the run") from error

    def _await(self, actor: Any, again: bool = False) -> None:
        """Wait until an actor runs; it may not have built its collector yet.

        Args:
            again: Ray starts it again, and raises RayActorError meanwhile.

        Raises:
            UserError: after `STUCK_SECONDS` in which no call was in progress, so nothing else could end either.
        """
        began = stuck = time.monotonic()
        answer = actor.process.remote()
        while True:
            if self.ray.wait([answer], timeout=1.0)[0]:
                try:
                    self.ray.get(answer)
                    return
                except self.ray.exceptions.RayActorError:
                    if self._closed or not again:
                        raise
                time.sleep(0.5)
                answer = actor.process.remote()
            now = time.monotonic()
            stuck = now if self._busy else stuck
            if now - stuck > STUCK_SECONDS:
                raise UserError(f"{self._missing(now - began)}; resume the run when one is")
            if now - max(began, self._noticed) >= NOTICE_SECONDS:
                self._noticed = now
                print(f"{self._missing(now - began)}; waiting", file=sys.stderr)

    def _missing(self, seconds: float) -> str:
        """What an actor that does not start needs."""
        free, most = (each.get("CPU", 0) for each in (self.ray.available_resources(), self.ray.cluster_resources()))
        return (
            f"rollouts.workers: an actor has not started for {seconds:.0f} s: it needs 1 CPU, and "
            f"{free:g} of {most:g} in Ray's cluster are free"
        )

    def _call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Call a method of an actor; an exception of the method is raised here."""
        self._busy.add(threading.get_ident())
        try:
            if method != "run" or arguments[-1] is None:
                return self.ray.get(getattr(actor, method).remote(*arguments))
            told, *contents = actor.run_stored.options(num_returns=1 + len(arguments[0])).remote(*arguments)
            done: Done
            done, payloads = self.ray.get(told)
            for payload, content in zip(payloads, contents, strict=False):
                payload.ref = content
            return done
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        finally:
            self._busy.discard(threading.get_ident())


class Shares:
    """Keeps the shares of an order until each process has taken its own."""

    def put(self, shares: list[Any]) -> None:
        self.shares = shares

    def take(self, rank: int) -> Any:
        own, self.shares[rank] = self.shares[rank], None
        return own


class RayScatter:
    """Gives each training process its share of an order, in which arrays in Ray's object store are references.

    The shares pass through an actor: Ray keeps for ever what is referred to in other messages. All processes make one
    together; see `halfway.trainers.distributed.workers.Scatter`.
    """

    def __init__(self) -> None:
        """Start the actor in the first process, and connect the others to its cluster.

        Raises:
            UserError: if Ray is not installed, or no cluster responds.
        """
        first, name = distributed.get_rank() == 0, uuid4().hex
        address, authentication = "", ""
        if first:
            self.ray = connect_to_ray("rollouts.workers")
            self.shares = self.ray.remote(num_cpus=0)(Shares).options(name=name, namespace=NAMESPACE).remote()
            self._call("put", [])
            address, authentication = self.ray.get_runtime_context().gcs_address, os.environ.get(AUTHENTICATION, "")
        name, address, authentication = broadcast_from_first((name, address, authentication))
        if not first:
            if authentication:
                os.environ.setdefault(AUTHENTICATION, authentication)
            self.ray = connect_to_ray("rollouts.workers", address=address)
            self.shares = self.ray.get_actor(name, namespace=NAMESPACE)

    def __call__(self, shares: list[Any] | None = None) -> Any:
        if shares is not None:
            self._call("put", shares)
        wait_for_all()
        return self._call("take", distributed.get_rank())

    def _call(self, method: str, argument: Any) -> Any:
        with blaming("rollouts.workers: Ray lost an update", "resume the run", self.ray.exceptions.RayError):
            return self.ray.get(getattr(self.shares, method).remote(argument))
