"""Hidden states of the starting policy for each prompt, as a feature with which a belief can share evidence."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import ZipFile

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from halfway.curriculum import IntArray, Problem, ProblemSet
from halfway.curriculum.problems import ProblemTable
from halfway.curriculum.support.atomic import reading, replacing
from halfway.trainers.policy import Policy
from halfway.trainers.rollouts.chat import Prompts

FEATURE = "prompt_state"
NEED = f"feature:{FEATURE}"
COMPONENTS = 16
BATCH_TOKENS = 16_384
BLOCK = 8192  # rows of states to read at once
FILE = "prompt_states.npz"
OVERHEAD = 1 << 15  # bytes of headers and of the key

Floats = NDArray[np.float64]


def with_prompt_states(
    problems: ProblemSet,
    policy: Callable[[], Policy],
    components: int = COMPONENTS,
    folder: Path | None = None,
    model: str = "",
) -> ProblemSet:
    """Add a feature to problems, `prompt_state`: this policy's representation of the prompt.

    The policy's last hidden states, averaged over the prompt's tokens, are reduced to their first principal components
    over the set. Problems that need the same skills have similar states, without labels of skills. A model shared over
    prompts is GPS's idea (arXiv 2602.01970); these features are ours. The states belong to the weights given here, so a
    resumed run must give the starting weights again, or its folder.

    Args:
        policy: loads the policy, if its states are not known yet.
        components: number of components; fewer if the model is narrower, or the set is smaller.
        folder: the run's folder, for prompt_states.npz; None = the states are not saved.
        model: the policy's address and settings. States saved for others are computed anew.
    """
    key = f"{problems.fingerprint()} {components} {model}".rstrip()
    states_PC = None if folder is None else _kept(folder / FILE, key, len(problems), components)
    if states_PC is None:
        loaded = policy()
        prompts = Prompts(loaded.tokenizer, loaded.chat, loaded.system)
        states_PW = mean_states(loaded, [prompts.of_problem(problem) for problem in problems])
        states_PC = principal_components(states_PW, components)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / FILE) as temporary, temporary.open("wb") as file:
                np.savez(file, key=np.array(key), states=states_PC)
    return ProblemSet(_WithStates(problems, states_PC), problems.generated)


def _kept(path: Path, key: str, problems: int, components: int) -> Floats | None:
    """Read a run's saved states; None if there are none, or they are damaged or belong to other problems."""
    try:
        with reading(path, "remove it"), ZipFile(path) as packed, np.load(path, allow_pickle=False) as kept:
            if sum(member.file_size for member in packed.infolist()) > 8 * problems * components + OVERHEAD:
                return None
            states_PC: Floats = kept["states"]
            few = states_PC.ndim == 2 and len(states_PC) == problems and 0 < states_PC.shape[1] <= components
            sound = few and states_PC.dtype == np.float64 and np.isfinite(states_PC).all()
            return states_PC if sound and str(kept["key"]) == key else None
    except Exception:  # the readers of packed files and of their headers raise many kinds
        return None


def with_blank_states(problems: ProblemSet) -> ProblemSet:
    """Add the same feature, always 0, for checks that load no model."""
    return ProblemSet(_WithStates(problems, np.zeros((len(problems), COMPONENTS))), problems.generated)


def mean_states(policy: Policy, prompts: Sequence[IntArray]) -> NDArray[np.float32]:
    """Compute the policy's last hidden state, averaged over the tokens of each prompt, (P, width), in a temporary file.

    This uses the GPU if there is one, and then moves the model back to its device.
    """
    import torch

    model: Any = policy.model
    training, home = model.training, next(model.parameters()).device
    if torch.cuda.is_available():
        model.to("cuda")
    device = next(model.parameters()).device
    shape = (len(prompts), model.config.get_text_config().hidden_size)
    states_PW: NDArray[np.float32] = np.memmap(TemporaryFile(), np.float32, shape=shape)  # noqa: SIM115
    model.eval()
    with torch.no_grad():
        for places in _batches([len(prompt) for prompt in prompts]):
            longest = max(len(prompts[place]) for place in places)
            tokens_BT = torch.full((len(places), longest), policy.padding)
            mask_BT = torch.zeros((len(places), longest), dtype=torch.long)
            for row, place in enumerate(places):
                tokens_BT[row, : len(prompts[place])] = torch.from_numpy(prompts[place].astype(np.int64))
                mask_BT[row, : len(prompts[place])] = 1
            tokens_BT, mask_BT = tokens_BT.to(device), mask_BT.to(device)
            states_BTW = model.base_model(input_ids=tokens_BT, attention_mask=mask_BT).last_hidden_state.float()
            sums_BW = (states_BTW * mask_BT[:, :, None]).sum(1) / mask_BT.sum(1, keepdim=True)
            states_PW[places] = sums_BW.cpu().numpy()
    model.train(training).to(home)
    return states_PW


def principal_components(states_PW: NDArray[np.floating[Any]], components: int) -> Floats:
    """The first principal components of the rows, (P, C), with C the smallest of `components`, P - 1 and the width.

    The rows are read in blocks, so that memory holds only a matrix of width x width. The sign of a component is
    arbitrary; its largest entry is made positive.
    """
    number = max(1, min(components, len(states_PW) - 1, states_PW.shape[1]))
    blocks = [slice(start, start + BLOCK) for start in range(0, len(states_PW), BLOCK)]
    mean_W = sum(states_PW[block].sum(axis=0, dtype=np.float64) for block in blocks) / len(states_PW)
    scatter_WW = np.zeros((states_PW.shape[1],) * 2)
    for block in blocks:
        centred_BW = states_PW[block] - mean_W
        scatter_WW += centred_BW.T @ centred_BW
    axes_WC = np.linalg.eigh(scatter_WW).eigenvectors[:, ::-1][:, :number]
    scores_PC = np.concatenate([(states_PW[block] - mean_W) @ axes_WC for block in blocks])
    signs_C = np.sign(scores_PC[np.abs(scores_PC).argmax(axis=0), np.arange(number)])
    scored: Floats = scores_PC * np.where(signs_C == 0, 1.0, signs_C)
    return scored


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of indices of similar lengths, each of at most `BATCH_TOKENS` padded tokens, or a single prompt."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and (len(batch) + 1) * lengths[place] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class _WithStates(ProblemTable):
    """Problems that get their states on access."""

    def __init__(self, problems: ProblemSet, states_PC: Floats):
        self._problems, self._states_PC = problems, states_PC

    def __len__(self) -> int:
        return len(self._problems)

    def at(self, place: int) -> Problem:
        problem, state = self._problems[place], tuple(self._states_PC[place].tolist())
        return structs.replace(problem, features={**problem.features, FEATURE: state})

    def ids(self) -> list[str]:
        return self._problems.ids()

    def column(self, feature: str) -> Any:
        return self._states_PC if feature == FEATURE else super().column(feature)
