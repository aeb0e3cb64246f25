"""One vLLM server: its process, if it is ours, and its HTTP endpoints."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from halfway.curriculum.rollouts import IntArray, Stop
from halfway.curriculum.support import end_with_parent
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import clean, one_line
from halfway.trainers.distributed.cluster import restart_pause
from halfway.trainers.engines.base import Completion
from halfway.trainers.engines.vllm_servers import auth
from halfway.trainers.engines.vllm_servers.server_options import FIELD, SERVER_ENVIRONMENT

if TYPE_CHECKING:
    from aiohttp import ClientSession

Kind = TypeVar("Kind")
PROBE_SECONDS = 5.0
# A healthy but busy server may take this many times as long over a request as a silent one before it counts as lost.
PATIENCE = 10
# The suffix of the name of weights that a server holds only in part.
UNFINISHED = "-unfinished"
# Statuses of refusals that say nothing about the request.
TIMED_OUT, TOO_MANY = 408, 429
GENERATE = "/inference/v1/generate"

# With these of a training process, a server would wait for other ranks, or look for their store.
OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# What else a training process sets for itself alone.
OF_A_PROCESS = ("VLLM_ENABLE_V1_MULTIPROCESSING", "CUBLAS_WORKSPACE_CONFIG", auth.FILE_VARIABLE)


MOST_BYTES, BYTES_A_TOKEN = 1 << 20, 1 << 9
"""The longest answer, and what a sequence may add to that for each of its tokens."""


class Span(msgspec.Struct):
    """Tokens of a sequence, from `start` to before `end`, that were sampled by one version of the weights."""

    version: str
    start: int = 0
    end: int = 0


class Logprob(msgspec.Struct):
    """Of one token. JSON has neither infinity nor NaN."""

    logprob: Annotated[float, msgspec.Meta(le=1e-3)]


class Logprobs(msgspec.Struct):
    """Of a sequence, one for each token."""

    content: list[Logprob]


class Choice(msgspec.Struct):
    """A sampled sequence, and the weights that sampled it."""

    token_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]
    logprobs: Logprobs
    finish_reason: str | None = None
    weight_versions: list[Span] | msgspec.UnsetType | None = msgspec.UNSET


class Generated(msgspec.Struct):
    """The answer to a request for one sequence."""

    choices: Annotated[list[Choice], msgspec.Meta(min_length=1, max_length=1)]


class Model(msgspec.Struct):
    """What a server says about its model."""

    max_model_len: Annotated[int, msgspec.Meta(ge=1)]


class Models(msgspec.Struct):
    """The models of a server, of which Halfway's have one."""

    data: Annotated[list[Model], msgspec.Meta(min_length=1)]


class Held(msgspec.Struct):
    """The name of the weights that a server holds."""

    weight_version: str | int | None


class Emptied(msgspec.Struct):
    """Whether a server has emptied its cache."""

    success: bool | None = None


def of_a_trainer(name: str) -> bool:
    """Whether an environment variable belongs to a training process and not to a server that it starts."""
    return name in (*OF_A_RANK, *OF_A_PROCESS) or name.startswith(("TORCHELASTIC_", "GROUP_", "ROLE_"))


def version_in(name: str) -> int:
    """The policy version in a name of weights, which is "RUN-VERSION", since other runs may use the same server."""
    return int(name.rpartition("-")[2])


class ServerError(Exception):
    """A server did not answer in time, or not as it should."""


class RefusedError(ServerError):
    """A server answers that the request is wrong (HTTP 4xx)."""


class OtherWeightsError(ServerError):
    """A server answers, but from other weights than those it was given last."""


