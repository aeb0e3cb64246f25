"""Options of a probe and its selection: frozen values, without heavy imports."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from halfway.curriculum import require, unknown

HeadKind = Literal["linear", "mlp", "deep_mlp"]
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
POOLING_NAMES = ("last_token", "mean_full", "mean_last_50")
Balance = Literal["downsample", "weighted"]


@dataclass(frozen=True)
class ActivationOptions:
    """The hidden states of the reference model that a probe reads, and their pooling.

    Attributes:
        layers: indices of blocks, counted from 0.
        poolings: how the states of a text's tokens are pooled.
        max_tokens: maximum number of tokens of a reading; longer ones lose their beginning, and are counted.
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
            require(0 < len(set(values)) == len(values), f"activations.{name}", values, "list at least one, each once")
        for name in ("max_tokens", "batch_tokens"):
            require(vars(self)[name] >= 1, f"activations.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class ProbeTraining:
    """AdamW with early stopping on the validation rows' loss, in which both classes weigh the same.

    The defaults are from PROPEL's table 10, which does not say what it stops on.

    Attributes:
        lr, weight_decay, batch, epochs: as usual; batch in rows.
        patience: epochs without improvement after which training stops; the best epoch's weights are kept.
        standardize: whether to scale features to mean 0 and variance 1 over the training rows.
    """

    lr: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 64
    epochs: int = 50
    patience: int = 7
    standardize: bool = True

    def __post_init__(self) -> None:
        require(self.lr > 0, "probe.lr", self.lr, "give a positive number")
        require(self.weight_decay >= 0, "probe.weight_decay", self.weight_decay, "give 0 or more")
        for name in ("batch", "epochs", "patience"):
            require(vars(self)[name] >= 1, f"probe.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class SplitOptions:
    """Split of the labelled rows into training, validation and test rows.

    Attributes:
        validation, test: shares of the rows that stop the training, and that score the probe.
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
    """The probes to fit, and the rule that chooses one.

    Candidates are the cells whose calibration error on validation rows is at most `max_ece`; if there are none, all
    cells, and the record says so. Of those within `tie` of the best balanced accuracy, the rule takes the cell with the
    highest variance of the reward under the base policy (RVP).

    Attributes:
        heads, balance: combined with every layer and pooling. "downsample" = equally many rows of both classes;
            "weighted" = all rows, both classes with the same weight in the loss.
        max_ece: largest calibration error, on equally many rows of both classes.
        tie: largest difference from the best balanced accuracy.
        policy_samples: number of the base policy's texts for the reward's variance.
        surface: features of a task for simple lookup tables, the baseline of a probe; "length" is the text's, "topic"
            the domain's.
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
            require(0 < len(set(values)) == len(values), f"sweep.{name}", values, "list at least one, each once")
        require(self.max_ece > 0, "sweep.max_ece", self.max_ece, "give a positive number such as 0.1")
        require(self.tie >= 0, "sweep.tie", self.tie, "give 0 or more")
        require(self.policy_samples >= 2, "sweep.policy_samples", self.policy_samples, "give at least 2")
        require(self.permutations >= 0, "sweep.permutations", self.permutations, "give 0 (= no control) or more")
