"""Writes the logs in this folder by the trainers' own code, from their wheels unpacked under one folder.

    pip download --no-deps verl==0.9.1 trl==1.16.0 ms-swift==4.6.0 trinity-rft==0.6.0
    pip download --no-deps tinker-cookbook==0.6.1 areal==1.0.4
    for each wheel: unzip -d WHEELS/NAME                      (verl, trl, ms_swift, trinity_rft, tinker_cookbook, areal)
    python make.py WHEELS                                     (pandas, pyarrow; for prime_rl also verifiers==0.4.0)

The functions that write are cut out of the modules as they are, since importing these would load torch, ray and vLLM;
what they are called with stands here. All logs tell the same story, `STORY`, so that they are counted by hand once.
"""

import ast
import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

HERE = Path(__file__).parent
# step -> problem -> rewards of its four rollouts, in order
STORY = {
    1: {"a": [0, 0, 0, 0], "b": [1, 1, 1, 1], "c": [0, 1, 0, 0]},
    2: {"a": [0, 1, 1, 0], "b": [1, 1, 1, 1], "c": [1, 1, 0, 1]},
}
PROMPT = {"a": 'How many "r" in strawberry?', "b": "2+2=\n", "c": "Größer: 9.11 oder 9.9?"}
ANSWER = {"a": "3", "b": "4", "c": "9.9"}


def rows(step):
    """(problem, rollout, reward, response) of a step."""
    return [
        (name, i, float(reward), f"{'right' if reward else 'wrong'} {step}.{i}, at length {'x' * i}")
        for name, rewards in STORY[step].items()
        for i, reward in enumerate(rewards)
    ]


def cut(path, *names, **globals_):
    """Functions and classes of a module, without the rest of it; methods as functions."""
    tree = ast.parse(Path(path).read_text())
    found = {node.name: node for node in ast.walk(tree) if getattr(node, "name", None) in names}
    for node in found.values():
        node.decorator_list = []
    space = {"json": json, "os": os, "np": np, **globals_}
    module = ast.Module([ast.parse("from __future__ import annotations").body[0], *(found[n] for n in names)], [])
    exec(compile(ast.fix_missing_locations(module), str(path), "exec"), space)
    return [space[name] for name in names]


def verl(wheels):
    for folder, module in (("verl", "ppo/ray_trainer.py"), ("verl_v1", "ppo/v1/trainer_base.py")):
        [write] = cut(wheels / "verl/verl/trainer" / module, "_write_generations", print=lambda *_: None)
        for step in STORY:
            table = rows(step)
            order = range(0, len(table)) if folder == "verl_v1" else [i % 3 * 4 + i // 3 for i in range(len(table))]
            table = [table[i] for i in order]  # the classic trainer reorders rows to balance its devices
            names, places, rewards, texts = zip(*table, strict=True)
            shaped = [2 * reward - 1 for reward in rewards]
            extra = {"acc": [reward == 1 for reward in rewards], "pred": list(texts)}
            scores = shaped if folder == "verl" else list(rewards)
            if folder == "verl_v1":
                extra = {"uid": [f"5f0c_{step}{name}_{i}_0" for name, i in zip(names, places, strict=True)]}
            prompts, answers = [PROMPT[n] for n in names], [ANSWER[n] for n in names]
            write(prompts, list(texts), answers, scores, extra, HERE / folder, step)


class Silent:
    def log(self, *_):
        pass


def trl(wheels):
    import pandas

    module = wheels / "trl/trl/trainer/grpo_trainer.py"
    tree = ast.parse(module.read_text())
    log = next(
        node
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef) and owner.name == "GRPOTrainer"
        for node in owner.body
        if getattr(node, "name", None) == "log"
    )
    owner = ast.ClassDef("Trainer", [ast.Name("Silent", ast.Load())], [], [log], [])
    space = {
        "Silent": Silent, "os": os, "pd": pandas, "is_rich_available": lambda: False,
        "strip_images_from_messages": lambda messages: messages,
    }  # fmt: skip
    code = ast.Module([ast.parse("from __future__ import annotations").body[0], owner], [])
    exec(compile(ast.fix_missing_locations(code), str(module), "exec"), space)
    trainer = space["Trainer"]()
    (HERE / "trl" / "completions").mkdir(parents=True, exist_ok=True)
    for step in (*STORY, 3):  # the third time the queues still hold the second batch
        names, _, rewards, texts = zip(*rows(min(step, 2)), strict=True)
        trainer.__dict__ |= {
            "model": SimpleNamespace(training=True),
            "_metrics": {"train": {}, "eval": {}},
            "accelerator": SimpleNamespace(is_main_process=True),
            "log_completions": True,
            "state": SimpleNamespace(global_step=step),
            "args": SimpleNamespace(output_dir=str(HERE / "trl"), report_to=[], log_unique_prompts=False),
            "log_unique_prompts": False,
            "_logs": {
                "prompt": [PROMPT[n] for n in names],
                "completion": list(texts),
                "rewards": {"accuracy_reward": list(rewards), "format_reward": [0.0] * len(names)},
                "advantages": [0.0] * len(names),
                "extra": {},
                "images": [],
            },
        }
        trainer.log({})


