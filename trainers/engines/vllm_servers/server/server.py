"""One vLLM server, our own or given by address: its health, the weights it holds, the sequences it continues."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halfway.curriculum import IntArray, UserError
from halfway.trainers.engines.contract import Completion
from halfway.trainers.engines.vllm_servers import auth
from halfway.trainers.engines.vllm_servers.server.connection import Connection
from halfway.trainers.engines.vllm_servers.server.process import Process
from halfway.trainers.engines.vllm_servers.server.protocol import (
    GENERATE,
    UNFINISHED,
    Emptied,
    Generated,
    Held,
    Kind,
    Models,
    RefusedError,
    ServerError,
    completion,
    read,
    require_version,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession


@dataclass(eq=False)
class Server(Process, Connection):
    """A vLLM server at an address.

    Attributes:
        version: name of the weights that this process sent last, see `protocol.version_in`; None = it needs weights
            before it can work.
        usable: False from a failure until the server is revived.
        width: number of workers over which the model is split.
        vocabulary: number of tokens of the policy; completions with other tokens are refused.
        in_flight: whether running sequences continue with new weights; otherwise an update waits for them to finish.
    """

    version: str | None = None
    usable: bool = False
    width: int = 1
    vocabulary: int = 2**31
    in_flight: bool = False

    def __post_init__(self) -> None:
        self.environment = self.environment | {auth.VARIABLE: self.token}

    def stop(self, grace_seconds: float = 0.0) -> None:
        self.usable, self.version = False, None
        super().stop(grace_seconds)

    def last_words(self) -> str:
        """The last failure, the first error in the server's log and the log's path, on one line."""
        failure = self.failure or f"{self.address} gives no answer"
        kept = self.keep_log()
        if not kept:
            return f"{failure}; see its own log"
        return f"{failure}; first error: {self.first_error() or 'none'}; its log is kept: {kept}"

    def ready(self) -> bool:
        """True if it answers and can take weights.

        An interrupted update leaves layers half loaded. Only a restart repairs that, no later update.
        """
        if not self.healthy():
            return False
        try:
            held = str(self._get("/weight_info", Held).weight_version)
        except ServerError as error:
            self.failure = str(error)
            return False
        if held.endswith(UNFINISHED):
            self.failure = f"{self.address} was left in the middle of a weight update; restart this server"
            return False
        return True

    def max_length(self) -> int:
        """Maximum number of tokens of prompt and response; raises ServerError if the server does not report it."""
        return self._get("/v1/models", Models).data[0].max_model_len

    def _get(self, path: str, kind: type[Kind]) -> Kind:
        return read(f"{self.address}{path}", self.call("GET", path), kind)

    def sleep(self, seconds: float) -> None:
        """Free its device: move the weights to the host's memory and drop the cache.

        Raises:
            ServerError: if it fails.
        """
        self.call("POST", "/sleep?level=1", seconds=seconds)

    def wake(self, seconds: float) -> None:
        """Undo `sleep`. Raises ServerError if it fails."""
        self.call("POST", "/wake_up", seconds=seconds)

    def join(self, group: dict[str, Any], seconds: float) -> None:
        """Join a process group for weights, see `halfway.trainers.engines.vllm_servers.weights.receiver.Init`.

        Raises:
            ServerError: if it fails.
        """
        self.call("POST", "/init_weight_transfer_engine", {"init_info": group}, seconds)

    def begin_update(self, version: str, seconds: float, changes: bool = True) -> None:
        """Stop sampling, and prepare for new weights.

        Args:
            changes: False = it already has the weights; none will be sent.

        Raises:
            ServerError: if it fails.
        """
        self.version = None
        # "keep" recomputes the caches of running sequences with the new weights.
        self.call("POST", "/pause?mode=keep" if self.in_flight else "/pause?mode=wait", seconds=seconds)
        if changes:
            # If this process dies or gives up in the middle, the server still knows that it has half an update.
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
            if read(f"{self.address}/reset_prefix_cache", answer or {}, Emptied).success is False:
                raise ServerError(f"{self.address}: could not empty its prefix cache: a request is still running")
        self.call("POST", "/resume", seconds=seconds)
        self.version = version

    async def generate(
        self, session: "ClientSession", context_P: IntArray, sampling: dict[str, Any], version: str, seconds: float
    ) -> Completion:
        """Sample one sequence with the weights of this version; if `in_flight`, with any weights of this run.

        Raises:
            UserError: if the server refuses the request, or is too old to report the weights.
            OtherWeightsError: if other weights sampled any part of the sequence.
            ServerError: if the server fails.
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
        [choice] = read(f"{self.address}{GENERATE}", answer, Generated).choices
        require_version(self.address, choice, version, self.in_flight)
        return completion(self.address, choice, sampling["max_tokens"], self.vocabulary)
