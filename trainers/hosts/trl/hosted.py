"""Makes the arguments of a `GRPOTrainer` whose problems are chosen by a chain."""

from pathlib import Path
from typing import Any, Literal

from halfway.curriculum.controller import PassRateController
from halfway.curriculum.support.errors import UserError, require
from halfway.trainers.hosts.hosting import RECORDS, Host, Hosting
from halfway.trainers.hosts.outcomes import Judge
from halfway.trainers.hosts.rows import rows_of
from halfway.trainers.hosts.trl import settings
from halfway.trainers.hosts.trl.late_rows import LateRows
from halfway.trainers.hosts.trl.rewards import Observer, is_function, judging
from halfway.trainers.hosts.trl.rollouts import SessionRollouts

Through = Literal["rows", "rollouts"]
STARTS = frozenset({"prefixes", "hints"})


def hosted(
    controller: PassRateController[Any],
    problems: Any,
    reward_funcs: Any,
    args: Any,
    *,
    success: Any = None,
    threshold: float | None = None,
    through: Through | None = None,
    processing_class: Any = None,
) -> dict[str, Any]:
    """The arguments of a `GRPOTrainer`; `halfway.trl` describes the parameters and the errors."""
    settings.check(args)
    route: Through = through or ("rollouts" if controller.needs & STARTS else "rows")
    require(route in ("rows", "rollouts"), "through", route, "give 'rows' or 'rollouts'")
    index, _ = settings.process(args)
    host = Host(settings.version(), STARTS | {"tokens"})
    rows = rows_of(problems, controller)
    folder = Path(args.output_dir) / RECORDS
    hosting = Hosting(controller, rows, args.num_generations, folder, host, args.seed, writes=index == 0)
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    judge = judging(rewards, success)
    observer = Observer(hosting, Judge(rewards[judge].__name__, threshold))
    if route == "rollouts":
        source: Any = SessionRollouts(hosting, args)
        given = {"train_dataset": source.dataset((settings.generations(args) + 2) * settings.groups(args))}
        given["rollout_func"] = source
    else:
        if controller.needs & STARTS and processing_class is None:
            raise UserError(
                "processing_class: prefixes in the prompt need the tokenizer; give it, or through='rollouts'"
            )
        source = LateRows(hosting, settings.groups(args), processing_class)
        given = {"train_dataset": source.dataset(settings.generations(args))}
    if processing_class is not None:
        given["processing_class"] = processing_class
    from halfway.trainers.hosts.trl.callback import HalfwayCallback

    return {
        "args": args,
        "reward_funcs": [observer.wrap(r, i == judge) if is_function(r) else r for i, r in enumerate(rewards)],
        "callbacks": [HalfwayCallback(hosting, observer, source)],
        **given,
    }
