"""Makes the arguments of a `GRPOTrainer` whose problems a chain chooses."""

from pathlib import Path
from typing import Any, Literal

from halfway.curriculum import PassRateController, UserError, require
from halfway.trainers.hosts.hosting import RECORDS, Host, Hosting
from halfway.trainers.hosts.outcomes import Judge
from halfway.trainers.hosts.rows import rows_of
from halfway.trainers.hosts.trl import settings
from halfway.trainers.hosts.trl.late_rows import LateRows
from halfway.trainers.hosts.trl.observer import Observer, find_judge, name_of
from halfway.trainers.hosts.trl.rollout_func import SessionRollouts

Through = Literal["rows", "rollouts"]
STARTS = frozenset({"prefixes", "hints"})


def trl(
    chain: PassRateController[Any],
    problems: Any,
    reward_funcs: Any,
    args: Any,
    *,
    success: Any = None,
    threshold: float | None = None,
    through: Through | None = None,
    processing_class: Any = None,
) -> dict[str, Any]:
    """Make the arguments of TRL's `GRPOTrainer` for a chain: `GRPOTrainer(model, **trl(...))`.

    Args:
        problems: a `datasets.Dataset` or a list of rows, with "prompt" and, if there is one, a stable "id"; or a
            `ProblemSet`. Rewards get all columns of a row.
        reward_funcs: one reward function or several, as for TRL.
        args: a `GRPOConfig` with `max_steps` and `shuffle_dataset=False`. Records go to `output_dir/halfway`.
        success: the reward function, or its name, that is 1 for a success and 0 otherwise; required with several.
        threshold: lowest value of that reward that counts as a success, if it is not 0 or 1.
        through: how problems reach TRL. "rows" = a data set whose rows are filled when they are fetched, one generation
            ahead; it works with every way of sampling. "rollouts" = TRL's `rollout_func`, which chooses problems when
            it samples and masks replayed tokens; TRL calls that interface experimental. None = "rollouts" if the chain
            attaches prefixes or hints, otherwise "rows".
        processing_class: the tokenizer; needed for prefixes through "rows", which become the end of the prompt.

    Raises:
        UserError: if an argument cannot work, or a controller needs something that TRL lacks; one line.
    """
    settings.check(args)
    route: Through = through or ("rollouts" if chain.needs & STARTS else "rows")
    require(route in ("rows", "rollouts"), "through", route, "give 'rows' or 'rollouts'")
    index, _ = settings.process(args)
    host = Host(settings.version(), STARTS | {"tokens"})
    rows = rows_of(problems, chain)
    folder = Path(args.output_dir) / RECORDS
    hosting = Hosting(chain, rows, args.num_generations, folder, host, args.seed, writes=index == 0)
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    judge = find_judge(rewards, success)
    summed = getattr(args, "multi_objective_aggregation", "sum_then_normalize") == "sum_then_normalize"
    criterion = Judge(name_of(rewards[judge]), threshold)
    observer = Observer(hosting, criterion, rewards, judge, args.reward_weights, summed)
    if route == "rollouts":
        source: Any = SessionRollouts(hosting, args)
        chosen = {"train_dataset": source.dataset((settings.generations(args) + 2) * settings.groups(args))}
        chosen["rollout_func"] = source
    else:
        if chain.needs & STARTS and processing_class is None:
            raise UserError(
                "processing_class: prefixes in the prompt need the tokenizer; give it, or through='rollouts'"
            )
        source = LateRows(hosting, settings.groups(args), processing_class)
        chosen = {"train_dataset": source.dataset(settings.generations(args))}
    if processing_class is not None:
        chosen["processing_class"] = processing_class
    from halfway.trainers.hosts.trl.callback import HalfwayCallback

    return {
        "args": args,
        "reward_funcs": observer.wrapped(),
        "callbacks": [HalfwayCallback(hosting, observer, source)],
        **chosen,
    }
