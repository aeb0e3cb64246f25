"""The parts of a study with one seed, each built when it is first needed, and where its files are."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curriculum.environments.single_turn import SingleTurn
from curriculum.streams import Stream
from experiments.build import end_tokens, find_model, load_model, prepare_torch
from experiments.config import ModelOptions
from experiments.propel.config import PropelConfig
from trainers.chat import Tokenizer
from trainers.collector import Collector
from trainers.engines import ENGINES
from trainers.engines.base import Engine, EngineSetup
from trainers.options import RolloutOptions
from trainers.probes.activations import model_fingerprint
from trainers.propel.corpus import Corpus, load_corpus
from trainers.propel.rewards import Reader
from trainers.propel.solver import Solver
from trainers.propel.writing import Author


@dataclass(frozen=True)
class Loaded:
    """A model with what belongs to it."""

    model: Any
    tokenizer: Tokenizer
    ends: list[int]
    padding: int
    path: str

    def engine(self, options: RolloutOptions, policy: Any = None) -> Engine:
        """An engine that samples from `policy`, or from the model itself."""
        setup = EngineSetup(policy or self.model, self.path, self.ends, self.padding, options)
        engine: Engine = ENGINES.get(options.engine)(setup)
        return engine


def load(options: ModelOptions) -> Loaded:
    """Raises UserError if there is nothing that can be loaded."""
    path = find_model(options.path)
    tokenizer, model = load_model(options, path)
    ends = end_tokens(tokenizer, model)
    padding = ends[0] if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    return Loaded(model.eval().requires_grad_(False), tokenizer, ends, padding, path)


class Study:
    """One seed of a study."""

    def __init__(self, config: PropelConfig, seed: int):
        self.config, self.seed = config, seed
        self.folder = config.folder / f"seed-{seed}"
        self.stream = Stream(seed).at("propel")
        self.domain = config.build_domain()
        prepare_torch(seed, config.threads)

    @property
    def corpus_folder(self) -> Path:
        return self.folder / "corpus"

    @property
    def sweep_folder(self) -> Path:
        return self.folder / "sweep"

    def arm_folder(self, arm: str) -> Path:
        return self.folder / "arms" / arm

    @cached_property
    def base(self) -> Loaded:
        """The base generator, which is never trained: arms train copies."""
        return load(self.config.generator.model)

    @cached_property
    def reference(self) -> str:
        """The base generator's fingerprint."""
        return model_fingerprint(self.base.model)

    @cached_property
    def reader(self) -> Reader:
        options = self.config.activations
        return Reader(self.base.model, self.base.tokenizer, self.reference, options.max_tokens, options.batch_tokens)

    @cached_property
    def solver(self) -> Solver:
        options = self.config.solver
        model = load(options.model)
        engine = model.engine(options.rollouts)
        rollouts = Collector(engine, SingleTurn(), model.tokenizer, options.rollouts.max_response_tokens)
        self._solver_fingerprint = model_fingerprint(model.model)
        return Solver(rollouts, options.rollouts.num_rollouts, options.band)

    def author(self, loaded: Loaded, rollouts: RolloutOptions) -> Author:
        """A generator at work."""
        return Author(loaded.engine(rollouts), loaded.tokenizer, self.domain, rollouts.max_response_tokens)

    @cached_property
    def base_author(self) -> Author:
        return self.author(self.base, self.config.generator.rollouts)

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """What a corpus is a function of. Models are named by their fingerprints, since paths say little."""
        solver, config = self.solver, self.config
        return {
            "reference model": self.reference,
            "generator.rollouts": _sampling(config.generator.rollouts),
            "solver model": self._solver_fingerprint,
            "solver.rollouts": _sampling(config.solver.rollouts) | {"num_rollouts": solver.attempts},
            "domain": config.domain,
            "corpus": asdict(config.corpus),
            "seed": self.seed,
        }

    @cached_property
    def corpus(self) -> Corpus:
        """The finished corpus. Raises UserError if there is none, or one of another reference model."""
        return load_corpus(self.corpus_folder, self.provenance, self.config.corpus.generations)

    def policy(self, loaded: Loaded) -> Any:
        """A copy that may be trained."""
        return copy.deepcopy(loaded.model).requires_grad_(True)


def _sampling(options: RolloutOptions) -> dict[str, Any]:
    return {
        "engine": options.engine,
        "temperature": options.temperature,
        "max_response_tokens": options.max_response_tokens,
    }
