"""The models of a study: adapters and their export, chat templates, and which models are trained at all."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from propel_fakes import DOMAIN, TEXTS, FakeEngine
from propel_study import DeathError, dying, state, tiny
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Stream, UserError
from halfway.experiments.propel import stages
from halfway.experiments.propel.stages import run_corpus, run_sweep, run_training
from halfway.experiments.propel.study import Study, build_engine
from halfway.experiments.starting_models.warm_start import build_tokenizer
from halfway.trainers.propel.probes.activations import model_fingerprint
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.writing import Author

LORA = "arms.lora={generator: {model: {lora: {rank: 4, alpha: 8}}}, training: {learner: {lr: 1e-2}}}"
TEMPLATE = "{% for m in messages %}{{ '^' if m['role'] == 'system' else '>' }}{{ m['content'] }}@{% endfor %}a"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with a corpus and a sweep."""
    study = Study(tiny(tmp_path_factory.mktemp("swept")), 0)
    run_corpus(study)
    run_sweep(study)
    return study.config.folder


def test_adapters_train_resume_and_are_exported(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    for name in ("whole", "killed"):
        shutil.copytree(swept, tmp_path / name / "sums")
    study, killed = Study(tiny(tmp_path / "whole", LORA), 0), Study(tiny(tmp_path / "killed", LORA), 0)
    stamp = study.reference
    step = run_training(study, "lora")["chosen"]["step"]
    with monkeypatch.context() as patch, pytest.raises(DeathError):
        patch.setattr(stages.RewardedRollouts, "run", dying(stages.RewardedRollouts.run, 4))
        torch.manual_seed(5)  # what else has drawn from torch's generator does not matter
        run_training(killed, "lora")
    run_training(killed, "lora")
    mine, theirs = (state(one.arm_folder("lora")) for one in (killed, study))
    assert any("adapter" in name for name in mine) and mine == theirs

    config = study.config.arm("lora")
    policy = study.trainable_copy(study.base, config.generator.model.lora)
    weights = {weight.data_ptr() for weight in study.base.model.parameters()}
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    assert weights < {weight.data_ptr() for weight in policy.parameters()}  # the starting weights are there once
    assert trained and all(weight.data_ptr() not in weights for weight in trained)
    assert model_fingerprint(study.base.model) == stamp  # which training has left alone

    training = stages.build_training(study, "lora", config, study.base)
    learner: Any = training.learner
    learner.load(training.checkpoints.path(step))
    engine = build_engine(study.base, config.generator.rollouts, learner.learner.policy)
    by_adapters = replace(study.base_author, engine=engine)
    exported, found = stages.trained_author(study, "lora")
    texts = [[w.text for w in one.write(16, Stream(7))] for one in (by_adapters, exported, study.base_author)]
    assert found == step and texts[0] == texts[1] != texts[2]
    engines: list[Any] = [exported.engine, study.base_author.engine]
    assert [engine.policy_version for engine in engines] == [learner.policy_version, 0] == [step, 0]


def test_arms_that_differ_in_adapters_share_a_starting_point(tmp_path: Path) -> None:
    study = Study(tiny(tmp_path, LORA, "arms.half={generator: {model: {dtype: bfloat16, lora: {rank: 4}}}}"), 0)
    models = {arm: study.config.arm(arm).generator.model for arm in study.config.arms}
    assert study.generator(models["lora"]) is study.base is study.generator(models["probe"])
    assert study.generator(models["half"]) is not study.base


class Recording(FakeEngine):
    """Remembers what it was given."""

    def generate(self, contexts: Any, limits: Any, seeds: Any) -> Any:
        self.given = [self.tokenizer.decode(context.tolist()) for context in contexts]
        return super().generate(contexts, limits, seeds)


def test_a_prompt_goes_through_the_template_where_it_is_written_and_where_it_is_read(
    tiny_model: Qwen3ForCausalLM,
) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = TEMPLATE
    engine = Recording(tokenizer, TEXTS)
    [written] = Author(engine, tokenizer, DOMAIN, 40, chat=True, system="be").write(1, Stream(0))
    assert engine.given == ["^be@>!@a"] and written.prompt == "!" and written.text in TEXTS
    assert Author(engine, tokenizer, DOMAIN, 40).write(1, Stream(0))[0].text == written.text and engine.given == ["!"]
    reading = Reader(tiny_model, tokenizer, "me", 64, 4096, chat=True, system="be").reading("x", "!", "12")
    assert tokenizer.decode(reading.tokens_T.tolist()) == "^be@>!@a12" and reading.start == 8
    plain = Reader(tiny_model, tokenizer, "me", 64, 4096).reading("x", "!", "12")
    assert np.array_equal(plain.tokens_T, reading.tokens_T[[5, 8, 9]])


def test_chat_settings_reach_every_part_and_the_corpus_says_so(tmp_path: Path) -> None:
    chats = ["generator.model.chat=all", "generator.model.system=be brief", "solver.model.chat=all"]
    study, plain = Study(tiny(tmp_path, *chats), 0), Study(tiny(tmp_path), 0)
    for part in (study.base_author, study.reader):
        assert (part.chat, part.system) == (True, "be brief")
    solver: Any = study.solver.rollouts
    training: Any = stages.build_training(study, "solver", study.config.arm("solver"), study.base)
    assert (solver.chat, solver.system) == (True, "")
    assert (training.rollouts.rollouts.chat, training.rollouts.rollouts.system) == (True, "be brief")
    assert study.provenance["generator.model"] == {"chat": "all", "system": "be brief"}
    assert plain.provenance["generator.model"] != study.provenance["generator.model"]
    assert plain.provenance["solver.model"] != study.provenance["solver.model"]


def test_only_generators_are_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"solver\.model\.lora\.rank: 4 is not acceptable; this model is not trained"):
        tiny(tmp_path, "solver.model.lora.rank=4")


def test_without_adapters_the_trained_copy_is_its_own(tmp_path: Path) -> None:
    study = Study(tiny(tmp_path), 0)
    policy = study.trainable_copy(study.base, study.config.generator.model.lora)
    base = copy.deepcopy(study.base.model.state_dict())
    with torch.no_grad():
        for weight in policy.parameters():
            assert weight.requires_grad
            weight.zero_()
    assert all(torch.equal(base[name], weight) for name, weight in study.base.model.state_dict().items())
