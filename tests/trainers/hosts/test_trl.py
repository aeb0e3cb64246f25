"""A chain in TRL's `GRPOTrainer`: the real trainer, the lab policy."""

import functools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop_harness import training
from messages import says
from paths import DRIVERS
from preloaded import Preloaded
from special_tokens import matrix, tokenizer_that

trl = pytest.importorskip("trl")

import trl_lab  # noqa: E402
from trl_lab import GROUPS, SIZE  # noqa: E402

import halfway  # noqa: E402
from halfway.controllers.greso import Greso  # noqa: E402
from halfway.controllers.prefix_sampling import PrefixSampling  # noqa: E402
from halfway.controllers.pros import Pros  # noqa: E402
from halfway.controllers.uniform import Uniform  # noqa: E402
from halfway.curriculum import (  # noqa: E402
    Chain,
    Group,
    Hint,
    Origin,
    Prefix,
    Problem,
    Request,
    Rollout,
    Stream,
    Turn,
    UserError,
    chain,
)
from halfway.curriculum.problems import Message  # noqa: E402
from halfway.trainers.contracts import Rollouts  # noqa: E402
from halfway.trainers.loop.loop_options import Budget, FillOptions  # noqa: E402
from halfway.trainers.rollouts.chat import Prompts  # noqa: E402

CHAINS: dict[str, Chain] = {
    "greso": chain(("uniform", Uniform()), ("greso", Greso(frozen_epochs=0))),
    "pros": chain(("pros", Pros(reuse=False))),
    "prefixes": chain(("prefix_sampling", PrefixSampling(max_share=0.5)), ("uniform", Uniform())),
}
ROUTES = [("greso", "rows"), ("greso", "rollouts"), ("pros", "rows"), ("prefixes", "rows"), ("prefixes", "rollouts")]


def records(folder: Path, name: str = "decisions") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "halfway" / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("name", "through"), ROUTES)
def test_a_run_that_is_killed_and_resumed_is_the_same(name: str, through: Any, tmp_path: Path) -> None:
    whole = trl_lab.trainer(CHAINS[name], trl_lab.config(tmp_path / "whole", 4), through=through)
    whole.train()
    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "whole" / "checkpoint-2", broken / "checkpoint-2")
    shutil.copytree(tmp_path / "whole" / "halfway", broken / "halfway")  # with records behind the checkpoint
    again = trl_lab.trainer(CHAINS[name], trl_lab.config(broken, 4), through=through)
    again.train(resume_from_checkpoint=str(broken / "checkpoint-2"))
    assert (broken / "halfway" / "decisions.jsonl").read_bytes() == (
        tmp_path / "whole" / "halfway" / "decisions.jsonl"
    ).read_bytes()
    assert trl_lab.losses(again) == trl_lab.losses(whole)
    groups = [record for record in records(broken) if record["outcome"] != "skipped"]
    assert len(groups) == 4 * GROUPS and {record["n"] for record in groups} == {SIZE}
    assert [sum(r["step"] == step for r in groups) for step in range(4)] == [GROUPS] * 4
    if name == "prefixes":
        assert any(record["prefix_tokens"] for record in groups)


