"""Two processes train like one. The processes import this file, so it is a program too."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator, debug_launcher
from learner_harness import PPO, assert_same_weights, build_groups, build_model, critic_weights, weights
from msgspec import structs
from preloaded import Preloaded
from torch import distributed

from halfway.curriculum import Group, Origin, Stream
from halfway.trainers.engines.contract import Completion, Engine
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.learner.backend import build_accelerator
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions

OPTIONS = LearnerOptions(
    lr=1e-3,
    num_minibatches=2,
    num_epochs=2,
    kl_coefficient=0.1,
    entropy_coefficient=0.01,
    normalization="sequence",
    max_microbatch_tokens=24,
)
# Of three groups, mini-batches of two and one.
BY_GROUPS = replace(OPTIONS, num_minibatches=1, minibatch_groups=2)
# Some micro-batches of one process share a context, and those of the other at the same time do not.
SHARED = replace(OPTIONS, share_contexts=True)


class EarlyEnd(Engine):
    """An engine of one process, which ends before its limit."""

    serves_all = True

    def generate(self, contexts: Any, max_new_tokens: Any, seeds: Any) -> list[Completion]:
        zeros_T = np.zeros(5, np.float32)
        return [Completion(np.arange(3, 8, dtype=np.int32), zeros_T, zeros_T, "end", 0)]

    def sync(self, policy: Any, version: int) -> None: ...


def train(folder: str) -> None:
    """Three updates and a check of the sync; writes the metrics of the last update, the weights and the gap."""
    torch.set_num_threads(1)
    accelerator = build_accelerator()
    results = [result_of(options, accelerator) for options in (OPTIONS, BY_GROUPS, SHARED)]
    torch.save(results, Path(folder) / f"{accelerator.process_index}-of-{accelerator.num_processes}.pt")


def varied_groups(step: int) -> list[Group]:
    """Groups of which one is stored, one is late and partly replayed, and one has advantages for its tokens."""
    first, *others = build_groups(step)
    groups = [first, *(replace(group, lag=2) for group in others)]
    if others:
        stored = structs.replace(first.request, origin=Origin.STORED)
        replayed = [
            replace(r, turns=(replace(r.turns[0], num_replayed=len(r.turns[0].tokens_T) // 2),))
            for r in others[0].rollouts
        ]
        advantages_NT = tuple(np.linspace(-1, 1, r.num_generated) for r in others[1].rollouts)
        groups = [replace(first, request=stored), replace(groups[1], rollouts=tuple(replayed))]
        groups += [replace(others[1], lag=2).with_advantages(advantages_NT=advantages_NT)]
    return groups


SHARING = {
    "reference": (OPTIONS, varied_groups),
    "groups": (BY_GROUPS, varied_groups),
    "on_policy": (LearnerOptions(lr=1e-3, max_microbatch_tokens=24), build_groups),
    "contexts": (replace(OPTIONS, num_epochs=1, share_contexts=True), varied_groups),
    "corrected": (LearnerOptions(lr=1e-3, mismatch="token_truncated"), varied_groups),
    "critic": (replace(PPO, num_minibatches=2, max_microbatch_tokens=24), build_groups),
}


def share(folder: str) -> None:
    """Updates with all groups on all processes, and with shares made by the first; writes what became of both."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    first, size = accelerator.is_main_process, accelerator.num_processes
    results: dict[str, Any] = {}
    for name, (options, groups_of) in SHARING.items():
        both, read = [], []
        for divided in (False, True):
            learner = PolicyGradientLearner(build_model(), options, pad_token_id=0, accelerator=accelerator)
            for step in range(3):
                groups, stream, own = groups_of(step), Stream(0).at(step), [None]
                if divided:
                    shares = learner.shares(groups, stream) if first else None
                    distributed.scatter_object_list(own, shares)
                    metrics = learner.update_with(own[0], stream)  # type: ignore[arg-type]
                    read.append(len(own[0].contents) / len(own[0].outlines))  # type: ignore[attr-defined]
                else:
                    metrics = learner.update(groups, stream)
            if options.advantage == "gae":
                metrics |= {"values": values_of(learner, groups_of(3), divided)}  # type: ignore[dict-item]
            both.append({"metrics": metrics, "weights": weights(learner) | critic_weights(learner)})
        results[name] = {"both": both, "read": read}
    torch.save(results, Path(folder) / f"shares-{accelerator.process_index}-of-{size}.pt")


def values_of(learner: PolicyGradientLearner, groups: list[Group], divided: bool) -> list[list[float]]:
    """The critic's values of all turns."""
    if divided:
        own: list[Any] = [None]
        distributed.scatter_object_list(own, None if distributed.get_rank() else learner.value_shares(groups))
        assert len(own[0].contents) < len(own[0].outlines)
        groups = learner.with_values(groups, learner.values_with(own[0]))
    else:
        groups = learner.with_values(groups)
    return [turn.values_T.tolist() for group in groups for r in group.rollouts for turn in r.turns]  # type: ignore[union-attr]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_with_their_own_shares_train_like_processes_with_everything(
    preloaded: Preloaded, tmp_path: Path, processes: int
) -> None:
    preloaded(tmp_path, tmp_path / "output.txt", __file__, tmp_path, processes)
    loaded = [torch.load(tmp_path / f"shares-{rank}-of-{processes}.pt") for rank in range(processes)]
    for name in SHARING:
        for results in loaded:
            everything, shares = results[name]["both"]
            assert shares["metrics"] == everything["metrics"]
            assert_same_weights(shares["weights"], everything["weights"])
            assert_same_weights(shares["weights"], loaded[0][name]["both"][1]["weights"])
    read = [results["on_policy"]["read"][-1] for results in loaded]
    assert max(read) < 1 and sum(read) < 1.5  # each sequence once, but for what fills up the rounds


def result_of(options: LearnerOptions, accelerator: Accelerator) -> dict[str, Any]:
    learner = PolicyGradientLearner(build_model(), options, pad_token_id=0, accelerator=accelerator)
    for step in range(3):
        metrics = learner.update(build_groups(step), Stream(0).at(step))
    first = accelerator.is_main_process
    gap = SyncCheck(EarlyEnd(), learner, 40, 100, tolerance=1e9, samples=first)()
    return {"metrics": metrics, "weights": learner.policy.state_dict(), "gap": gap}


def test_two_processes_train_like_one(preloaded: Preloaded, tmp_path: Path) -> None:
    preloaded(tmp_path, tmp_path / "output.txt", __file__, tmp_path)
    loaded = [torch.load(tmp_path / f"{name}.pt") for name in ("0-of-1", "0-of-2", "1-of-2")]
    for one, *two in zip(*loaded, strict=True):
        for other in two:
            assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
            torch.testing.assert_close(other["weights"], one["weights"], rtol=1e-10, atol=1e-12)
        assert [other["gap"] for other in two] == [pytest.approx(one["gap"], rel=1e-5), 0.0]
        assert one["gap"] > 0


if __name__ == "__main__":
    if sys.argv[2:]:
        debug_launcher(share, (sys.argv[1],), num_processes=int(sys.argv[2]))
    else:
        debug_launcher(train, (sys.argv[1],), num_processes=2)
        train(sys.argv[1])
