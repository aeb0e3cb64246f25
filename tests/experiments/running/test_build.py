"""The parts of a run: their device, and the model's configuration."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paths import REPOSITORY
from transformers import Gemma3Config

from halfway.experiments.config.loading import load_run_config
from halfway.experiments.propel import study
from halfway.experiments.survey import survey
from halfway.trainers import policy
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.policy import ModelOptions


class Model(torch.nn.Module):
    """Remembers where it was moved."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[str] = []

    def to(self, device: Any) -> Any:  # type: ignore[override]
        self.moved.append(str(device))
        return self


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: Any) -> Model:
    loaded = policy.Policy(Model(), tiny_tokenizer, [1], 0, "", False, "")
    for module in (policy, study):
        monkeypatch.setattr(module, "load_policy", lambda *_: loaded)
    monkeypatch.setattr(policy, "prepare_torch", lambda *_: None)
    moving: Model = loaded.model
    return moving


@pytest.mark.parametrize("cuda", [True, False])
def test_a_survey_samples_on_the_gpu_if_there_is_one(model: Model, monkeypatch: pytest.MonkeyPatch, cuda: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    survey.build_collector(load_run_config(REPOSITORY / "experiments" / "recipes" / "lab" / "skills.yaml"))
    assert model.moved == ["cuda"] * cuda


@pytest.mark.parametrize("cuda", [True, False])
def test_a_frozen_policy_computes_on_the_gpu_or_the_cpu(
    model: Model, monkeypatch: pytest.MonkeyPatch, cuda: bool
) -> None:
    """Apple's accelerator, which is neither, has no float64."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: "mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    study.frozen_policy(ModelOptions())
    assert model.moved == ["cuda" if cuda else "cpu"]


def test_a_sync_is_checked_with_the_sizes_of_the_text_model() -> None:
    """The configuration of a model for texts and images has none of its own."""
    config = Gemma3Config(text_config={"vocab_size": 99, "max_position_embeddings": 77})
    engine: Any = SimpleNamespace(serves_all=True, max_length=None)
    learner: Any = SimpleNamespace(policy=SimpleNamespace(config=config))
    check = SyncCheck.between(engine, learner, 0, 0.1)
    assert (check.vocab_size, check.max_length) == (99, 77)
    engine.max_length = 64  # of a server that was started elsewhere
    assert SyncCheck.between(engine, learner, 0, 0.1).max_length == 64