def test_replayed_tokens_have_no_gradient_and_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl import GRPOTrainer

    seen: list[tuple[int, float, float]] = []
    loss_of, scores_of = GRPOTrainer._compute_loss, GRPOTrainer._get_per_token_logps_and_entropies

    def watched(self: Any, model: Any, inputs: Any) -> Any:
        own_BT = inputs["completion_mask"] * inputs["tool_mask"]
        replayed = int((inputs["completion_mask"] * (1 - inputs["tool_mask"])).sum())
        assert int(inputs["num_items_in_batch"]) == int(own_BT.sum()), "the normaliser counts own tokens"
        kept: dict[str, Any] = {}

        def spied(*arguments: Any, **options: Any) -> Any:
            found = scores_of(*arguments, **options)
            found[0].retain_grad()
            kept["logprobs_BT"] = found[0]
            return found

        monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", spied)
        loss_of(self, model, inputs).backward()
        model.zero_grad()
        monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", scores_of)
        gradient_BT = kept["logprobs_BT"].grad.abs()
        seen.append((replayed, float(gradient_BT[own_BT == 0].sum()), float(gradient_BT[own_BT == 1].sum())))
        return loss_of(self, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", watched)
    options = {"gradient_accumulation_steps": 1, "per_device_train_batch_size": GROUPS * SIZE, "save_steps": 100}
    trl_lab.trainer(CHAINS["prefixes"], trl_lab.config(tmp_path, 5, **options)).train()
    prefixed = [each for each in seen if each[0] > 0]
    assert prefixed and all(others == 0 for _, others, _ in seen)
    assert any(own > 0 for _, _, own in prefixed)
    replayed = [record for record in records(tmp_path) if record["prefix_tokens"]]
    assert replayed and all(record["tokens"] <= record["n"] * (40 - record["prefix_tokens"]) for record in replayed)


@dataclass
class Script(Rollouts):
    """Passes every problem's n-th group with n successes, one after the other: here, and in Halfway's own loop."""

    visits: Counter[str] = field(default_factory=Counter)
    version: int = 0

    def successes(self, problem: str) -> list[bool]:
        self.visits[problem] += 1
        passed = (len(problem) * 7 + sum(map(ord, problem)) + self.visits[problem]) % (SIZE + 1)
        return [i < passed for i in range(SIZE)]

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        none = trl_lab.no_tokens()
        return [Group(r, none, tuple(Rollout((), good) for good in self.successes(r.problem.id))) for r in requests]

    def sync(self, version: int) -> None:
        self.version = version

    def reward(self, id: Sequence[str], **_: Any) -> list[float]:
        firsts = [id[i] for i in range(0, len(id), SIZE)]
        return [float(good) for problem in firsts for good in self.successes(problem)]


@pytest.mark.parametrize("name", ["greso", "pros"])
def test_equal_rewards_give_the_decisions_of_the_own_loop(name: str, tmp_path: Path) -> None:
    steps = 6
    script, native = Script(), tmp_path / "native"
    args = trl_lab.config(tmp_path / "trl", steps, max_completion_length=2, save_strategy="no")
    trl_lab.trainer(CHAINS[name], args, reward=script.reward, through="rollouts").train()
    own = {"rollouts": Script(), "problems": trl_lab.problems(), "controller": CHAINS[name], "num_rollouts": SIZE}
    training(native, FillOptions(groups=GROUPS, zero_variance="keep"), Budget(steps=steps), **own).train()

    def decided(folder: Path) -> list[Any]:
        lines = map(json.loads, (folder / "decisions.jsonl").read_text().splitlines())
        return [[line[key] for key in ("step", "round", "problem", "origin", "decisions", "k", "n")] for line in lines]

    assert decided(tmp_path / "trl" / "halfway") == decided(native)
    assert len(decided(native)) >= steps * GROUPS


TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize(("name", "through"), [("greso", "rows"), ("prefixes", "rollouts")])
def test_prompts_may_be_conversations(name: str, through: Any, tmp_path: Path) -> None:
    given = [
        {"id": p.id, "prompt": [{"role": "user", "content": p.prompt}], "answer": p.answer} for p in trl_lab.problems()
    ]
    shown: list[Any] = []

    def reward(prompts: Any, completions: Any, id: Any, **rest: Any) -> list[float]:
        shown.extend(prompts)
        assert not [name for name in rest if name.startswith("halfway")]
        return trl_lab.passed(prompts, [completion[0]["content"] for completion in completions], id)

    _, tokenizer = trl_lab.policy()
    tokenizer.chat_template = TEMPLATE
    options = {"through": through, "processing_class": tokenizer}
    trainer = trl_lab.trainer(CHAINS[name], trl_lab.config(tmp_path, 4), reward, given, **options)
    trainer.train()
    text = {row["id"]: row["prompt"] for row in given}
    drawn = [record["problem"] for record in records(tmp_path) if record["outcome"] != "skipped"]
    assert shown == [text[problem] for problem in drawn for _ in range(SIZE)]
    assert any(record["k"] for record in records(tmp_path))
    if name == "prefixes":
        assert any(record["prefix_tokens"] for record in records(tmp_path))


@matrix
def test_prompts_have_the_special_tokens_that_trl_gives_them(tiny_tokenizer: Any, ends: str, template: str) -> None:
    from trl import GRPOTrainer

    from halfway.trainers.hosts.trl.rollout_func import encode_prompts

    tokenizer = tokenizer_that(tiny_tokenizer, ends, template)
    trainer: Any = SimpleNamespace(processing_class=tokenizer, chat_template=None, chat_template_kwargs={})
    trainer.tools, trainer.environment_factories, trainer._is_vlm = None, None, False
    asked = [{"role": "user", "content": "2+3"}]
    for prompt, messages in (("2+3", ()), (asked, (Message("user", "2+3"),))):
        [ids] = encode_prompts(trainer, [prompt])
        assert [ids] == GRPOTrainer._tokenize_prompts(trainer, [prompt])[0]
        assert ids == Prompts(tokenizer).of_problem(Problem("p", "2+3", "5", messages=messages)).tolist()


@matrix
def test_a_start_in_the_prompt_is_followed_by_the_response_or_given_up(
    tiny_tokenizer: Any, ends: str, template: str
) -> None:
    """A tokenizer that ends a text with a token of its own would put it between the start and the response."""
    from halfway.trainers.hosts.trl.late_rows import LateRows

    tokenizer = tokenizer_that(tiny_tokenizer, ends, template)
    nobody: Any = None
    rows, problem = LateRows(nobody, 1, tokenizer), Problem("p", "2+3", "5")
    six = tokenizer.encode("6", add_special_tokens=False)
    turn = Turn(np.asarray(six, np.int32), *(np.zeros(1, np.float32),) * 2, 0, num_replayed=1)
    prefixed = Request(problem, SIZE, Origin.PREFIX, prefix=Prefix((turn,), 1, "tokens", 1, SIZE, True))
    for request in (prefixed, Request(problem, SIZE, Origin.HINTED, hint=Hint("6", 1, place="response"))):
        ticket: Any = SimpleNamespace(request=request)
        prompt, start, text = rows._start_response(ticket, problem.prompt)
        kept = tokenizer(prompt)["input_ids"] == tokenizer(problem.prompt)["input_ids"] + six
        assert start == six and kept == ("EOS" not in ends) == (text == "6")
        assert kept or (prompt, text) == (problem.prompt, None)


def test_an_audit_of_trls_own_log_counts_what_was_decided(tmp_path: Path) -> None:
    """TRL's completions against the decision log of the same run: groups, passes, and which problem came again."""
    pytest.importorskip("pyarrow")
    from halfway.experiments.audit.log_reading import read_logs

    few = trl_lab.problems().__class__(list(trl_lab.problems())[: 2 * GROUPS])
    args = trl_lab.config(tmp_path, 3, save_strategy="no", log_completions=True)
    trl_lab.trainer(chain(("uniform", Uniform())), args, given=few).train()
    [log], [own] = read_logs([tmp_path / "completions"]), read_logs([tmp_path / "halfway"])
    assert (log.reading.format, own.reading.format) == ("trl", "decisions")
    assert not log.reading.traps and not log.reading.dropped

    def outcomes(history: Any) -> list[tuple[int, int, int, int]]:
        """(step, passes, rollouts, how often the problem has come before) of every group."""
        steps = history.step_V - history.step_V.min()
        columns = (steps, history.passed_V, history.size_V, history.problem_V)
        seen: Counter[int] = Counter()
        found = []
        for step, passed, size, problem in zip(*(column.tolist() for column in columns), strict=True):
            found.append((step, passed, size, seen[problem]))
            seen[problem] += 1
        return sorted(found)

    assert outcomes(log.history) == outcomes(own.history)
    assert len(log.history) == 3 * GROUPS and len(log.history.problems) == 2 * GROUPS


def test_several_rewards_evaluation_and_the_tracker(tmp_path: Path) -> None:
    async def waits(completions: Sequence[str], **_: Any) -> list[float]:
        return [0.25 for _ in completions]

    def length(completions: Sequence[str], **_: Any) -> list[float]:
        return [len(completion) / 100 for completion in completions]

    from datasets import Dataset

    held_out = Dataset.from_list([{"prompt": p.prompt, "id": p.id, "answer": p.answer} for p in trl_lab.problems()][:4])
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "num_generations_eval": 1}
    args = trl_lab.config(tmp_path, 2, save_strategy="no", **options)
    rewards = [length, trl_lab.passed, waits]
    with pytest.raises(UserError, match=says("success", "length, passed, waits")):
        halfway.trl(CHAINS["greso"], trl_lab.problems(), rewards, args)
    model, tokenizer = trl_lab.policy()
    hosted = halfway.trl(CHAINS["greso"], trl_lab.problems(), rewards, args, success="passed")
    trainer = trl.GRPOTrainer(model, **hosted, eval_dataset=held_out, processing_class=tokenizer)
    trainer.train()
    history = trainer.state.log_history
    assert any("eval_rewards/passed/mean" in entry for entry in history)
    assert all("halfway/greso/p_easy" in entry for entry in history if "loss" in entry)
    assert len([r for r in records(tmp_path) if r["outcome"] != "skipped"]) == 2 * GROUPS, "evaluation is not evidence"
    kept = records(tmp_path, "samples")
    assert all(one["prompt"] and one["rollouts"][0]["turns"][0]["text"] for one in kept)


