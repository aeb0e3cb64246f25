"""The policy's states as features of problems: their means over prompts, their components, and a run that uses them."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from memory import peak_mib
from paths import REPOSITORY

from halfway.curriculum import Problem, ProblemSet
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.build import build_run
from halfway.experiments.running.validation import check_run
from halfway.trainers import prompt_states
from halfway.trainers.policy import Policy
from halfway.trainers.prompt_states import FEATURE, mean_states, principal_components, with_prompt_states


@pytest.fixture
def policy(tiny_model, tiny_tokenizer) -> Policy:  # type: ignore[no-untyped-def]
    return Policy(tiny_model, tiny_tokenizer, [1], 0, "", False, "")


def test_a_state_is_the_mean_over_the_prompts_own_tokens(policy: Policy) -> None:
    prompts = [np.array([3, 4, 5, 6, 7], np.int32), np.array([8, 9], np.int32)]
    states = mean_states(policy, prompts)
    for prompt, state in zip(prompts, states, strict=True):
        with torch.no_grad():
            alone = policy.model.base_model(input_ids=torch.tensor(prompt[None].astype(np.int64))).last_hidden_state
        assert state == pytest.approx(alone[0].mean(0).numpy(), abs=1e-5)


def test_states_are_computed_on_the_gpu_and_the_model_goes_back(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(policy.model, "to", lambda device: moved.append(str(device)))
    mean_states(policy, [np.array([3, 4], np.int32)])
    assert moved == ["cuda", "cpu"]


def test_components_keep_the_distances_of_rows_that_differ_in_few_directions() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(40, 3)) @ generator.normal(size=(3, 20)) + 7
    components = principal_components(rows, 3)
    distances = [np.linalg.norm(table[:, None] - table[None], axis=-1) for table in (rows, components)]
    np.testing.assert_allclose(*distances, atol=1e-9)
    assert principal_components(rows[:3], 16).shape == (3, 2)
    assert (components[np.abs(components).argmax(axis=0), range(3)] > 0).all()


def test_problems_keep_what_they_had(policy: Policy) -> None:
    known = ProblemSet([Problem(str(i), f"{i}+{i}=", "0", features={"lines": i}) for i in range(6)])
    problems = with_prompt_states(known, lambda: policy, 4)
    assert problems.column(FEATURE).shape == (6, 4) and problems.column("lines").tolist() == list(range(6))
    assert problems.fingerprint() == known.fingerprint() and problems.ids() == known.ids()
    assert problems[5].features == {"lines": 5, FEATURE: tuple(problems.column(FEATURE)[5])}


def test_a_chain_that_asks_for_them_gets_them(tmp_path: Path) -> None:
    overrides = ["problems.train=12", "controllers=[{frontier: {features: [prompt_state]}}]"]
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "lab" / "skills.yaml", overrides)
    assert check_run(config, {}) == []
    training = build_run(config, tmp_path)
    assert training.session.problems.column(FEATURE).shape == (12, 11)


def test_components_are_those_of_the_singular_value_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).normal(size=(50, 12)).astype(np.float32) * np.arange(1, 13)
    monkeypatch.setattr(prompt_states, "BLOCK", 7)
    left, scale, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(principal_components(rows, 5)), np.abs(left[:, :5] * scale[:5]), atol=1e-6)


def test_a_resumed_run_does_not_compute_them_again(policy: Policy, tmp_path: Path) -> None:
    def refuse() -> Policy:
        raise AssertionError("the policy is loaded")

    known = ProblemSet([Problem(str(i), f"{i}+{i}=", "0") for i in range(6)])
    first = with_prompt_states(known, lambda: policy, 4, tmp_path)
    again = with_prompt_states(known, refuse, 4, tmp_path)
    assert np.array_equal(first.column(FEATURE), again.column(FEATURE))
    for problems, components in ((ProblemSet(known[:5]), 4), (known, 3)):  # others are not taken for these
        with pytest.raises(AssertionError, match="loaded"):
            with_prompt_states(problems, refuse, components, tmp_path)
    with pytest.raises(AssertionError, match="loaded"):
        with_prompt_states(known, refuse, 4, tmp_path, "another model")
    (tmp_path / prompt_states.FILE).write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(AssertionError, match="loaded"):
        with_prompt_states(known, refuse, 4, tmp_path)


@pytest.mark.parametrize(
    "states",
    [np.zeros((6, 5)), np.zeros((5, 4)), np.zeros(6), np.full((6, 4), np.nan), np.full((6, 4), "x"), np.zeros((6, 0))],
)
def test_saved_states_of_another_form_are_computed_again(states: Any, policy: Policy, tmp_path: Path) -> None:
    known = ProblemSet([Problem(str(i), f"{i}+{i}=", "0") for i in range(6)])
    wanted = with_prompt_states(known, lambda: policy, 4, tmp_path).column(FEATURE)
    np.savez(tmp_path / prompt_states.FILE, key=np.array(f"{known.fingerprint()} 4"), states=states)
    assert np.array_equal(with_prompt_states(known, lambda: policy, 4, tmp_path).column(FEATURE), wanted)


def test_saved_states_that_would_fill_the_memory_are_not_unpacked(tmp_path: Path) -> None:
    """Half a gigabyte of zeros, packed; its header may also be no Python at all."""
    np.savez_compressed(tmp_path / "large.npz", key=np.array("key"), states=np.zeros((1 << 16, 1 << 10)))
    odd = io.BytesIO()
    np.save(odd, np.zeros((6, 4)))
    with ZipFile(tmp_path / "odd.npz", "w") as packed:
        packed.writestr("states.npy", odd.getvalue().replace(b"}", b"("))
    before = peak_mib()
    for name in ("large.npz", "odd.npz"):
        assert prompt_states._kept(tmp_path / name, "key", 6, 4) is None
    assert peak_mib() < before + 100
