"""The solver, and a language model as an oracle."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.curriculum import Origin, Problem, Request, Stream
from halfway.trainers.contracts import Rollouts
from halfway.trainers.engines.contract import Engine
from halfway.trainers.propel.propel_options import Band
from halfway.trainers.rollouts.chat import Prompts


@dataclass(frozen=True)
class Solver:
    """A fixed policy that tries generated problems, with the same rollouts as in training.

    Attributes:
        attempts: K, trials per problem.
        band: the pass rates of useful tasks.
    """

    rollouts: Rollouts
    attempts: int
    band: Band

    def passes(self, problems: Sequence[Problem], stream: Stream) -> list[int]:
        """Count the attempts that pass at each problem. A problem listed twice is tried twice as often."""
        requests = [Request(problem, self.attempts, Origin.GENERATED) for problem in problems]
        groups = self.rollouts.run(requests, stream) if requests else []
        return [group.num_passed for group in groups]

    def useful(self, passed: int) -> bool:
        """True if this many passes lie in the band."""
        return self.band.holds(passed, self.attempts)


@dataclass(frozen=True)
class ModelOracle:
    """Samples a few responses to each problem, a function of the stream, the problem's id and the weights.

    Attributes:
        attempts: responses to each problem.
        max_tokens: limit on a response; a longer response counts as no answer.
        stream: this oracle's own stream.
    """

    engine: Engine
    prompts: Prompts
    attempts: int
    max_tokens: int
    stream: Stream

    def answer(self, problems: Sequence[Problem]) -> list[tuple[str, ...]]:
        """Sample the responses to each problem, in order; "" if the token limit cut one."""
        contexts = [tokens_P for p in problems for tokens_P in [self.prompts.of_problem(p)] * self.attempts]
        seeds = [self.stream.at(p.id, number).integer() for p in problems for number in range(self.attempts)]
        completions = self.engine.generate(contexts, [self.max_tokens] * len(contexts), seeds)
        decode = self.prompts.tokenizer.decode
        texts = [decode(c.tokens_T.tolist(), skip_special_tokens=True) if c.stop == "end" else "" for c in completions]
        return [tuple(texts[i : i + self.attempts]) for i in range(0, len(texts), self.attempts)]