class Instance:
    """A reward that is an instance, as TRL takes them."""

    def __call__(self, **inputs: Any) -> list[float]:
        return trl_lab.passed(**inputs)


class Waiting:
    async def __call__(self, **inputs: Any) -> list[float]:
        return trl_lab.passed(**inputs)


async def wait(*_: Any, **inputs: Any) -> list[float]:
    return trl_lab.passed(**inputs)


@pytest.mark.parametrize(
    ("reward", "name"),
    [
        (functools.partial(trl_lab.passed), "passed"),
        (functools.partial(wait, 1), "wait"),
        (Instance(), "Instance"),
        (Waiting(), "Waiting"),
    ],
)
def test_rewards_may_be_whatever_trl_takes(reward: Any, name: str, tmp_path: Path) -> None:
    trainer = trl_lab.trainer(CHAINS["greso"], trl_lab.config(tmp_path, 1, save_strategy="no"), reward)
    trainer.train()
    assert f"rewards/{name}/mean" in trainer.state.log_history[0]
    assert len([r for r in records(tmp_path) if r["outcome"] != "skipped"]) == GROUPS


def test_a_group_trains_if_the_sum_of_its_rewards_varies(tmp_path: Path) -> None:
    """GRESO goes by what passes, and the records by what TRL trains on."""

    def never(completions: Sequence[str], **_: Any) -> list[float]:
        return [0.0 for _ in completions]

    def position(completions: Sequence[str], **_: Any) -> list[float | None]:
        return [None if i % SIZE == 0 else float(i % SIZE) for i in range(len(completions))]

    outcomes = []
    for weights in ([1.0, 0.5], [1.0, 0.0]):
        args = trl_lab.config(tmp_path, 1, save_strategy="no", reward_weights=weights, max_completion_length=2)
        trl_lab.trainer(CHAINS["greso"], args, [never, position], success="never").train()
        outcomes.append({record["outcome"] for record in records(tmp_path)})
    assert outcomes == [{"trained"}, {"zero_variance"}]


