"""Updates in one process and in several, saved and loaded, give the same weights. A program, also run by torchrun.

    python -m halfway.experiments.proving.learner FOLDER FAULTS WAY:SAVERS ...

It trains a random model in each way (`plain`, `zero-2`, `zero-3`), from the start if SAVERS is 0, otherwise from a
checkpoint saved half-way by SAVERS processes, and writes the weights to FOLDER/WAY-by-SAVERS-on-PROCESSES.pt.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn, UserError
from halfway.experiments.proving.checks import Check, judge, skip

if TYPE_CHECKING:
    from halfway.trainers.learner.learner import PolicyGradientLearner

PART, PROGRAM = "learner", "halfway.experiments.proving.learner"
STEPS, SAVED = 4, 2
TOLERANCE = 1e-4
STAGES = {"plain": None, "zero-2": 2, "zero-3": 3}
VOCABULARY = 64


def build_model(seed: int = 0) -> Any:
    """Build a random Qwen3: tiny on a CPU, 1.5 billion parameters on a GPU."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    large = torch.cuda.is_available()
    hidden, layers, heads = (1536, 28, 12) if large else (64, 2, 2)  # vLLM does not support heads of 16 on a CPU
    config = Qwen3Config(
        vocab_size=151936 if large else VOCABULARY,
        hidden_size=hidden,
        intermediate_size=6 * hidden if large else 2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        head_dim=hidden // heads,
        max_position_embeddings=4096,
        initializer_range=0.02 if large else 0.3,
        eos_token_id=1,
    )
    model: Any = Qwen3ForCausalLM
    return model(config)


def groups_of(step: int) -> list[Group]:
    """Make groups of random rollouts; one rollout per group passes."""
    rng = np.random.default_rng(step)
    groups = []
    for start in (0, 0, 2, 3):  # tokens of a prefix
        rollouts = []
        for i in range(4):
            tokens_T = rng.integers(3, VOCABULARY, rng.integers(4, 24)).astype(np.int32)
            logprobs_T = np.full(len(tokens_T), -4.0, np.float32)
            rollouts.append(Rollout((Turn(tokens_T, logprobs_T, -logprobs_T, 0, num_replayed=start),), i == 0))
        groups.append(Group(Request(Problem("p", "", ""), 4), np.asarray([4, 5, 6], np.int32), tuple(rollouts)))
    return groups


def build_learner(way: str) -> "PolicyGradientLearner":
    from halfway.trainers.learner.learner import PolicyGradientLearner
    from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions

    options = LearnerOptions(
        lr=1e-3,
        activation_checkpointing=way == "zero-3",
        max_microbatch_tokens=256,
        deepspeed=DeepSpeedOptions(STAGES[way], persistence_threshold=0),
    )
    return PolicyGradientLearner(build_model(), options, pad_token_id=0)


def train(folder: Path, way: str, savers: int, planted: str) -> None:
    """Train, save half-way, and write the final weights of the first process, and digests of all processes' weights.

    Args:
        savers: number of processes that saved the checkpoint to continue from; 0 = from the start.
    """
    import torch

    from halfway.trainers.learner.weights import named_weights

    learner = build_learner(way)
    if savers:
        learner.load(folder / f"{way}-{savers}")
    distributed = torch.distributed.is_initialized()
    rank, size = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if distributed else (0, 1)
    if "dropped-gradients" in planted and rank == size - 1 > 0:
        _drop_gradients(learner)
    if "doubled-update" in planted and rank == size - 1 > 0:
        _double_updates(learner)
    for step in range(SAVED if savers else 0, STEPS):
        if step == SAVED and not savers:
            (folder / f"{way}-{size}").mkdir(exist_ok=True)
            learner.save(folder / f"{way}-{size}")
        learner.update(groups_of(step), Stream(0).at(step))
    weights = {name: weight.float().cpu().clone() for name, weight in named_weights(learner.policy)}
    digests = [_digest(weights)]
    if distributed:
        digests = [""] * size
        torch.distributed.all_gather_object(digests, _digest(weights))
    if rank == 0:
        torch.save(weights, folder / f"{way}-by-{savers}-on-{size}.pt")
        (folder / f"{way}-by-{savers}-on-{size}.json").write_text(json.dumps(digests))


