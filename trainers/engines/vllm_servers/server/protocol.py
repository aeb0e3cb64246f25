"""Types of a vLLM server's responses, and checks of them."""

import re
from typing import Annotated, Any, TypeVar

import msgspec

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.engines.contract import STOPS, Completion

Kind = TypeVar("Kind")
# Suffix of the name of weights that a server has only in part.
UNFINISHED = "-unfinished"
GENERATE = "/inference/v1/generate"


class ServerError(Exception):
    """A server did not answer in time, or its response is not valid."""


class RefusedError(ServerError):
    """A server rejected the request (HTTP 4xx)."""


class OtherTokenError(ServerError):
    """A server needs another token; waiting does not help."""


class OtherWeightsError(ServerError):
    """A server sampled with other weights than those sent to it last."""


class Span(msgspec.Struct):
    """Tokens of a sequence, from `start` to before `end`, sampled by one version of the weights."""

    version: str
    start: int = 0
    end: int = 0


class Logprob(msgspec.Struct):
    """Log-probability of one token. JSON has neither infinity nor NaN."""

    logprob: Annotated[float, msgspec.Meta(ge=-1e6, le=1e-3)]


class Logprobs(msgspec.Struct):
    """Log-probabilities of a sequence, one per token."""

    content: list[Logprob]


class Choice(msgspec.Struct):
    """A sampled sequence, and the weights that sampled it."""

    token_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]
    logprobs: Logprobs
    finish_reason: str | None = None
    weight_versions: list[Span] | msgspec.UnsetType | None = msgspec.UNSET


class Generated(msgspec.Struct):
    """The response to a request for one sequence."""

    choices: Annotated[list[Choice], msgspec.Meta(min_length=1, max_length=1)]


class Model(msgspec.Struct):
    """A server's description of its model."""

    max_model_len: Annotated[int, msgspec.Meta(ge=1)]


class Models(msgspec.Struct):
    """The models of a server. Halfway's servers have one."""

    data: Annotated[list[Model], msgspec.Meta(min_length=1)]


class Held(msgspec.Struct):
    """The name of the weights that a server holds."""

    weight_version: str | int | None


class Emptied(msgspec.Struct):
    """Whether a server has emptied its cache."""

    success: bool | None = None


def decode(where: str, content: bytes, kind: Any = Any) -> Any:
    """Decode a JSON response as this kind; None if it is empty or plain text.

    Args:
        where: address and path, for the message.

    Raises:
        ServerError: if the response is damaged, or of another kind.
    """
    try:
        return msgspec.json.decode(content, type=kind) if content.startswith((b"{", b"[")) else None
    except msgspec.ValidationError as error:
        raise ServerError(f"{where}: unexpected response ({one_line(error)})") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ServerError(f"{where}: its response is damaged ({one_line(error)})") from error


def read(where: str, answer: Any, kind: type[Kind]) -> Kind:
    """Convert a decoded response to this kind. Raises ServerError if it is of another kind."""
    if isinstance(answer, kind):
        return answer
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ServerError(f"{where}: unexpected response ({one_line(error)})") from error


def version_in(name: str) -> int:
    """Read the policy version from a name of weights, "RUN-VERSION". Several runs may use one server."""
    return int(name.rpartition("-")[2])


def require_version(address: str, choice: Choice, version: str, in_flight: bool) -> None:
    """Refuse a sequence that weights of another version sampled; in flight, of another run.

    Raises:
        UserError: if the server is too old to report the weights.
        OtherWeightsError: if other weights sampled any part of the sequence.
    """
    if choice.weight_versions is msgspec.UNSET:
        raise UserError(
            f"rollouts.engine: the vLLM server {address} does not say which weights sampled a sequence; "
            "install vLLM 0.32 there, or use rollouts.engine=vllm"
        )
    versions = {span.version for span in choice.weight_versions or ()}
    given = re.compile(rf"{re.escape(version.rpartition('-')[0])}-\d{{1,15}}" if in_flight else re.escape(version))
    if not versions or not all(map(given.fullmatch, versions)):
        raise OtherWeightsError(f"{address}: sampled with weights {one_line(sorted(versions))}, not {version!r}")


def completion(address: str, choice: Choice, limit: int, vocabulary: int) -> Completion:
    """Convert a sequence of at most `limit` tokens. Raises ServerError if its parts contradict each other."""
    if choice.finish_reason not in STOPS:
        raise ServerError(f"{address}: ended a request with {one_line(choice.finish_reason)}")
    if max(choice.token_ids, default=0) >= vocabulary:
        raise ServerError(f"{address}: sampled a token outside the policy's vocabulary of {vocabulary}")
    count, logprobs = len(choice.token_ids), [entry.logprob for entry in choice.logprobs.content]
    if count > limit or len(logprobs) != count:
        raise ServerError(f"{address}: {count} tokens of {limit}, with {len(logprobs)} log-probabilities")
    spans = [(version_in(span.version), span.end - span.start) for span in choice.weight_versions or ()]
    if len(spans) > 1 and (min(num for _, num in spans) < 1 or sum(num for _, num in spans) != count):
        raise ServerError(f"{address}: {count} tokens, but weight versions for {one_line(spans)}")
    version, stop = min(version for version, _ in spans), STOPS[choice.finish_reason]
    several = tuple(spans) if len(spans) > 1 else ()
    return Completion.without_entropies(choice.token_ids, logprobs, stop, version, several)
