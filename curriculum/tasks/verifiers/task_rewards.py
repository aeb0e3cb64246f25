"""The verifier `taskset`: computes rewards of tasks of the package verifiers in helpers; refuses unsuitable tasks."""

import asyncio
import inspect
import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from halfway.curriculum import Problem, UserError, require
from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.tasks.verifiers import helpers
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched, Lost

SECONDS = 60.0
"""Time limit on scoring one response."""

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
"""Valid names of a task set; verifiers would import the part after the last / of any name."""

HOOKS = ("setup", "finalize", "stage_verifier")
"""Methods that a task runs around an attempt, in its runtime."""


def build_taskset(name: str, config: str) -> Any:
    options: dict[str, Any] = json.loads(config)
    require(bool(NAME.fullmatch(name)), "source taskset", name, "give the name of a package, or owner/name")
    if what := _find_plugin(options):
        raise UserError(f"source taskset: {name}: {what} in its config is refused; use rewards of the task set alone")
    load_extra("verifiers", "source taskset")
    loaders = load_extra("verifiers.v1.utils.loaders", "source taskset")
    single = load_extra("verifiers.v1.envs.single_agent", "source taskset").SingleAgentEnv
    chosen = loaders.taskset_class(name)
    taskset = chosen(loaders.taskset_config_type(name).model_validate({**options, "id": name}))
    if loaders.environment_class(name) is not single:
        raise UserError(f"source taskset: {name} has an environment of its own; only single responses are judged")
    if chosen.toolsets(taskset.config):
        raise UserError(f"source taskset: {name} has tools; only single responses are judged")
    return taskset


def _find_plugin(config: Mapping[str, Any]) -> str:
    """Name what a configuration would import or call besides the task set itself; "" if nothing."""
    task = config.get("task")
    if not isinstance(task, Mapping):
        return ""
    if task.get("judges"):
        return "task.judges"
    for kind in ("rewards", "metrics", "stops"):
        for name, spec in (task.get(kind) or {}).items():
            if isinstance(spec, Mapping) and spec.get("fn"):
                return f"task.{kind}.{name}.fn"
    return ""


def require_one_response(name: str, task: Any) -> None:
    """Raise UserError if judging a task needs more than a response."""
    base = load_extra("verifiers.v1", "source taskset").Task
    own = type(task)
    rewards = task.hooks("reward")
    needing = [each.__name__ for each in rewards if _needs_runtime(each)]
    changed = [hook for hook in HOOKS if getattr(own, hook) is not getattr(base, hook)]
    why = (
        "needs a container" * own.NEEDS_CONTAINER
        or "has tools" * bool(own.toolsets(task.config))
        or "asks a judge" * bool(task.config.judges)
        or "has no reward" * (not rewards)
        or f"needs a runtime for {', '.join(needing + changed)}" * bool(needing or changed)
    )
    if why:
        raise UserError(f"source taskset: {name}: {own.__name__} {why}; only rewards of a single response are used")


def _needs_runtime(reward: Callable[..., Any]) -> bool:
    found = inspect.signature(reward).parameters.get("runtime")
    return found is not None and found.default is inspect.Parameter.empty


def judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool | Lost]:
    """Judge responses: a task's rewards must sum to at least its `passes_at`. If one raises, the response is `Lost`.

    Raises:
        UserError: if a task set is not accepted.
        ValueError: if an answer does not come from the source.
    """
    carried = [_unpack(problem.answer) for problem in problems]
    for name in sorted({each["taskset"] for each in carried}):
        require_accepted(f"taskset:{name}", f"verifier taskset: {name}", "runs the code of that package")
    load_extra("verifiers", "the verifier taskset")
    tasks = [(problem.answer, response) for problem, response in zip(problems, responses, strict=True)]
    found = helpers.get_helpers(__name__, "verifiers.v1").map(f"{__name__}:score", tasks, SECONDS)
    return [_verdict(each, reward) for each, reward in zip(carried, found, strict=True)]


verify = Batched(judge)
"""The verifier `taskset`."""


def _verdict(carried: Mapping[str, Any], reward: object) -> bool | Lost:
    if isinstance(reward, str):
        _say_once(carried["taskset"], reward)
        return Lost(reward)
    return isinstance(reward, float) and reward >= carried["passes_at"]


@cache
def _say_once(name: str, why: str) -> None:
    logging.getLogger(__name__).warning("%s: no reward, so the rollout is lost: %s", name, why)


@lru_cache(maxsize=4096)
def _unpack(answer: str) -> dict[str, Any]:
    carried = json.loads(answer)
    fields = {"taskset": str, "config": dict, "data": dict, "passes_at": float | int}
    if not isinstance(carried, dict) or not all(isinstance(carried.get(name), kind) for name, kind in fields.items()):
        raise ValueError("it is not a task of the source taskset")
    return carried


def score(answer: str, response: str) -> float | str:
    """Sum a task's rewards for a response, or return why there is none. Runs in a helper's process.

    Raises:
        ValueError: if the task cannot be rebuilt.
    """
    try:
        task = _read_task(answer)
    except Exception as error:
        raise ValueError(one_line(error)) from error
    try:
        reward = float(asyncio.run(_score(task, response)))
    except Exception as error:
        return one_line(error)
    return reward if math.isfinite(reward) else f"the reward is {reward}"


@lru_cache(maxsize=1024)
def _read_task(answer: str) -> Any:
    carried = _unpack(answer)
    taskset = _read_taskset(carried["taskset"], json.dumps(carried["config"]))
    task_type = taskset.task_type()
    task = task_type(task_type.data_type().model_validate(carried["data"]), taskset.config.task)
    require_one_response(carried["taskset"], task)
    return task


_read_taskset = lru_cache(maxsize=8)(build_taskset)


async def _score(task: Any, response: str) -> float:
    """Compute the reward of a trace with the task's messages and the response."""
    vf = load_extra("verifiers.v1", "the verifier taskset")
    graph = load_extra("verifiers.v1.graph", "the verifier taskset")
    traces = load_extra("verifiers.v1.trace", "the verifier taskset")
    state = load_extra("verifiers.v1.state", "the verifier taskset").state_cls(type(task))
    data = task.data
    asked = [vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else list(data.prompt)
    system = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    messages = [*system, *asked, vf.AssistantMessage(content=response)]
    nodes = [
        graph.MessageNode(parent=i - 1 if i else None, message=message, sampled=i == len(messages) - 1)
        for i, message in enumerate(messages)
    ]
    about = traces.TraceTask(type=type(task).__name__, data=data, key=task.key, hash=task.hash)
    agent = traces.AgentInfo(config=vf.AgentConfig())
    trace = traces.Trace[type(data), state, vf.AgentConfig](task=about, agent=agent, state=state(), nodes=nodes)
    await task.score(trace)
    return float(trace.reward)