def test_a_second_training_of_one_session_is_refused_and_erases_nothing(tmp_path: Path) -> None:
    args = trl_lab.config(tmp_path, 1, save_strategy="no", max_completion_length=2)
    trainer = trl_lab.trainer(CHAINS["greso"], args)
    trainer.train()
    kept = records(tmp_path)
    with pytest.raises(UserError, match="trained for 1 steps; make a new trainer, or resume"):
        trainer.train()
    assert records(tmp_path) == kept


def test_a_reward_with_too_few_values_is_named(tmp_path: Path) -> None:
    def short(completions: Sequence[str], **_: Any) -> list[float]:
        return [0.0 for _ in completions[1:]]

    args = trl_lab.config(tmp_path, 1, save_strategy="no", max_completion_length=2)
    with pytest.raises(UserError, match=r"reward short: returned 15 values; return 16, one per response"):
        trl_lab.trainer(CHAINS["greso"], args, short).train()


def test_a_reward_that_is_neither_0_nor_1_is_refused_without_a_threshold(tmp_path: Path) -> None:
    def shaped(completions: Sequence[str], **_: Any) -> list[float]:
        return [0.3 for _ in completions]

    trainer = trl_lab.trainer(CHAINS["greso"], trl_lab.config(tmp_path, 1), shaped)
    with pytest.raises(UserError, match=says("reward", "'shaped'", "0.3", "0", "1", "threshold=")) as caught:
        trainer.train()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shuffle_dataset": True}, "args.shuffle_dataset: must be False, not True"),
        ({"dataloader_num_workers": 2}, "args.dataloader_num_workers: must be 0, not 2"),
        ({"max_steps": -1}, "args.max_steps: must be a number of steps, not -1"),
        ({"remove_unused_columns": True}, "args.remove_unused_columns: must be False, not True"),
        ({"num_generations": 3}, "args.num_generations: must be a number that divides the 16 rows of a batch, not 3"),
        ({"num_iterations": 2, "save_steps": 3}, "args.save_steps: must be a multiple of 2, not 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    args = trl_lab.config(tmp_path, 4)
    for name, value in changes.items():
        setattr(args, name, value)
    with pytest.raises(UserError) as caught:
        halfway.trl(CHAINS["greso"], trl_lab.problems(), trl_lab.passed, args)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("controller", "words"),
    [
        (Pros(), "controllers.it: needs the entropy of every sampled token, which TRL "),
        ("replay", "controllers.it: needs training on groups of earlier steps, which TRL "),
        ("knapsack", "controllers.it: needs groups of different sizes, which TRL "),
        ("rounds", "which TRL "),
        ("vcrl", "controllers.it: needs weights and advantages of rollouts, see `LossWeights`, which TRL "),
    ],
)
def test_needs_that_trl_lacks_are_refused_at_the_start(controller: Any, words: str, tmp_path: Path) -> None:
    from halfway.controllers import CONTROLLERS

    member = CONTROLLERS.get(controller)() if isinstance(controller, str) else controller
    listed = chain(("it", member), *(() if controller == Pros() else (("uniform", Uniform()),)))
    with pytest.raises(UserError) as caught:
        halfway.trl(listed, trl_lab.problems(), trl_lab.passed, trl_lab.config(tmp_path, 4))
    assert words in str(caught.value) and "does not have" in str(caught.value) and "\n" not in str(caught.value)


