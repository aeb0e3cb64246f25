"""The parts of a study with one seed, built on first use, and the paths of its files."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from halfway.curriculum import Stream
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.support.components import plain
from halfway.experiments.config.paths import find_model, openable
from halfway.experiments.propel.config import PropelConfig
from halfway.trainers.engines.contract import Engine
from halfway.trainers.learner.adapters import add_adapters
from halfway.trainers.learner.learner_options import LoraOptions
from halfway.trainers.policy import ModelOptions, Policy, load_policy, prepare_torch
from halfway.trainers.propel.corpus import Corpus, load_corpus
from halfway.trainers.propel.domains.oracles import Panel
from halfway.trainers.propel.probes.activations import model_fingerprint
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.solver import ModelOracle, Solver
from halfway.trainers.propel.writing import Author
from halfway.trainers.rollouts.chat import Prompts
from halfway.trainers.rollouts.rollout_options import RolloutOptions


def frozen_policy(options: ModelOptions, rollouts: RolloutOptions | None = None) -> Policy:
    """Load a policy that is not trained, without the adapters named in its options.

    Args:
        rollouts: options of sampling, if it only samples: if the engine has its own weights, the model stays in the
            host's memory. None = it also computes, on the device if there is one.

    Raises:
        UserError: if the model cannot be loaded.
    """
    policy = load_policy(options, find_model(options.path))
    if rollouts is None or rollouts.engine.part.uses_module:
        policy.model.to("cuda" if torch.cuda.is_available() else "cpu")
    policy.model.eval().requires_grad_(False)
    return policy


def build_engine(policy: Policy, options: RolloutOptions, model: Any = None) -> Engine:
    """Build an engine that samples from `model`, or from the policy's own model."""
    return options.engine.part.build(policy.engine_setup(options, model))


class Study:
    """A study with one seed; its parts are built on first use."""

    def __init__(self, config: PropelConfig, seed: int):
        self.config, self.seed = config, seed
        self.folder = config.folder / f"seed-{seed}"
        self.stream = Stream(seed).at("propel")
        self.domain = openable(config.domain.part)
        self._generators: dict[ModelOptions, Policy] = {}
        prepare_torch(seed, config.threads)

    @property
    def corpus_folder(self) -> Path:
        return self.folder / "corpus"

    @property
    def sweep_folder(self) -> Path:
        return self.folder / "sweep"

    def arm_folder(self, arm: str) -> Path:
        return self.folder / "arms" / arm

    @property
    def base(self) -> Policy:
        """The base generator, never trained: arms train copies."""
        return self.generator(self.config.generator.model)

    def generator(self, options: ModelOptions) -> Policy:
        """Load an arm's starting model, once for all arms that differ only in their adapters."""
        key = replace(options, lora=LoraOptions())
        if key not in self._generators:
            self._generators[key] = frozen_policy(key)
        return self._generators[key]

    @cached_property
    def reference(self) -> str:
        """Fingerprint of the base generator, which is the reference model."""
        return model_fingerprint(self.base.model)

    @cached_property
    def reader(self) -> Reader:
        options, base = self.config.activations, self.base
        sizes = (options.max_tokens, options.batch_tokens)
        return Reader(base.model, base.tokenizer, self.reference, *sizes, base.chat, base.system)

    @cached_property
    def solver(self) -> Solver:
        options = self.config.solver
        policy = frozen_policy(options.model, options.rollouts)
        engine = build_engine(policy, options.rollouts)
        rollouts = policy.collector(engine, SingleTurn(), options.rollouts.max_response_tokens)
        self._solver_fingerprint = model_fingerprint(policy.model)
        return Solver(rollouts, options.rollouts.num_rollouts, options.band)

    @cached_property
    def oracle_models(self) -> Mapping[str, Policy]:
        """The models of the oracles, by name."""
        oracles = self.config.oracles
        return {name: frozen_policy(options.model, options.rollouts) for name, options in oracles.items()}

    @cached_property
    def panel(self) -> Panel | None:
        """The oracles, if the study has any."""
        oracles = []
        for name, model in self.oracle_models.items():
            rollouts, prompts = self.config.oracles[name].rollouts, Prompts(model.tokenizer, model.chat, model.system)
            sizes, stream = (rollouts.num_rollouts, rollouts.max_response_tokens), self.stream.at("oracle", name)
            oracles.append(ModelOracle(build_engine(model, rollouts), prompts, *sizes, stream))
        return Panel(tuple(oracles)) if oracles else None

    def author(self, loaded: Policy, rollouts: RolloutOptions, oracles: bool = True) -> Author:
        """Make a generator of tasks.

        Args:
            oracles: whether the study's oracles, if it has any, judge its texts.
        """
        engine, limit = build_engine(loaded, rollouts), rollouts.max_response_tokens
        panel = self.panel if oracles else None
        return Author(engine, loaded.tokenizer, self.domain, limit, loaded.chat, loaded.system, panel)

    @cached_property
    def base_author(self) -> Author:
        return self.author(self.base, self.config.generator.rollouts)

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """The facts that determine a corpus. Models are named by fingerprint, not by path."""
        solver, config = self.solver, self.config
        return {
            "reference model": self.reference,
            "generator.rollouts": _sampling(config.generator.rollouts),
            "solver model": self._solver_fingerprint,
            "solver.rollouts": _sampling(config.solver.rollouts) | {"num_rollouts": solver.attempts},
            "domain": plain(config.domain),
            "corpus": asdict(config.corpus),
            "seed": self.seed,
            "generator.model": _template(config.generator.model),
            "solver.model": _template(config.solver.model),
            "oracles": {name: self._oracle(name, loaded) for name, loaded in self.oracle_models.items()},
        }

    def _oracle(self, name: str, loaded: Policy) -> dict[str, Any]:
        options = self.config.oracles[name]
        attempts = {"num_rollouts": options.rollouts.num_rollouts}
        template, sampling = _template(options.model), _sampling(options.rollouts)
        return {"model": model_fingerprint(loaded.model), **template, **sampling, **attempts}

    @cached_property
    def corpus(self) -> Corpus:
        """The finished corpus. Raises UserError if there is none, or if it belongs to another reference model."""
        return load_corpus(self.corpus_folder, self.provenance, self.config.corpus.generations)

    def trainable_copy(self, loaded: Policy, lora: LoraOptions) -> Any:
        """Copy the model for training. With adapters, the copy shares the frozen weights."""
        if not lora.rank:
            return copy.deepcopy(loaded.model).requires_grad_(True)
        shared = {id(weight): weight for weight in loaded.model.parameters()}
        policy = copy.deepcopy(loaded.model, shared)
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(self.stream.at("adapters").integer())  # adapters do not depend on earlier draws
            add_adapters(policy, lora)
        return policy


def _template(options: ModelOptions) -> dict[str, Any]:
    """The options of prompt rendering."""
    return {"chat": options.chat, "system": options.system}


def _sampling(options: RolloutOptions) -> dict[str, Any]:
    return {
        "engine": options.engine.name,
        "temperature": options.temperature,
        "max_response_tokens": options.max_response_tokens,
    }
