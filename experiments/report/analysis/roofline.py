"""Estimates what a trained token costs in generated tokens on a given machine, from its devices' peak rates.

The time on a device is that of the slower of two things: moving bytes between memory and cores, and arithmetic (the
roofline model; Williams et al. 2009). With W parameters of 2 bytes each:

- **Generating** one token for each of B sequences reads all weights once and, for every sequence, the keys and values
  of the L tokens before it, c numbers of 2 bytes per token; it takes 2 W floating-point operations per token (Pope et
  al. 2022, "Efficiently Scaling Transformer Inference", section 2; Kaplan et al. 2020, section 2.1, for 2 W). So the
  device-seconds per token are max((2 W / B + 2 c L) / bandwidth, 2 W / flops). Spreading the model over more devices
  divides the time and multiplies the devices, so the device-seconds stay the same.
- **An update** takes 6 W operations per token, forward and backward (Kaplan et al. 2020), and 2 W for every further
  forward pass: recomputed activations, old log-probabilities, a reference policy. Batches are large, so arithmetic is
  the slower part: the device-seconds per token are W (6 + 2 further passes) / flops.

rho is the second divided by the first.

The model assumes that both reach the same share of the peak rates; that B sequences are decoded at every moment, which
fails in the tail of a batch, when a few long responses remain (generation is then dearer and rho smaller); that reading
prompts, moving weights between learner and engine, and waiting cost nothing; that attention's own products can be left
out; and that generation and updates use devices of the same kind.
"""

from dataclasses import dataclass

from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.run import RunConfig
from halfway.trainers.distributed.cluster import DEVICES, Device, ShapeOptions

BYTES = 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roofline model that the module describes.

    Attributes:
        device: peak rates of one device.
        shape: sizes of the model.
        batch: number of sequences that one engine decodes at once, over however many devices.
        context: mean number of tokens before the one that is generated.
        passes: forward passes per trained token, besides the one that has a backward pass.
    """

    device: Device
    shape: ShapeOptions
    batch: int
    context: float
    passes: float = 0.0

    @property
    def generated(self) -> float:
        """Device-seconds per generated token."""
        read = BYTES * (self.shape.weights / self.batch + self.shape.cache_per_token * self.context)
        return max(read / self.device.bandwidth, 2 * self.shape.weights / self.device.flops)

    @property
    def trained(self) -> float:
        """Device-seconds per trained token."""
        return self.shape.weights * (6 + 2 * self.passes) / self.device.flops

    @property
    def rho(self) -> float:
        return self.trained / self.generated


def of_cluster(config: RunConfig, context: float | None = None) -> Roofline:
    """The roofline of the machines that a run is configured for.

    Args:
        context: mean number of tokens before a generated one; by default half of rollouts.max_response_tokens.

    Raises:
        UserError: if the device or the model's sizes are not known.
    """
    if not config.cluster.device:
        raise UserError(
            f"cluster.device: empty, and costs come from it; give one of {', '.join(DEVICES)}, or costs.rho"
        )
    shape = config.shape
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
    """Forward passes per trained token besides the one with a backward pass.

    Old log-probabilities and the reference policy take one pass each per batch, so the epochs share these passes.
    """
    learner = config.learner
    several = learner.num_minibatches * learner.num_epochs > 1 or learner.minibatch_groups > 0
    before = (several and learner.old_logprobs == "learner") + (learner.kl_coefficient > 0)
    return before / learner.num_epochs + learner.activation_checkpointing