@dataclass(eq=False)
class Server:
    """A vLLM server at an address.

    Attributes:
        address: "host:port".
        command: the command that starts it; empty if it is not our own.
        log: file with our own server's messages, in the run's folder, which is removed if the run is killed.
        environment: additional environment variables of its process.
        version: the name of the weights that this process last gave it, see `version_in`; None = it must get weights
            before work.
        usable: False from a failure until it has been revived.
        width: number of workers over which the model is split.
        vocabulary: number of tokens of the policy; a completion with others is not accepted.
        in_flight: whether what it samples goes on with new weights, instead of being awaited before them.
        attempts: number of starts since it was last usable.
        started: when it was last started, on the monotonic clock.
        failure: what went wrong last.
        refuses: whether it has asked for another token, which no waiting changes.
        token: what it asks of every request, see `auth`; empty = nothing.
    """

    address: str
    command: tuple[str, ...] = ()
    log: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    usable: bool = False
    width: int = 1
    vocabulary: int = 2**31
    in_flight: bool = False
    attempts: int = 0
    started: float = 0.0
    failure: str = ""
    refuses: bool = False
    token: str = field(default="", repr=False)
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process, after ending an earlier one. The server is not `usable` yet."""
        assert self.log is not None
        self.stop()
        self.attempts += 1
        self.started = time.monotonic()
        own = {name: value for name, value in os.environ.items() if not of_a_trainer(name)}
        environment = own | SERVER_ENVIRONMENT | self.environment | {auth.VARIABLE: self.token}
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                (sys.executable, end_with_parent.__file__, str(self.log.parent), *self.command),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def ended(self) -> bool:
        """Whether it is our own and does not run."""
        return bool(self.command) and (self.process is None or self.process.poll() is not None)

    def start_again(self) -> None:
        """Start it if it has ended, after a pause that grows with every failed start."""
        if self.ended() and time.monotonic() >= self.started + restart_pause(self.attempts):
            self.start()

    def ask_to_end(self) -> None:
        """Tell the process to clean up, for example its shared memory, and to end; `stop` waits for that."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, grace_seconds: float = 0.0) -> None:
        """End the process and its children, frozen or not.

        Args:
            grace_seconds: time for it to end by itself after `ask_to_end`.
        """
        self.usable, self.version = False, None
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_seconds)
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def call(self, method: str, path: str, body: Any = None, seconds: float = PROBE_SECONDS) -> Any:
        """The answer to a request, as JSON if it has any.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: if there is no answer within `seconds` of silence, or no end within twice as long, or an error.
        """
        parts = urlsplit(f"//{self.address}")
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
        limit = threading.Timer(2 * seconds, lambda: _hang_up(held))
        limit.daemon = True
        held: list[socket.socket] = []
        try:
            connection.connect()
            held.append(connection.sock)  # which the connection hands to an answer that ends it
            limit.start()
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, self._headers())
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error
        finally:
            limit.cancel()
            connection.close()
        return self._accepted(path, response.status, content, MOST_BYTES)

    async def ask(self, session: "ClientSession", path: str, body: Any, seconds: float, most: int = MOST_BYTES) -> Any:
        """The answer to a request that may take long, as JSON.

        Beyond `seconds`, it is waited for only as long as the server is healthy.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: if it is not healthy, has not answered within `PATIENCE` times `seconds`, or fails.
        """
        from aiohttp import ClientError

        asking = asyncio.ensure_future(self._post(session, path, body))
        try:
            for _ in range(PATIENCE):
                if (await asyncio.wait({asking}, timeout=seconds))[0]:
                    return asking.result()
                if not await asyncio.to_thread(self.healthy):
                    raise TimeoutError(f"no answer in {seconds:g} s, and none from /health")
            raise TimeoutError(f"no answer in {PATIENCE * seconds:g} s; if it needs so long, raise {FIELD}.seconds")
        except (OSError, ClientError) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error
        finally:
            asking.cancel()

    async def _post(self, session: "ClientSession", path: str, body: Any) -> Any:
        most = MOST_BYTES + BYTES_A_TOKEN * body["sampling_params"]["max_tokens"]
        headers = self._headers() | {"Accept-Encoding": "identity"}
        url, content = f"http://{self.address}{path}", bytearray()
        async with session.post(url, data=json.dumps(body), headers=headers, allow_redirects=False) as response:
            async for part in response.content.iter_any():
                content += part
                if len(content) > most:
                    break
            return self._accepted(path, response.status, bytes(content), most, Generated)

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **auth.headers(self.token)}

    def _accepted(self, path: str, status: int, content: bytes, most: int, kind: Any = Any) -> Any:
        """The content of an answer, of this kind.

        Raises:
            ServerError: if its status is not 200, or it is damaged, something else, or too long.
        """
        if status == http.client.UNAUTHORIZED:
            self.failure = f"{self.address} asks for another token than {auth.VARIABLE} of this process"
            self.refuses = True
            raise ServerError(self.failure)
        if status != http.client.OK:
            wrong = 400 <= status < 500 and status not in (TIMED_OUT, TOO_MANY)
            text = clean(" ".join(content[:10_000].decode(errors="replace").split()))
            raise (RefusedError if wrong else ServerError)(f"{self.address}{path}: status {status}: {text[:300]}")
        if len(content) > most:
            raise ServerError(f"{self.address}{path}: its answer is longer than {most} bytes")
        try:
            return msgspec.json.decode(content, type=kind) if content.startswith((b"{", b"[")) else None
        except msgspec.ValidationError as error:
            raise ServerError(f"{self.address}{path}: answers something else ({one_line(error)})") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ServerError(f"{self.address}{path}: its answer is damaged ({one_line(error)})") from error

    def _read(self, path: str, answer: Any, kind: type[Kind]) -> Kind:
        """An answer of this kind, which may have been read as such already. Raises ServerError for any other."""
        if isinstance(answer, kind):
            return answer
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise ServerError(f"{self.address}{path}: answers something else ({one_line(error)})") from error

    def last_words(self) -> str:
        """What went wrong last, and what its log says about it, on one line, since the log is removed with the run."""
        if self.log is None or not self.log.exists():
            return f"{self.failure or f'{self.address} gives no answer'}; see its own log"
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error:" in line] or lines
        return f"{self.failure or self.address}; its log: {' '.join(' '.join(errors[-3:]).split())[-600:]}"

    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            self.call("GET", "/health")
        except ServerError:
            return False
        return True

    def ready(self) -> bool:
        """Whether it answers and can take weights; a server with half an update cannot until it is restarted.

        An interrupted update leaves layers half loaded, which no later update repairs.
        """
        if not self.healthy():
            return False
        try:
            held = str(self._read("/weight_info", self.call("GET", "/weight_info"), Held).weight_version)
        except ServerError as error:
            self.failure = str(error)
            return False
        if held.endswith(UNFINISHED):
            self.failure = f"{self.address} was left in the middle of a weight update; restart this server"
            return False
        return True

    def max_length(self) -> int:
        """Most tokens of prompt and response together. Raises ServerError if it does not say."""
        return self._read("/v1/models", self.call("GET", "/v1/models"), Models).data[0].max_model_len

    def sleep(self, seconds: float) -> None:
        """Move its weights to the host's memory and drop its cache, so that others can use its device.

        Raises:
            ServerError: if it fails.
        """
        self.call("POST", "/sleep?level=1", seconds=seconds)

    def wake(self, seconds: float) -> None:
        """Undo `sleep`. Raises ServerError if it fails."""
        self.call("POST", "/wake_up", seconds=seconds)

    def join(self, group: dict[str, Any], seconds: float) -> None:
        """Join a group of processes for weights, see `halfway.trainers.engines.vllm_servers.receiver.Init`.

        Raises:
            ServerError: if it fails.
        """
        self.call("POST", "/init_weight_transfer_engine", {"init_info": group}, seconds)

    def begin_update(self, version: str, seconds: float, changes: bool = True) -> None:
        """Stop sampling, and get ready for new weights.

        Args:
            changes: False = it already has the weights, and none will come.

        Raises:
            ServerError: if it fails.
        """
        self.version = None
        # "keep" recomputes the caches of what is under way with the new weights.
        self.call("POST", "/pause?mode=keep" if self.in_flight else "/pause?mode=wait", seconds=seconds)
        if changes:
            # If this process dies or gives up in the middle, the server itself can tell.
            self.call("POST", "/update_weight_version", {"new_version": version + UNFINISHED}, seconds)
            self.call("POST", "/start_weight_update", seconds=seconds)

    def receive(self, part: dict[str, Any], seconds: float) -> None:
        """Take some of the weights, see `receiver.Update`. Raises ServerError if it fails."""
        self.call("POST", "/update_weights", {"update_info": part}, seconds)

    def end_update(self, version: str, seconds: float, changes: bool = True) -> None:
        """Continue with the new weights and an empty cache. Raises ServerError if it fails."""
        if changes:
            self.call("POST", "/finish_weight_update", {"weight_version": version}, seconds)
        else:
            self.call("POST", "/update_weight_version", {"new_version": version}, seconds)
        if not self.in_flight:
            answer = self.call("POST", "/reset_prefix_cache", seconds=seconds)
            if self._read("/reset_prefix_cache", answer or {}, Emptied).success is False:
                raise ServerError(f"{self.address}: could not empty its prefix cache: a request is still running")
        self.call("POST", "/resume", seconds=seconds)
        self.version = version

    async def generate(
        self,
        session: "ClientSession",
        context_P: IntArray,
        sampling: dict[str, Any],
        version: str,
        seconds: float,
    ) -> Completion:
        """One sequence, sampled by the weights of this version or, in flight, by any that this run has given it.

        Raises:
            UserError: if the server refuses the request, or is too old to say which weights sampled it.
            OtherWeightsError: if other weights sampled any of it.
            ServerError: if it fails.
        """
        body = {"token_ids": context_P.tolist(), "sampling_params": sampling}
        body |= {"cache_salt": version} if self.in_flight else {}
        try:
            answer = await self.ask(session, GENERATE, body, seconds)
        except RefusedError as error:
            raise UserError(
                f"rollouts.engine: the vLLM server refused a sequence of {len(context_P)} + {sampling['max_tokens']} "
                f"tokens ({error}); lower rollouts.max_response_tokens, or start it with the flags that Halfway uses"
            ) from error
        [choice] = self._read(GENERATE, answer, Generated).choices
        if choice.weight_versions is msgspec.UNSET:
            raise UserError(
                f"rollouts.engine: the vLLM server {self.address} does not say which weights sampled a sequence; "
                "install vLLM 0.32 there, or use rollouts.engine=vllm"
            )
        versions = {span.version for span in choice.weight_versions or ()}
        given = re.compile(rf"{re.escape(version.rpartition('-')[0])}-\d+" if self.in_flight else re.escape(version))
        if not versions or not all(map(given.fullmatch, versions)):
            raise OtherWeightsError(
                f"{self.address}: sampled with weights {one_line(sorted(versions))}, not {version!r}"
            )
        return self._completion(choice, sampling["max_tokens"])

    def _completion(self, choice: Choice, limit: int) -> Completion:
        """A choice as a completion. Raises ServerError if its parts contradict each other."""
        stops: dict[str | None, Stop] = {"stop": "end", "length": "length"}
        if choice.finish_reason not in stops:
            raise ServerError(f"{self.address}: ended a request with {one_line(choice.finish_reason)}")
        if max(choice.token_ids, default=0) >= self.vocabulary:
            raise ServerError(f"{self.address}: sampled a token beyond the {self.vocabulary} of the policy")
        count, logprobs = len(choice.token_ids), [entry.logprob for entry in choice.logprobs.content]
        if count > limit or len(logprobs) != count:
            raise ServerError(f"{self.address}: {count} tokens of {limit}, with {len(logprobs)} log-probabilities")
        spans = [(version_in(span.version), span.end - span.start) for span in choice.weight_versions or ()]
        if len(spans) > 1 and (min(num for _, num in spans) < 1 or sum(num for _, num in spans) != count):
            raise ServerError(f"{self.address}: {count} tokens, and weights of {one_line(spans)}")
        return Completion(
            tokens_T=np.asarray(choice.token_ids, np.int32),
            logprobs_T=np.asarray(logprobs, np.float32),
            entropies_T=np.full(count, np.nan, np.float32),
            stop=stops[choice.finish_reason],
            policy_version=min(version for version, _ in spans),
            spans=tuple(spans) if len(spans) > 1 else (),
        )


def _hang_up(held: list[socket.socket]) -> None:
    """End a connection whose answer drips."""
    with suppress(OSError):  # it may be closed already
        held[0].shutdown(socket.SHUT_RDWR)
