"""Options of a run's hosts and devices, the sizes of its model, and the pause before a restart."""

from dataclasses import dataclass, field

from halfway.curriculum import require


@dataclass(frozen=True)
class ShapeOptions:
    """Sizes of a model, named as in its config.json. Needed only if model.path is not a folder on this machine.

    Attributes:
        hidden_size, num_hidden_layers, intermediate_size, num_attention_heads, num_key_value_heads: as in config.json.
        head_dim: 0 = hidden_size / num_attention_heads.
        vocab_size, tie_word_embeddings: as in config.json.
    """

    hidden_size: int = 0
    num_hidden_layers: int = 0
    intermediate_size: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        described = any(vars(self).values())
        for name, value in vars(self).items():
            least = 0 if name in ("head_dim", "tie_word_embeddings") else 1
            remedy = "give the number in the model's config.json; one size needs the others"
            require(not described or value >= least, f"cluster.model.{name}", value, remedy)

    @property
    def known(self) -> bool:
        return self.hidden_size > 0

    @property
    def layer_weights(self) -> int:
        """Number of parameters of one layer, without norms."""
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        attention = 2 * self.hidden_size * head * (self.num_attention_heads + self.num_key_value_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def embedding(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def weights(self) -> int:
        """Number of all parameters."""
        return self.num_hidden_layers * self.layer_weights + self.embedding * (1 if self.tie_word_embeddings else 2)

    @property
    def cache_per_token(self) -> int:
        """Number of elements of keys and values per token."""
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        return 2 * self.num_hidden_layers * self.num_key_value_heads * head


@dataclass(frozen=True)
class ClusterOptions:
    """The hosts and devices of a run, used by `halfway launch` and checked by `halfway validate`.

    Attributes:
        train_nodes, rollout_nodes: number of hosts that train, and of hosts that only serve rollouts. With 0
            rollout_nodes, the engines run on the training hosts and share the ranks' devices.
        devices_per_node: number of devices per host, and of ranks per training host.
        device_gib, host_gib: GiB of memory of a device, and of a host; 0 = no device, or no limit to check.
        port: port at which the first rank waits for the others; server j of a host listens at port + 1 + j.
        model: sizes of the model.
    """

    train_nodes: int = 1
    rollout_nodes: int = 0
    devices_per_node: int = 1
    device_gib: float = 0.0
    host_gib: float = 0.0
    port: int = 29500
    model: ShapeOptions = field(default_factory=ShapeOptions)

    def __post_init__(self) -> None:
        for name in ("train_nodes", "devices_per_node"):
            require(vars(self)[name] >= 1, f"cluster.{name}", vars(self)[name], "give at least 1")
        for name in ("rollout_nodes", "device_gib", "host_gib"):
            require(vars(self)[name] >= 0, f"cluster.{name}", vars(self)[name], "give 0 or more")
        require(1024 <= self.port <= 65000, "cluster.port", self.port, "give a port from 1024 to 65000")

    @property
    def ranks(self) -> int:
        return self.train_nodes * self.devices_per_node

    @property
    def gpus(self) -> bool:
        return self.device_gib > 0


# The first pause; each further pause is twice as long.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0


def restart_pause(starts: int) -> float:
    """Seconds to wait after this many failed starts."""
    return min(FIRST_PAUSE * 2.0**starts, LONGEST_PAUSE)
