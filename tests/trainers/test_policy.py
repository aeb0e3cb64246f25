"""A policy as it is loaded from a folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from halfway.trainers.learner.backend import save_policy
from halfway.trainers.policy import ModelOptions, load_policy

SUMS = REPOSITORY / "experiments" / "starting_models" / "sums"


@pytest.mark.parametrize("sampled", [False, True])
def test_a_model_can_be_saved_whatever_its_generation_settings(tmp_path: Path, sampled: bool) -> None:
    """transformers refuses to save a temperature without do_sample, which it has loaded with a warning."""
    settings: dict[str, Any] = {"temperature": 0.9, "top_p": 0.6, "eos_token_id": [1, 2], "do_sample": sampled}
    AutoModelForCausalLM.from_pretrained(SUMS).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(SUMS).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
    policy = load_policy(ModelOptions(), str(tmp_path / "model"))
    save_policy(policy.model, tmp_path, True)
    saved = GenerationConfig.from_pretrained(tmp_path / "policy")
    assert saved.eos_token_id == policy.end_tokens and {1, 2} <= set(policy.end_tokens)
    assert saved.temperature == (0.9 if sampled else None)