def test_other_problems_and_checkpoints_of_others_are_refused(tmp_path: Path) -> None:
    args = trl_lab.config(tmp_path, 4, save_steps=2, max_completion_length=2)
    trl_lab.trainer(CHAINS["greso"], args).train()
    other = trl_lab.trainer(CHAINS["greso"], args, given=trl_lab.problems(24))
    with pytest.raises(UserError, match=says("24 training problems", "saved session")):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    (tmp_path / "checkpoint-2" / "halfway.json").unlink()
    same = trl_lab.trainer(CHAINS["greso"], args)
    with pytest.raises(UserError, match=says("halfway.json", "resume from a checkpoint")):
        same.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.fixture(scope="module")
def driven(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `trl_driver` has written."""
    folder = tmp_path_factory.mktemp("driven")
    preloaded(folder, folder / "output.txt", DRIVERS / "trl_driver.py", folder)
    return folder


@pytest.mark.parametrize("name", ["greso", "prefixes"])
def test_a_run_killed_without_warning_and_resumed(name: str, driven: Path) -> None:
    steps = 8
    whole, broken = driven / name / "whole", driven / name / "broken"
    assert (whole / "losses.json").read_bytes() == (broken / "losses.json").read_bytes()
    assert len(json.loads((whole / "losses.json").read_text())) == steps
    decisions = Path("halfway") / "decisions.jsonl"
    assert (whole / decisions).read_bytes() == (broken / decisions).read_bytes()
    groups = [record for record in records(whole) if record["outcome"] != "skipped"]
    assert len(groups) == steps * GROUPS and {record["n"] for record in groups} == {SIZE}
    assert [record["step"] for record in records(broken, "steps")] == list(range(steps))
    if name == "prefixes":
        assert any(record["prefix_tokens"] for record in groups)
    else:
        assert any(record["outcome"] == "skipped" for record in records(whole))


@pytest.mark.parametrize(("name", "steps"), [("greso", 2), ("prefixes", 3)])
def test_two_processes_decide_the_same(name: str, steps: int, driven: Path) -> None:
    ranks = driven / name / "ranks"
    states = [json.loads((ranks / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert states[0] == states[1]
    groups = [record for record in records(ranks) if record["outcome"] != "skipped"]
    assert len(groups) == steps * GROUPS and {record["n"] for record in groups} == {SIZE}
