"""What a trained token costs in generated tokens on a given machine, from the peak rates of its devices.

A device takes as long as the slower of two things: moving bytes between memory and cores, and multiplying (the
roofline model; Williams et al. 2009). With W parameters, of 2 bytes each:

- **Generating** one token for each of B sequences reads all weights once, and of every sequence the keys and values of
  the L tokens before it, c numbers of 2 bytes each; it multiplies 2 W numbers a token (Pope et al. 2022, "Efficiently
  Scaling Transformer Inference", section 2; Kaplan et al. 2020, section 2.1, for 2 W). So device-seconds per token are
  max((2 W / B + 2 c L) / bandwidth, 2 W / flops). Spreading the model over more devices divides time and multiplies
  devices, so it leaves them as they are.
- **An update** multiplies 6 W numbers a token, forward and backward (Kaplan et al. 2020), and 2 W for every further
  forward pass: activations computed again, old log-probabilities, a reference policy. Batches are large, so
  multiplying is what takes the time: device-seconds per token are W (6 + 2 further passes) / flops.

rho is the second divided by the first.

Assumed: both reach the same share of the peak; B sequences are decoded at every moment, which the tail of a batch with
few long responses breaks (generation is dearer then, rho smaller); reading prompts, moving weights between learner and
engine, and waiting cost nothing; attention's own products are left out; generation and updates use devices of one kind.
"""

from dataclasses import dataclass

from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.run import RunConfig
from halfway.trainers.distributed.cluster import DEVICES, Device, ShapeOptions

BYTES = 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """The model of this module.

    Attributes:
        batch: sequences decoded at once by one engine, over however many devices.
        context: tokens before the one that is generated, on average.
        passes: forward passes of an update over a trained token beside the one that has a backward pass.
    """

    device: Device
    shape: ShapeOptions
    batch: int
    context: float
    passes: float = 0.0

    @property
    def generated(self) -> float:
        """Device-seconds of a generated token."""
        read = BYTES * (self.shape.weights / self.batch + self.shape.cache_per_token * self.context)
        return max(read / self.device.bandwidth, 2 * self.shape.weights / self.device.flops)

    @property
    def trained(self) -> float:
        """Device-seconds of a trained token."""
        return self.shape.weights * (6 + 2 * self.passes) / self.device.flops

    @property
    def rho(self) -> float:
        return self.trained / self.generated


def of_cluster(config: RunConfig, shape: ShapeOptions | None, context: float | None = None) -> Roofline:
    """The roofline of a run's machines.

    Args:
        shape: sizes of the run's model; None = unknown.
        context: by default half of rollouts.max_response_tokens.

    Raises:
        UserError: if the device or the model's sizes are not known.
    """
    if not config.cluster.device:
        raise UserError(
            f"cluster.device: empty, and costs come from it; give one of {', '.join(DEVICES)}, or costs.rho"
        )
    if shape is None:
        raise UserError("cluster.model: empty, and costs come from it; give the sizes in the model's config.json")
    return Roofline(
        DEVICES[config.cluster.device],
        shape,
        config.rollouts.max_sequences,
        config.rollouts.max_response_tokens / 2 if context is None else context,
        further_passes(config),
    )


def further_passes(config: RunConfig) -> float:
    """Forward passes per trained token beside the one with a backward pass. The epochs share those before them."""
    learner = config.learner
    several = learner.num_minibatches * learner.num_epochs > 1 or learner.minibatch_groups > 0
    before = (several and learner.old_logprobs == "learner") + (learner.kl_coefficient > 0)
    return before / learner.num_epochs + learner.activation_checkpointing
