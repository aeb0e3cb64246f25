"""Refuses a `GRPOConfig` that cannot work with a chain, and reads its sizes."""

from typing import Any

from halfway.curriculum import UserError, require


def check(args: Any) -> None:
    """Refuse arguments under which the order of the rows, or the state in checkpoints, would be wrong.

    Raises:
        UserError: names the argument, its value and the remedy.
    """
    require(not args.shuffle_dataset, "args.shuffle_dataset", True, "give False; the chain decides the order")
    workers = args.dataloader_num_workers
    require(workers == 0, "args.dataloader_num_workers", workers, "give 0; a worker would use a copy of the chain")
    steps = args.max_steps
    require(steps > 0, "args.max_steps", steps, "give a number of steps; a chain has no epochs")
    unused = args.remove_unused_columns
    require(not unused, "args.remove_unused_columns", unused, "give False; rewards read columns of the rows")
    num, batch = args.num_generations, args.generation_batch_size
    require(batch % num == 0, "args.num_generations", num, f"give a number that divides the {batch} rows of a batch")
    if str(getattr(args.save_strategy, "value", args.save_strategy)) == "steps":
        every, needed = args.save_steps, steps_per_generation(args)
        whole = every >= 1 and (every * args.gradient_accumulation_steps) % _passes(args) == 0
        require(whole, "args.save_steps", every, f"give a multiple of {needed}; checkpoints are between generations")


def groups(args: Any) -> int:
    """Number of groups per generation, over all processes."""
    return int(args.generation_batch_size) // int(args.num_generations)


def generations(args: Any) -> int:
    """Number of generations in the run, rounded up."""
    return -(-int(args.max_steps) * int(args.gradient_accumulation_steps) // _passes(args))


def steps_per_generation(args: Any) -> str:
    """Number of optimizer steps per generation, as text for messages; it may be a fraction."""
    steps = _passes(args) / args.gradient_accumulation_steps
    return f"{steps:g}"


def between_generations(args: Any, step: int) -> bool:
    """True if `step` optimizer steps use only whole generations."""
    return (step * int(args.gradient_accumulation_steps)) % _passes(args) == 0


def process(args: Any) -> tuple[int, int]:
    """(this process's index, number of processes)."""
    return int(args.process_index), int(args.world_size)


def _passes(args: Any) -> int:
    """Number of micro-batches that each process trains on between two generations."""
    return int(args.steps_per_generation) * int(args.num_iterations)


def version() -> str:
    """TRL's name and version.

    Raises:
        UserError: if TRL is not installed.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return f"TRL {installed('trl')}"
    except PackageNotFoundError:
        raise UserError("halfway.trl: needs the package trl; pip install 'trl>=1.10,<1.17'") from None
