"""Halfway steers reinforcement learning with verifiable rewards toward the rollouts that teach.

| room | what is in it | may import |
|---|---|---|
| `halfway.curriculum` | the vocabulary, the contract of a controller, the session; problems, environments, domains | |
| `halfway.controllers` | one file per method; their beliefs, laws and prefixes | curriculum |
| `halfway.trainers` | the loop, the rollouts and their engines, the learner, several processes; probes, PROPEL; other \
trainers as hosts | the above |
| `halfway.experiments` | configuration, command line, comparison, report, recipes | the above |

For the trainer that you already use: `from_yaml` reads a chain, and `trl` makes it the curriculum of a `GRPOTrainer`.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from halfway.curriculum.controller import Chain, PassRateController

__all__ = ["from_yaml", "trl"]


def from_yaml(source: "str | PathLike[str] | Sequence[Any]") -> "Chain":
    """The chain that the `controllers` of a YAML file describe: a file of their own, or any recipe of one run.

    Args:
        source: the file; or the list itself, where a host's own configuration holds it.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    from halfway.controllers.chains import read_chain

    return read_chain(source)


def trl(
    chain: "PassRateController[Any]",
    problems: Any,
    reward_funcs: Callable[..., Any] | list[Any],
    args: Any,
    *,
    success: Any = None,
    threshold: float | None = None,
    through: Literal["rows", "rollouts"] | None = None,
    processing_class: Any = None,
) -> dict[str, Any]:
    """The arguments of TRL's `GRPOTrainer` with which a chain chooses the problems: `GRPOTrainer(model, **trl(...))`.

    Args:
        problems: what to train on: a `datasets.Dataset` or a list of rows, with "prompt" and, if there is one, a stable
            "id"; or a `ProblemSet`. Rewards get all columns of a row.
        reward_funcs: one reward function or several, as TRL takes them.
        args: a `GRPOConfig` with `max_steps` and `shuffle_dataset=False`. Records go to `output_dir/halfway`.
        success: the reward function, or its name, that is 1 for a success and 0 otherwise. Needed if there are several.
        threshold: lowest value of that reward that counts as a success, if it is not 0 or 1.
        through: how problems reach TRL. "rows" = a data set whose rows are filled when they are fetched, one generation
            ahead; it works however TRL samples. "rollouts" = TRL's `rollout_func`, which chooses problems when it
            samples and masks replayed tokens; TRL calls that interface experimental. None = "rollouts" if the chain
            attaches prefixes or hints, otherwise "rows".
        processing_class: the tokenizer; needed for prefixes through "rows", which become the end of the prompt.

    Raises:
        UserError: if an argument cannot work, or a controller needs something that TRL does not have; one line.
    """
    from halfway.trainers.hosts.trl.hosted import hosted

    return hosted(
        chain,
        problems,
        reward_funcs,
        args,
        success=success,
        threshold=threshold,
        through=through,
        processing_class=processing_class,
    )
