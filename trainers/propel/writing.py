"""A generator: prompts in, judged texts out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfway.curriculum import Problem, Stream
from halfway.trainers.engines.contract import Engine
from halfway.trainers.propel.domains.candidates import Candidate, read
from halfway.trainers.propel.domains.domain import Domain, Invalid
from halfway.trainers.propel.domains.oracles import Panel
from halfway.trainers.rollouts.chat import Prompts, Tokenizer

NOT_ENDED = Invalid("not ended")


@dataclass(frozen=True, slots=True)
class Written:
    """One text of a generator.

    Attributes:
        prompt: its prompt.
        candidate: the text, as judged by the domain.
        num_tokens: number of generated tokens, including the end.
    """

    prompt: str
    candidate: Candidate[Any]
    num_tokens: int

    @property
    def text(self) -> str:
        return self.candidate.text

    @property
    def valid(self) -> bool:
        return self.candidate.valid

    @property
    def problem(self) -> Problem:
        """The problem of a valid text."""
        assert self.candidate.problem is not None, "only a valid text has a problem"
        return self.candidate.problem


def judge(
    domain: Domain[Any],
    prompts: Sequence[str],
    texts: Sequence[str],
    ended_N: Sequence[bool],
    lengths_N: Sequence[int],
    panel: Panel | None = None,
) -> list[Written]:
    """Judge each text by the domain. A text cut by the token limit is invalid.

    Args:
        prompts: the prompt of each text.
        lengths_N: the number of tokens of each text.
        panel: as in `halfway.trainers.propel.domains.candidates.read`.
    """
    whole = [i for i, ended in enumerate(ended_N) if ended]
    read_ones = iter(read(domain, [texts[i] for i in whole], panel, [prompts[i] for i in whole]))
    return [
        Written(prompt, next(read_ones) if ended else Candidate(text, None, None, NOT_ENDED, ""), length)
        for prompt, text, ended, length in zip(prompts, texts, ended_N, lengths_N, strict=True)
    ]


@dataclass(frozen=True)
class Author:
    """A generator with its engine.

    Attributes:
        max_tokens: limit on a text; a longer text is invalid.
        chat, system: see `wrap` and `system` of `halfway.trainers.rollouts.chat.Prompts`.
        panel: as in `halfway.trainers.propel.domains.candidates.read`.
    """

    engine: Engine
    tokenizer: Tokenizer
    domain: Domain[Any]
    max_tokens: int
    chat: bool = False
    system: str = ""
    panel: Panel | None = None

    def write(self, count: int, stream: Stream) -> list[Written]:
        """Write `count` texts. Text i, including its prompt, depends only on the stream, i and the engine's weights."""
        streams = [stream.at(i) for i in range(count)]
        prompts = [self.domain.prompt(one.at("prompt")) for one in streams]
        rendered = Prompts(self.tokenizer, self.chat, self.system)
        contexts = [rendered.of_text(prompt) for prompt in prompts]
        seeds = [one.at("text").integer() for one in streams]
        completions = self.engine.generate(contexts, [self.max_tokens] * count, seeds)
        texts = [self.tokenizer.decode(c.tokens_T.tolist(), skip_special_tokens=True) for c in completions]
        ended_N = [completion.stop == "end" for completion in completions]
        return judge(self.domain, prompts, texts, ended_N, [len(c.tokens_T) for c in completions], self.panel)
