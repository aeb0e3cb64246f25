"""Hands out tickets to a trainer whose loader fetches rows one by one, or in batches of its own size."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halfway.curriculum import Ticket
from halfway.trainers.hosts.hosting import Hosting


@dataclass
class Fetching:
    """A session whose tickets are fetched by a loader.

    Attributes:
        block: tickets drawn at once, even if the loader fetches them one by one: controllers apply shares and quotas to
            whole batches.
        drawn: tickets drawn but not yet fetched.
        handed: ids of tickets fetched but not yet observed.
        begun: whether the run has started.
    """

    hosting: Hosting
    block: int
    drawn: list[Ticket] = field(default_factory=list, kw_only=True)
    handed: set[str] = field(default_factory=set, kw_only=True)
    begun: bool = field(default=False, kw_only=True)

    def next_ticket(self) -> Ticket:
        """Take the ticket of the next row. Draws a new block when the last one is used up."""
        if not self.begun:
            self.hosting.begin()
            self.begun = True
        if not self.drawn:
            self.drawn = self.hosting.draw(self.block)
        ticket = self.drawn.pop(0)
        self.handed.add(ticket.id)
        return ticket

    def place(self, ticket: Ticket) -> int:
        """Index of the ticket's problem, and so of its row."""
        return self.hosting.session.problems.position(ticket.request.problem.id)

    def commit(self, version: int, outcomes: Mapping[str, str] | None = None) -> None:
        """Let the chain observe every complete group; the arguments are those of `Hosting.commit`."""
        for group in self.hosting.commit(version, outcomes):
            self.handed.discard(group.request.ticket)

    def abandon(self, ticket: str, reason: str) -> None:
        """Count a ticket's missing rollouts as lost. A complete or observed ticket does not change."""
        if self.hosting.session.expects(ticket):
            self.hosting.session.abandon(ticket, reason)

    def fail(self, ticket: str) -> None:
        """Count a ticket's missing rollouts as failed. A complete or observed ticket does not change."""
        if self.hosting.session.expects(ticket):
            self.hosting.session.fail(ticket)

    def fail_all(self) -> None:
        """Count all missing rollouts of fetched tickets as failed."""
        for ticket in sorted(self.handed):
            self.fail(ticket)

    def state_dict(self) -> dict[str, Any]:
        return {
            "hosting": self.hosting.state_dict(),
            "drawn": [ticket.id for ticket in self.drawn],
            "handed": sorted(self.handed),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. Fetched tickets stay in flight until the adapter records or abandons them."""
        self.hosting.load_state_dict(saved["hosting"], reissue=False)
        self.drawn = [self.hosting.session.ticket(ticket) for ticket in saved["drawn"]]
        self.handed = set(saved["handed"])
        self.begun = True
