"""Heads of probes, and a probe with its site, its feature scale and its temperature."""

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import reading, replacing, require_few_values
from halfway.curriculum.support.extras import blaming
from halfway.trainers.propel.probes.probe_options import HEADS, HeadKind

HIDDEN: dict[HeadKind, tuple[int, ...]] = {"linear": (), "mlp": (512, 128), "deep_mlp": (1024, 512, 256, 128)}
"""Widths between the features and the two outputs. PROPEL gives the widths of "mlp"; "deep_mlp" is our choice."""

DROPOUT = 0.3


@dataclass(frozen=True)
class Site:
    """The place in the reference model where a probe reads its features.

    Attributes:
        layer, pooling: as in `halfway.trainers.propel.probes.activations.ActivationOptions`.
        reference: fingerprint of the model.
    """

    layer: int
    pooling: str
    reference: str


class Probe(nn.Module):
    """A two-output classifier of standardised features. Its logit is the positive output minus the negative one."""

    mean: Tensor
    scale: Tensor
    temperature: Tensor

    def __init__(self, kind: HeadKind, width: int):
        super().__init__()
        layers: list[nn.Module] = []
        widths = (width, *HIDDEN[kind])
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), nn.ReLU(), nn.Dropout(DROPOUT)]
        self.kind: HeadKind = kind
        self.head = nn.Sequential(*layers, nn.Linear(widths[-1], 2))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("temperature", torch.ones(()))

    def standardize(self, features_ND: Tensor) -> None:
        """Set mean and standard deviation from these rows. A constant feature is not scaled."""
        spread_D = features_ND.std(0, correction=0)
        self.mean.copy_(features_ND.mean(0))
        self.scale.copy_(torch.where(spread_D > 0, spread_D, torch.ones_like(spread_D)))

    def forward(self, features_BD: Tensor) -> Tensor:
        """The two outputs, (B, 2), before the temperature."""
        outputs_B2: Tensor = self.head((features_BD - self.mean) / self.scale)
        return outputs_B2

    @torch.no_grad()
    def logits(self, features_ND: NDArray[np.float32], calibrated: bool = True) -> NDArray[np.float64]:
        """Compute the logit of each row, without dropout; divided by the temperature if `calibrated`."""
        training = self.training
        self.eval()
        features = torch.tensor(np.asarray(features_ND, np.float32))  # a copy: a store's arrays are read-only
        outputs_N2 = self(features).double()
        self.train(training)
        logits_N = outputs_N2[:, 1] - outputs_N2[:, 0]
        result_N: NDArray[np.float64] = (logits_N / self.temperature if calibrated else logits_N).numpy()
        return result_N


def save_probe(probe: Probe, site: Site, file: Path) -> None:
    """Write a probe as a safetensors file that records its site."""
    # A single entry: safetensors writes several in varying order, and equal probes should give equal files.
    metadata = {"probe": json.dumps({"site": asdict(site), "kind": probe.kind})}
    with replacing(file) as temporary:
        save_file(probe.state_dict(), temporary, metadata)


def load_probe(file: Path, reference: str | None = None) -> tuple[Probe, Site]:
    """Read a probe.

    Args:
        reference: fingerprint of the caller's model; None = any.

    Raises:
        UserError: if the file is not a probe, or belongs to another reference model.
    """
    with blaming(f"{file}: not a probe", "train one", Exception):
        with reading(file, "train one"), safe_open(file, "pt") as tensors:
            metadata = tensors.metadata() or {}
            names: list[str] = tensors.keys()
            state = {name: tensors.get_tensor(name) for name in names}
        require_few_values(metadata["probe"].encode())
        described = json.loads(metadata["probe"])
        site = Site(**described["site"])
        probe = Probe(next(head for head in HEADS if head == described["kind"]), len(state["mean"]))
        probe.load_state_dict(state)
    if reference is not None and site.reference != reference:
        raise UserError(f"{file}: holds another reference model's probe ({site.reference}); train one for this model")
    return probe.eval(), site
