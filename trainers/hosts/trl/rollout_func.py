"""TRL's `rollout_func`: problems are chosen when they are rolled out, and rollouts may begin with replayed tokens.

Replayed tokens are the beginning of `completion_ids`, with `env_mask` 0, so TRL keeps them out of its loss, its
normalizer and its importance ratios. TRL calls this once per generation, after the chain has observed the last one, so
decisions do not lag behind.
"""

from collections.abc import Callable, Sequence
from typing import Any

from halfway.curriculum import Ticket, UserError, require
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.outcomes import add_hint, start_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.trl.settings import process

PROMPT, REPLAYED = "halfway_prompt", "halfway_replayed"

Generate = Callable[[Any, list[list[int]], int], tuple[list[list[int]], list[list[float | None]] | None]]
"""(trainer, contexts, completions per prompt) -> (tokens, log-probabilities or None), with one context per rollout."""


class SessionRollouts:
    """Draws tickets when TRL asks for completions, and generates from their prompts, prefixes and hints.

    The data set has only placeholders. TRL copies the columns returned beside the tokens into the rows for reward
    functions.

    Attributes:
        generate: continues contexts; by default with TRL's vLLM or with `transformers`.
    """

    def __init__(self, hosting: Hosting, args: Any, generate: Generate | None = None):
        self.hosting, self.args, self.generate = hosting, args, generate or continue_contexts
        paged = getattr(args, "use_transformers_continuous_batching", False)
        remedy = "give False; or set use_vllm=True, or through='rows'"
        require(not paged, "args.use_transformers_continuous_batching", paged, remedy)
        first_prompt = hosting.rows.row(hosting.session.problems[0])["prompt"]
        self._placeholder: Any = "" if isinstance(first_prompt, str) else [{"role": "user", "content": ""}]

    def dataset(self, size: int) -> Any:
        """Make a `datasets.Dataset` of `size` placeholders."""
        from datasets import Dataset

        return Dataset.from_dict({"prompt": [self._placeholder] * size})

    def forget(self) -> None:
        """Do nothing: no ticket is drawn ahead."""

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        if not trainer.model.training:  # evaluation uses its own problems, not the session's
            ids = encode_prompts(trainer, prompts)
            tokens, logprobs = self.generate(trainer, ids, trainer.num_generations_eval)
            return {"prompt_ids": ids, "completion_ids": tokens, "logprobs": logprobs}
        mine = self._mine(len(prompts))
        row_of = {ticket.id: self.hosting.row(ticket) for ticket in {t.id: t for t in mine}.values()}
        rows = [row_of[ticket.id] for ticket in mine]
        prompts = [add_hint(row["prompt"], ticket.request) for row, ticket in zip(rows, mine, strict=True)]
        ids = encode_prompts(trainer, prompts)
        starts = [start_of(ticket.request, trainer.processing_class) for ticket in mine]
        contexts = [context + start for context, start in zip(ids, starts, strict=True)]
        tokens, logprobs = self.generate(trainer, contexts, self.hosting.session.num_rollouts)
        limit = self.args.max_completion_length or max(map(len, tokens))
        # The limit applies to prefix and new tokens together, but at least one new token is kept.
        own = [done[: max(1, limit - len(start))] for start, done in zip(starts, tokens, strict=True)]
        columns = {name: [row.get(name) for row in rows] for name in self.hosting.rows.names if name != "prompt"}
        return {
            **columns,
            "prompt_ids": ids,
            "completion_ids": [start + done for start, done in zip(starts, own, strict=True)],
            "logprobs": None
            if logprobs is None
            else [
                [0.0] * len(start) + scores[: len(done)]
                for start, done, scores in zip(starts, own, logprobs, strict=True)
            ],
            "env_mask": [[0] * len(start) + [1] * len(done) for start, done in zip(starts, own, strict=True)],
            TICKET: [ticket.id for ticket in mine],
            REPLAYED: [len(start) for start in starts],
            PROMPT: prompts,
        }

    def _mine(self, size: int) -> Sequence[Ticket]:
        """This process's part of a generation: one ticket per row, repeated for each rollout of its group.

        Every process draws the same tickets.
        """
        index, world = process(self.args)
        groups, rest = divmod(size * world, self.hosting.session.num_rollouts)
        assert rest == 0, f"{size * world} rows are not whole groups of {self.hosting.session.num_rollouts}"
        tickets = [t for t in self.hosting.draw(groups) for _ in range(self.hosting.session.num_rollouts)]
        return tickets[index * size : (index + 1) * size]


def encode_prompts(trainer: Any, prompts: list[Any]) -> list[list[int]]:
    """Encode prompts as TRL does: messages through the chat template, text as it is."""
    tokenizer = trainer.processing_class
    if isinstance(prompts[0], str):
        plain: list[list[int]] = tokenizer(text=prompts)["input_ids"]
        return plain
    templated: list[list[int]] = tokenizer.apply_chat_template(
        conversation=prompts,
        chat_template=trainer.chat_template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **trainer.chat_template_kwargs,
    )["input_ids"]
    return templated


def continue_contexts(
    trainer: Any, contexts: list[list[int]], generations: int
) -> tuple[list[list[int]], list[list[float | None]] | None]:
    """Continue contexts with TRL's vLLM if the trainer uses it, otherwise with `transformers`."""
    if trainer.use_vllm:
        _, tokens, logprobs, _ = trainer.vllm_generation.generate(
            prompts=contexts, images=None, num_generations=generations
        )
        return tokens, [[chosen[0] for chosen in scores] for scores in logprobs]
    return generate(trainer, contexts), None


def generate(trainer: Any, contexts: list[list[int]]) -> list[list[int]]:
    """Continue contexts with the model's own `generate`. A response ends after its first end token.

    Raises:
        UserError: under FSDP.
    """
    import torch
    from trl.models.utils import unwrap_model_for_generation

    if trainer.is_fsdp_enabled:
        raise UserError("through: 'rollouts' needs vLLM under FSDP; give use_vllm=True, or through='rows'")
    tokenizer, device = trainer.processing_class, trainer.accelerator.device
    longest = max(map(len, contexts))
    pad = tokenizer.pad_token_id
    tokens_BT = torch.tensor([[pad] * (longest - len(c)) + c for c in contexts], device=device)
    mask_BT = torch.tensor([[0] * (longest - len(c)) + [1] * len(c) for c in contexts], device=device)
    unwrapped = unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
        generation_kwargs=trainer.generation_kwargs,
    )
    with unwrapped as model, torch.no_grad():
        out_BT = model.generate(
            input_ids=tokens_BT, attention_mask=mask_BT, generation_config=trainer.generation_config
        )
    ends = ends_of(tokenizer, trainer.model)
    return [until_end(row, ends) for row in out_BT[:, longest:].tolist()]


def until_end(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """The tokens up to and including the first end token; all tokens if there is none."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in ends), tokens)


def ends_of(tokenizer: Any, model: Any) -> frozenset[int]:
    """The tokens that end a response, according to the tokenizer and the model's generation settings."""
    settings = getattr(model, "generation_config", None) or getattr(
        getattr(model, "module", None), "generation_config", None
    )
    further = getattr(settings, "eos_token_id", None)
    several = further if isinstance(further, list | tuple) else [further]
    return frozenset(token for token in (tokenizer.eos_token_id, *several) if token is not None)
