"""The checks of `halfway validate` beyond the fields of a file: model, problems and machines. Needs no torch."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from halfway.curriculum import Problem, Stream, UserError, require
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.files import write_problems
from halfway.curriculum.tasks.hub import UnreachableError
from halfway.curriculum.tasks.sources import ProblemSplit
from halfway.curriculum.tasks.verifiers.reference_trials import try_verifiers
from halfway.experiments.config import paths
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.paths import model_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.build import build_problems, start_session
from halfway.experiments.running.launch import commands
from halfway.experiments.running.memory_estimate import require_room
from halfway.experiments.tracking.mlflow_store import require_known_store
from halfway.trainers.engines.part import require_known_servers
from halfway.trainers.model_folder import catching_panics, check_tokenizer
from halfway.trainers.policy import ModelOptions, load_tokenizer
from halfway.trainers.prompt_states import NEED, with_blank_states
from halfway.trainers.rollouts.chat import Prompts, Tokenizer
from halfway.trainers.rollouts.rollout_options import RolloutOptions

MOST_PROMPTS = 20_000
"""Maximum number of prompts that are tokenized as a check, which takes about a second."""
POINTS_FOR_TARGETS = 12
GROUPS = {"fill.groups", "learner.minibatch_groups", "learner.num_minibatches"}
"""Fields that set the number of groups in a batch or an optimizer step."""

Checked = TypeVar("Checked")
Drawn = dict[str, ProblemSplit]
"""The problems drawn so far, by everything that they depend on, since arms mostly share them."""


def check_run(config: RunConfig, drawn: Drawn) -> list[str]:
    """Check a run. Returns what cannot be checked on this machine, one line each.

    Args:
        drawn: problems from earlier calls; this call adds its own.

    Raises:
        UserError: if the model or the problems are missing, unless the run is for other machines (see `cluster`) or the
            problems are on a hub that does not respond; if they do not fit each other, the environment or the
            controllers; or if the run does not fit into the memory of the machines.
    """
    elsewhere = config.cluster.gpus
    require_known_store(config.tracking)
    name, engine = config.rollouts.engine.name, config.rollouts.engine.part
    if engine.address_option:
        require_known_servers(f"rollouts.engine.{name}.{engine.address_option}", getattr(engine, engine.address_option))
    unchecked = list(check_model(config.model, config.rollouts, elsewhere))
    commands(config, Path("run.yaml"), ["host"] * (config.cluster.train_nodes + config.cluster.rollout_nodes))
    engine.check(config.planned(config.shape))
    if elsewhere:
        require_room(config)
    if lacking := check_chain(config, drawn):
        return [*unchecked, f"{lacking}; the problems were not checked"]
    return [*unchecked, *_check_prompts(config, drawn[_drawn_by(config)])]


def check_chain(config: RunConfig, drawn: Drawn) -> str:
    """Check that the problems of a run have what its chain needs. Returns why they cannot be read on this machine.

    Raises:
        UserError: if they lack it, or cannot be read although the run is for this machine.
    """
    missing = "; ".join(_missing_files(config)) if config.cluster.gpus else ""
    if missing:
        return missing
    key = _drawn_by(config)
    if key not in drawn:
        try:
            drawn[key] = build_problems(config)
        except UnreachableError as error:
            return str(error)
    problems = drawn[key].train
    session = start_session(config, with_blank_states(problems) if NEED in config.chain.needs else problems)
    session.next_batch(config.fill.first_request)  # some refusals of members only come with a plan
    return ""


def _drawn_by(config: RunConfig) -> str:
    """Everything that the problems of a run depend on."""
    return repr((config.problems, config.evaluation.problems, config.environment))


def check_comparison(config: ComparisonConfig, drawn: Drawn) -> list[str]:
    """Run `check_run` for every arm of a comparison, and add advice; UserErrors begin with the name of the arm."""
    runs = {arm: config.run(arm, config.seeds[0]) for arm in config.arms}
    unchecked = [line for lines in _of_arms(config, partial(check_run, drawn=drawn)) for line in lines]
    return [*dict.fromkeys(unchecked), *_judged_apart(config, drawn), *unwise_choices(config, runs)]


def check_chains(config: ComparisonConfig, drawn: Drawn) -> None:
    """Run `check_chain` for every arm before the first is trained; UserErrors begin with the name of the arm."""
    for _ in _of_arms(config, partial(check_chain, drawn=drawn)):
        pass


def _of_arms(config: ComparisonConfig, check: Callable[[RunConfig], Checked]) -> Iterator[Checked]:
    """The result of a check for every arm and instance of a comparison."""
    for arm in config.arms:
        try:
            for instance in range(max(1, len(config.instances))):
                yield check(config.run(arm, instance))
        except UserError as error:
            raise UserError(f"arms.{arm}: {error}") from None


def _judged_apart(config: ComparisonConfig, drawn: Drawn) -> Iterator[str]:
    """Arms whose held-out problems differ from those of the first arm, one line each."""
    for instance in range(max(1, len(config.instances))):
        splits = {arm: drawn.get(_drawn_by(config.run(arm, instance))) for arm in config.arms}
        heldout = {arm: {problem.id for problem in split.heldout} for arm, split in splits.items() if split}
        first = next(iter(heldout), "")
        for arm, others in heldout.items():
            if others != heldout[first]:
                yield f"arms.{arm}: is judged on other held-out problems than {first}; give both the same"


def unwise_choices(config: ComparisonConfig, runs: Mapping[str, RunConfig]) -> list[str]:
    """Choices in a comparison that are legal but unwise, one line each.

    Args:
        runs: one run of each arm, by arm.
    """
    points = next(iter(runs.values())).evaluation.points
    advice = []
    if config.targets and points < POINTS_FOR_TARGETS:
        remedy = f"give at least {POINTS_FOR_TARGETS}, since the cost to reach a target is read between two of them"
        advice.append(f"evaluation.points: {points} are few for `targets`; {remedy}")
    # The sweep of an arm may choose other values than those in its file.
    fixed = {arm: run for arm, run in runs.items() if not GROUPS & config.grid(arm).keys()}
    if uneven := _uneven({arm: _groups_per_update(run) for arm, run in fixed.items()}):
        remedy = "the same learner.minibatch_groups for all keeps a larger batch from being a slower learner"
        advice.append(f"arms differ in groups per optimizer step: {uneven}; {remedy}")
    refilling = {arm: run.fill.first_request for arm, run in fixed.items() if run.fill.policy == "refill"}
    if uneven := _uneven(refilling):
        remedy = "the same fill.request_factor for all keeps the size of a round out of the comparison"
        advice.append(f"arms that refill differ in the groups of a first request: {uneven}; {remedy}")
    return advice


def _groups_per_update(run: RunConfig) -> float:
    """Number of groups of a full batch that one optimizer step trains on."""
    return run.learner.minibatch_groups or run.fill.groups / run.learner.num_minibatches


def _uneven(numbers: Mapping[str, float]) -> str:
    """Each distinct number with its first arm; empty if all are equal."""
    first = {number: arm for arm, number in reversed(list(numbers.items()))}
    return ", ".join(f"{number:g} ({first[number]})" for number in sorted(first)) if len(first) > 1 else ""


def check_model(model: ModelOptions, rollouts: RolloutOptions, elsewhere: bool) -> Iterator[str]:
    """Check a model and the length of its responses. Returns what cannot be checked here."""
    folder = paths.find(model.path).expanduser()
    try:
        is_name = not folder.is_dir() and paths.find_model(model.path) == model.path
    except UserError:
        if not elsewhere:
            raise
        is_name = False
    if not folder.is_dir():
        what = "taken for a name on a hub" if is_name else "not on this machine"
        yield f"model.path: {model.path!r} is {what}; the model was not checked"
        return
    paths.find_model(model.path)
    room, limit = model_config(model.path).get("max_position_embeddings"), rollouts.max_response_tokens
    remedy = f"the model was made for {room} tokens of prompt and response together; lower it"
    require(not isinstance(room, int) or limit < room, "rollouts.max_response_tokens", limit, remedy)


def _check_prompts(config: RunConfig, problems: ProblemSplit) -> Iterator[str]:
    """Check that the tokenizer can encode the prompts and that responses have room. Returns what cannot be checked.

    Raises:
        UserError: naming the first prompt that cannot be encoded or is too long.
    """
    file = paths.find(config.model.path).expanduser() / "tokenizer.json"
    if not file.is_file() or config.model.chat == "all" or find_spec("tokenizers") is None:
        return
    prompts = Prompts(_Quick(file))
    room, limit = model_config(config.model.path).get("max_position_embeddings"), config.rollouts.max_response_tokens
    plain = (problem for problem in chain(problems.train, problems.heldout) if not problem.messages)
    for problem in islice(plain, MOST_PROMPTS):
        length = len(prompts.of_problem(problem))
        fits = not isinstance(room, int) or length + limit <= room
        what = f"the prompt of {problem.id!r} has {length} tokens"
        remedy = f"{what}, and the model was made for {room} together; lower it"
        require(fits, "rollouts.max_response_tokens", limit, remedy)
    if left := sum(1 for _ in plain):
        yield f"problems: the tokenizer was tried on the first {MOST_PROMPTS} of {MOST_PROMPTS + left} prompts"


class _Quick:
    """A tokenizer.json, for plain text only; transformers would take seconds to load it."""

    def __init__(self, file: Path):
        from tokenizers import Tokenizer as Reader

        check_tokenizer(file)
        try:
            with catching_panics():
                self._tokenizer = Reader.from_file(str(file))
        except Exception as error:  # it raises no other type
            raise UserError(f"{file}: is damaged ({one_line(error)}); copy or download the model again") from error
        self._tokenizer.no_padding()  # as a run encodes
        self._tokenizer.no_truncation()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text


REVISITING = ("greso", "retire")
"""Controllers that judge a problem by its earlier groups, so they do nothing until problems are visited again."""


def describe_visits(runs: Mapping[str, RunConfig], problems: int) -> Iterator[str]:
    """The number of visits to each problem under the budget, and the controllers that are idle at so few.

    Empty unless the budget is in rollouts or steps.

    Args:
        runs: one run of each arm, by arm.
        problems: number of training problems.
    """
    run = next(iter(runs.values()))
    batch = run.fill.first_request if run.fill.policy == "refill" else run.fill.groups
    steps_of = {"rollouts": 1 / (run.rollouts.num_rollouts * batch), "steps": 1}
    if run.budget.unit not in steps_of:
        return
    groups = batch * math.ceil(run.budget.total * steps_of[run.budget.unit] - 1e-9)  # a step is not cut short
    visits = f"{groups / problems:.1f} visits each" if groups > problems else "none comes back"
    line = f"{groups:,} groups of {problems:,} problems: {visits}"
    used = {member.name for each in runs.values() for member in each.controllers}
    idle = [name for name in REVISITING if name in used]
    if groups <= problems and idle:
        verb = "skips" if len(idle) == 1 else "skip"
        line += f"; {' and '.join(idle)} {verb} only problems seen before, so give more budget or lower problems.train"
        line += " (docs/troubleshooting.md#greso-skips-nothing)"
    yield line


def describe_problems(config: RunConfig, drawn: Drawn) -> Iterator[str]:
    """Describe how the data were read, the first prompt, and the verdicts of the verifiers on known texts."""
    problems = drawn.get(_drawn_by(config))
    if problems is not None:
        yield from problems.report.notes
        yield from _describe_prompt(config, problems)
        yield from describe_verifiers(problems.train)


def _describe_prompt(config: RunConfig, problems: ProblemSplit) -> Iterator[str]:
    folder = paths.find(config.model.path).expanduser()
    if not (folder / "tokenizer.json").is_file() or find_spec("transformers") is None:
        return
    [first, *_] = problems.train
    wrap = config.model.chat == "all"
    tokenizer: Tokenizer = load_tokenizer(folder) if wrap or first.messages else _Quick(folder / "tokenizer.json")
    yield f"the model reads: {shorten(Prompts(tokenizer, wrap, config.model.system).show(first))!r}"


def describe_verifiers(problems: Sequence[Problem]) -> Iterator[str]:
    """Try the problems' verifiers on renderings and near misses of their own answers, see `trials`."""
    for trial in try_verifiers(problems):
        yield str(trial)
        yield from trial.examples


