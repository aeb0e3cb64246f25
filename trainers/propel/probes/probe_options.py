"""Options of a probe and its selection: frozen values, no heavy import."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from halfway.curriculum.support.errors import require
from halfway.curriculum.support.registry import unknown

HeadKind = Literal["linear", "mlp", "deep_mlp"]
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
POOLING_NAMES = ("last_token", "mean_full", "mean_last_50")
Balance = Literal["downsample", "weighted"]


@dataclass(frozen=True)
class ActivationOptions:
    """Which hidden states of the reference model are read, and how they are pooled.

    Attributes:
        layers: indices of blocks, counted from 0.
        poolings: how the states of a text's tokens are pooled.
        max_tokens: longer readings lose their beginning, which is counted.
        batch_tokens: tokens in one forward pass, including padding.
    """

    layers: tuple[int, ...]
    poolings: tuple[str, ...] = POOLING_NAMES
    max_tokens: int = 4096
    batch_tokens: int = 16_384

    def __post_init__(self) -> None:
        for name in self.poolings:
            if name not in POOLING_NAMES:
                raise unknown("activations.poolings", name, POOLING_NAMES)
        for name in ("layers", "poolings"):
            values = vars(self)[name]
            require(0 < len(set(values)) == len(values), f"activations.{name}", values, "give at least one, each once")
        for name in ("max_tokens", "batch_tokens"):
            require(vars(self)[name] >= 1, f"activations.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class ProbeTraining:
    """AdamW with early stopping. The defaults are from PROPEL's table 10, which does not say what it stops on.

    Attributes:
        lr, weight_decay, batch, epochs: as usual; batch in rows.
        patience: epochs without improvement after which training stops; the best epoch's weights are kept.
        stop_on: "loss" (on the validation rows, both classes weighing the same) or their "balanced_accuracy".
        standardize: whether features are brought to mean 0 and variance 1 over the training rows.
    """

    lr: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 64
    epochs: int = 50
    patience: int = 7
    stop_on: Literal["loss", "balanced_accuracy"] = "loss"
    standardize: bool = True

    def __post_init__(self) -> None:
        require(self.lr > 0, "probe.lr", self.lr, "give a positive number")
        require(self.weight_decay >= 0, "probe.weight_decay", self.weight_decay, "give 0 or more")
        for name in ("batch", "epochs", "patience"):
            require(vars(self)[name] >= 1, f"probe.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class SplitOptions:
    """Which labelled rows train a probe, stop its training, and judge it.

    Attributes:
        validation, test: shares of the rows that stop the training, and that judge.
    """

    validation: float = 0.1
    test: float = 0.1

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            require(vars(self)[name] > 0, f"sweep.split.{name}", vars(self)[name], "give a share above 0")
        shares = (self.validation, self.test)
        require(sum(shares) < 1, "sweep.split", shares, "leave something to train on: shares below 1 together")


@dataclass(frozen=True)
class SweepOptions:
    """Which probes are fitted, and which of them is chosen.

    Among the cells whose calibration error on validation rows is at most `max_ece` (or among all cells if there are
    none, which the record says), those are considered whose balanced accuracy is within `tie` of the best; of these,
    the cell with the highest variance of the reward under the base policy (RVP) is chosen.

    Attributes:
        heads, balance: what is combined with every layer and pooling. "downsample" = as many rows of one class as of
            the other; "weighted" = all rows, both classes with the same weight in the loss.
        max_ece: on rows thinned so that both classes are equally many.
        policy_samples: number of the base policy's texts over which the reward's variance is taken.
        surface: features of a task that a simple lookup may use, as a baseline that a probe has to beat; "length" is
            the text's, "topic" the domain's.
        permutations: number of fits with permuted labels, as a control.
    """

    heads: tuple[HeadKind, ...] = ("linear", "mlp")
    balance: tuple[Balance, ...] = ("downsample",)
    split: SplitOptions = field(default_factory=SplitOptions)
    training: ProbeTraining = field(default_factory=ProbeTraining)
    max_ece: float = 0.1
    tie: float = 0.01
    policy_samples: int = 512
    surface: tuple[str, ...] = ("length", "topic")
    permutations: int = 5

    def __post_init__(self) -> None:
        for name in ("heads", "balance"):
            values = vars(self)[name]
            require(0 < len(set(values)) == len(values), f"sweep.{name}", values, "give at least one, each once")
        require(self.max_ece > 0, "sweep.max_ece", self.max_ece, "give a positive number such as 0.1")
        require(self.tie >= 0, "sweep.tie", self.tie, "give 0 or more")
        require(self.policy_samples >= 2, "sweep.policy_samples", self.policy_samples, "give at least 2")
        require(self.permutations >= 0, "sweep.permutations", self.permutations, "give 0 (= no control) or more")
