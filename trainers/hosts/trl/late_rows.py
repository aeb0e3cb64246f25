"""A data set of empty slots: each gets its problem when TRL's loader fetches it, one generation ahead of its use."""

from typing import Any

from halfway.curriculum import Ticket, UserError
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.outcomes import add_hint, start_of
from halfway.trainers.hosts.rows import TICKET

START, START_TEXT, SLOT = "halfway_start", "halfway_start_text", "halfway_slot"


class LateRows:
    """Fills slots with the session's tickets, one generation at a time.

    TRL fetches a generation's rows once for every pass over it; they get the same tickets each time.

    A prefix, or a hint at the start of the response, is appended to the prompt, on which TRL never trains. So prompts
    must be plain text, and prompt and prefix must keep their tokens when encoded as one text. Otherwise, as with a
    tokenizer that ends every text with its own token, the ticket is abandoned and counted as "retokenized".

    Attributes:
        groups: number of groups per generation.
        tokenizer: needed only if the chain attaches prefixes or hints.
    """

    def __init__(self, hosting: Hosting, groups: int, tokenizer: Any = None):
        self.hosting, self.groups, self.tokenizer = hosting, groups, tokenizer
        self._chunks: dict[int, list[dict[str, Any]]] = {}

    def dataset(self, generations: int) -> Any:
        """Make a `datasets.Dataset` with slots for the generations, and for two more that are fetched ahead."""
        from datasets import Dataset

        slots = Dataset.from_dict({SLOT: range((generations + 2) * self.groups)})
        return slots.with_transform(_Transform(self))

    def forget(self) -> None:
        """Drop the tickets of generations fetched ahead; the next fetch fills their slots again."""
        self._chunks.clear()

    def fill(self, batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        """Fill a batch of slots; returns the rows as columns (name -> values)."""
        rows = [self._row(*divmod(slot, self.groups)) for slot in batch[SLOT]]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _row(self, chunk: int, place: int) -> dict[str, Any]:
        if chunk not in self._chunks:
            self._chunks = {number: rows for number, rows in self._chunks.items() if number >= chunk - 1}
            self._chunks[chunk] = self._draw_rows()
        return self._chunks[chunk][place]

    @property
    def _attaches(self) -> bool:
        return bool(self.hosting.session.controller.needs & {"prefixes", "hints"})

    def _draw_rows(self) -> list[dict[str, Any]]:
        """Draw rows for a generation. A ticket whose prefix or hint does not keep its tokens as text is replaced."""
        rows: list[dict[str, Any]] = []
        while len(rows) < self.groups:
            for ticket in self.hosting.draw(self.groups - len(rows)):
                row = {**self.hosting.row(ticket), TICKET: ticket.id}
                if self._attaches:
                    prompt, start, text = self._start_response(ticket, row["prompt"])
                    row |= {"prompt": prompt, START: start, START_TEXT: text}
                if row.get(START_TEXT, "") is None:
                    self.hosting.session.abandon(ticket.id, "retokenized")
                else:
                    rows.append(row)
        return rows

    def _start_response(self, ticket: Ticket, prompt: Any) -> tuple[Any, list[int], str | None]:
        """The prompt with the start of the response appended, and that start as tokens and as text.

        If the start does not keep its tokens when decoded and encoded again, its text is None and the prompt unchanged.
        """
        request = ticket.request
        if request.prefix is None and request.hint is None:
            return prompt, [], ""
        if not isinstance(prompt, str):
            raise UserError(
                "through: 'rows' cannot attach a prefix to a prompt that is a list of messages; give through='rollouts'"
            )
        if request.hint is not None and request.hint.place == "prompt":
            return add_hint(prompt, request), [], ""
        start = start_of(request, self.tokenizer)
        text = self.tokenizer.decode(start) if request.hint is None else request.hint.text
        if self._encode(prompt + text) != self._encode(prompt) + start:
            return prompt, start, None
        return prompt + text, start, text

    def _encode(self, text: str) -> list[int]:
        # TRL encodes a plain-text prompt in the same way.
        tokens: list[int] = self.tokenizer(text=[text])["input_ids"][0]
        return tokens


class _Transform:
    """The function that `datasets` calls to fill slots.

    `datasets` pickles it to compute a hash. It pickles as a constant, to leave out the session and its problems.
    """

    def __init__(self, rows: LateRows):
        self._rows = rows

    def __call__(self, batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        return self._rows.fill(batch)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, ("halfway",)

    def __deepcopy__(self, memo: Any) -> "_Transform":
        return self