def _digest(weights: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b()
    for weight in weights.values():
        digest.update(weight.contiguous().numpy().data)
    return digest.hexdigest()


def _drop_gradients(learner: "PolicyGradientLearner") -> None:
    """A planted fault: this process's gradients are lost on the way to the optimizer."""
    for parameter in learner.policy.parameters():
        parameter.register_hook(lambda gradient: gradient * 0)


def _double_updates(learner: "PolicyGradientLearner") -> None:
    """A planted fault: this process takes every optimizer step twice."""
    import torch

    optimizer: Any = getattr(learner._backend, "optimizer", None) or learner._backend._optimizer  # type: ignore[attr-defined]
    while not isinstance(optimizer, torch.optim.AdamW):
        optimizer = optimizer.optimizer
    single = optimizer.step

    def step(*arguments: Any, **options: Any) -> Any:
        single(*arguments, **options)
        return single(*arguments, **options)

    optimizer.step = step  # type: ignore[method-assign]


def learner_checks(folder: Path, ranks: int, planted: Sequence[str]) -> Iterator[Check]:
    """Compare one process with several, and a loaded checkpoint with the uninterrupted training."""
    import torch

    if torch.cuda.is_available():
        ranks = min(ranks, torch.cuda.device_count())  # NCCL needs a GPU for each
    ways = list(STAGES) if find_spec("deepspeed") else ["plain"]
    several = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    _train(folder, several, planted, [f"{way}:0" for way in ways])
    if "wrong-checkpoint" in planted:
        _damage(folder)
    _train(folder, (), (), ["plain:0", "plain:1", *(f"{way}:{ranks}" for way in ways)])
    lost = "a checkpoint does not hold the learner's state"
    yield _compare(folder, f"plain, saved after {SAVED} of {STEPS} updates and loaded", "plain-by-1-on-1", lost)
    apart = "a rank's gradients or weights do not reach the others: check NCCL_SOCKET_IFNAME, versions of DeepSpeed"
    for way in ways:
        yield _compare(folder, f"{way} on {ranks} processes = plain on one", f"{way}-by-0-on-{ranks}", apart)
        digests = set(json.loads((folder / f"{way}-by-0-on-{ranks}.json").read_text()))
        found = "equal" if len(digests) == 1 else f"{len(digests)} different ones"
        yield judge(PART, f"{way}: the same weights on every process", len(digests) == 1, found, apart)
        yield _compare(folder, f"{way} saved by {ranks}, loaded by one", f"{way}-by-{ranks}-on-1", lost)
    if len(ways) == 1:
        yield skip(PART, "ZeRO", "DeepSpeed is not installed")


def _train(folder: Path, launcher: Sequence[str], planted: Sequence[str], tasks: Sequence[str]) -> None:
    """Do tasks in a fresh program; together only if the model is small, since DeepSpeed keeps all memory to the end."""
    import torch

    shares = [[task] for task in tasks] if torch.cuda.is_available() else [tasks] if tasks else []
    for share in shares:
        words = (sys.executable, *launcher, "-m", PROGRAM, str(folder), ",".join(planted), *share)
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, env={"OMP_NUM_THREADS": "1"} | os.environ)


def _compare(folder: Path, name: str, file: str, remedy: str) -> Check:
    """Compare weights with those of one plain process that was never interrupted."""
    import torch

    if not (folder / f"{file}.pt").exists():
        return Check(PART, name, "FAIL", (folder / f"{file}.txt").read_text(), remedy)
    expected, actual = (torch.load(folder / f"{each}.pt") for each in ("plain-by-0-on-1", file))
    gap = max(float((expected[each] - actual[each]).abs().max()) for each in expected)
    return judge(PART, name, gap <= TOLERANCE, f"largest difference of a weight {gap:.1e}", remedy)


def _damage(folder: Path) -> None:
    """A planted fault: a checkpoint with another optimizer state."""
    import torch

    from halfway.trainers.learner.shards import opening_safely

    for path in [*sorted(folder.rglob("*optim_states.pt")), *sorted(folder.rglob("optimizer.pt"))]:
        with opening_safely():
            state = torch.load(path)
        _scale(state)
        torch.save(state, path)


def _scale(value: Any) -> None:
    """Change every floating-point tensor in nested containers, in place."""
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
        value.detach().mul_(1.5)
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            _scale(each)


def main(folder: Path, planted: str, *tasks: str) -> None:
    """Do the tasks one after the other."""
    import torch
    from accelerate.state import AcceleratorState

    for task in tasks:
        way, _, savers = task.partition(":")
        try:
            train(folder, way, int(savers), planted)
        except UserError as error:  # a checkpoint that cannot be loaded; the check of its weights says why
            (folder / f"{way}-by-{savers}-on-{os.environ.get('WORLD_SIZE', '1')}.txt").write_text(str(error))
        AcceleratorState._reset_state(True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