def swift(wheels):
    io_utils = wheels / "ms_swift/swift/utils/io_utils.py"
    import queue
    from typing import Any, Literal

    space = {
        "is_master": lambda: True, "Queue": queue.Queue, "Literal": Literal, "Any": Any, "check_json_format": list,
        "dist": SimpleNamespace(is_initialized=lambda: False),
    }  # fmt: skip
    [writer] = cut(io_utils, "JsonlWriter", **space)
    (HERE / "ms_swift").mkdir(exist_ok=True)
    (HERE / "ms_swift" / "completions.jsonl").unlink(missing_ok=True)
    out = writer(str(HERE / "ms_swift" / "completions.jsonl"))
    for step in STORY:
        names, _, rewards, texts = zip(*rows(step), strict=True)
        table = {
            "step": [str(step)] * len(names), "prompt": [PROMPT[n] for n in names], "completion": list(texts),
            "MathAccuracy": list(rewards), "advantages": [0.0] * len(names),
        }  # fmt: skip
        out.append(table)


def trinity(wheels):
    names = ("common/experience.py", "buffer/storage/file.py")
    experience, storage = (wheels / "trinity_rft/trinity" / name for name in names)
    tree = ast.parse(experience.read_text())
    [to_dict] = [
        node
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef) and owner.name == "Experience"
        for node in owner.body
        if getattr(node, "name", None) == "to_dict"
    ]
    space = {}
    exec(compile(ast.fix_missing_locations(ast.Module([to_dict], [])), str(experience), "exec"), space)

    class Experience(SimpleNamespace):
        to_dict = space["to_dict"]

    class Task:
        pass

    [encoder] = cut(storage, "_Encoder", Experience=Experience, Task=Task, EID=Task)
    (HERE / "trinity").mkdir(exist_ok=True)
    with open(HERE / "trinity" / "explorer_output.jsonl", "w") as file:
        for step in STORY:
            for name, i, reward, text in rows(step):
                eid = {
                    "batch": step,
                    "task": list(PROMPT).index(name),
                    "run": i,
                    "step": 0,
                    "suffix": f"{step}{name}{i}",
                }
                made = Experience(
                    eid=SimpleNamespace(to_dict=lambda eid=eid: eid), experience_type="single_turn",
                    tokens=[0] * (7 + i), prompt_length=5, info={"model_version": step}, metrics={},
                    prompt_text=PROMPT[name], response_text=text, messages=None, tools=None,
                    chosen_messages=None, rejected_messages=None, reward=reward, truncate_status=None,
                )  # fmt: skip
                file.write(encoder(ensure_ascii=False).encode(made) + "\n")