def shorten(text: str) -> str:
    """Cut the middle of a prompt longer than 400 characters; both ends are kept, as they hold special tokens."""
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"


def _missing_files(config: RunConfig) -> Iterator[str]:
    """The problem files of a run that are not on this machine."""
    for where in paths.PROBLEM_SOURCES:
        source = getattr(config.problems, where)
        for option, value in paths.paths_of(source.part).items():
            if not paths.exists(paths.find(value).expanduser()):
                yield f"problems.{where}.{source.name}.{option}: {value!r} is not on this machine"


def check_rows(config: RunConfig, file: Path | None) -> str:
    """Check the tasks of a run's source; returns one line with the numbers kept and dropped.

    Args:
        file: file for the valid tasks, which the source `file` reads with columns id and verifier.

    Raises:
        UserError: if the run has no repository tasks, this machine cannot run boxes, or no task is valid.
    """
    environment = config.environment.part
    if not isinstance(environment, Repository):
        raise UserError("--rows: the run's environment is not `repository`, whose tasks can be tried; leave it out")
    train = config.problems.train
    wanted = None if train is None else train + config.evaluation.problems
    loaded = config.problems.opened.source.part.load(wanted, Stream(config.problems.seed))
    tasks = check_problems(loaded.problems, environment.boxes, environment.test_seconds, environment.parallel or 1)
    if not tasks.problems:
        raise UserError(f"problems.source: no task is valid: {tasks.report}")
    if file is not None:
        write_problems(tasks.problems, str(file))
    return f"{tasks.report} (before that: {loaded.report})"