def tinker(wheels):
    module = wheels / "tinker_cookbook/tinker_cookbook/rl/rollout_logging.py"
    _, serialize = cut(
        module,
        "_json_safe",
        "serialize_rollout_summaries",
        safezip=lambda *lists: zip(*lists, strict=True),
        logger=None,
    )
    for step in STORY:
        groups = []
        for rewards in STORY[step].values():
            turns = [
                SimpleNamespace(
                    transitions=[
                        SimpleNamespace(
                            ob=SimpleNamespace(length=5), ac=SimpleNamespace(tokens=[0] * (2 + i)),
                            reward=float(reward), episode_done=True, metrics={}, logs={},
                        )
                    ],
                    final_ob=SimpleNamespace(length=9),
                )
                for i, reward in enumerate(rewards)
            ]  # fmt: skip
            totals = [float(reward) for reward in rewards]
            groups.append(
                SimpleNamespace(
                    trajectories_G=turns,
                    final_rewards_G=totals,
                    metrics_G=[{}] * 4,
                    get_total_rewards=lambda t=totals: t,
                )
            )
        folder = HERE / "tinker" / f"iteration_{step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        records = serialize(
            split="train", iteration=step, trajectory_groups_P=groups, taglist_P=[["math"]] * len(groups)
        )
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "train_rollout_summaries.jsonl").write_text(text)


class File:
    """A file that is written from a coroutine, as by aiofiles."""

    def __init__(self, path, mode):
        self.file = open(path, mode)  # noqa: SIM115

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.file.close()

    async def write(self, text):
        self.file.write(text)


async def makedirs(path, exist_ok):
    os.makedirs(path, exist_ok=exist_ok)


def areal(wheels):
    module = wheels / "areal/areal/infra/workflow_executor.py"
    shutil.rmtree(HERE / "areal", ignore_errors=True)
    files = SimpleNamespace(open=File, os=SimpleNamespace(makedirs=makedirs))
    [dump] = cut(module, "_dump_trajectory", RTensor=SimpleNamespace(localize=lambda it: it), aiofiles=files)
    words = {}
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "".join(words[i] for i in ids))
    executor = SimpleNamespace(
        _get_dump_dir=lambda _: str(HERE / "areal" / "rollout"), _get_tokenizer=lambda: tokenizer, logger=None
    )
    task = 0
    for step in STORY:
        for name in PROMPT:
            mine = [row for row in rows(step) if row[0] == name]
            words.update({0: PROMPT[name]} | {1 + i: text for _, i, _, text in mine} | {9: ""})
            trajectory = {
                "input_ids": np.asarray([[0, 9, 1 + i, 9] for _, i, _, _ in mine]),
                "attention_mask": np.ones((4, 4), int),
                "loss_mask": np.asarray([[0, 0, 1, 1]] * 4),
                "rewards": np.asarray([reward for _, _, reward, _ in mine]),
                "versions": np.asarray([[-0, step, step, step]] * 4),
            }
            asyncio.run(dump(executor, trajectory, task, False))
            task += 1


def prime_rl(_):
    from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import Reward, Trace, TraceTask

    class Data(TaskData):
        question: str = ""

    shutil.rmtree(HERE / "prime_rl", ignore_errors=True)
    for step in STORY:
        for kind in ("all", "effective"):
            folder = HERE / "prime_rl" / "rollouts" / f"step_{step}" / "train" / kind
            folder.mkdir(parents=True)
            with open(folder / "traces.jsonl", "w") as file:
                for name, i, reward, _ in rows(step):
                    if kind == "effective" and len(set(STORY[step][name])) == 1:
                        continue
                    task = TraceTask(type="Task", data=Data(idx=0, question=PROMPT[name]), key=f"key-{name}", hash="0")
                    trace = Trace.model_construct(rewards={"correct": Reward(score=reward)}, metrics={})
                    work = TrainWorkInfo(step=step, policy=PolicySpan(start=step, end=step))
                    episode = Episode.model_construct(
                        id=f"{step}{name}{i}", env=EnvInfo(id="lab", name="lab"), task=task,
                        group=GroupInfo(id=f"{step}{name}"), run=TrainRunInfo(id="r", work=work), ok=True, errors=[],
                        traces=[],
                    )  # fmt: skip
                    record = episode.to_record()
                    record["traces"] = [{"rewards": {k: v.model_dump(mode="json") for k, v in trace.rewards.items()}}]
                    file.write(json.dumps(record) + "\n")


def main():
    wheels = Path(sys.argv[1])
    for make in (verl, trl, swift, trinity, tinker, areal, prime_rl):
        if sys.argv[2:] and make.__name__ not in sys.argv[2:]:
            continue
        try:
            make(wheels)
            print(make.__name__, "written")
        except ModuleNotFoundError as error:
            print(make.__name__, "left as it is:", error)


if __name__ == "__main__":
    main()
