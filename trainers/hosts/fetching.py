"""Tickets for a trainer whose loader fetches rows one by one or in batches of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halfway.curriculum.session import Ticket
from halfway.trainers.hosts.hosting import Hosting


@dataclass
class Fetching:
    """A session in the hands of a loader.

    Attributes:
        block: tickets that are drawn at once. The loader may fetch them one by one; shares and quotas are of batches.
        drawn: tickets that no row has yet.
        handed: ids of tickets that were fetched and are not observed.
    """

    hosting: Hosting
    block: int
    drawn: list[Ticket] = field(default_factory=list, kw_only=True)
    handed: set[str] = field(default_factory=set, kw_only=True)
    begun: bool = field(default=False, kw_only=True)

    def next_ticket(self) -> Ticket:
        """The next row's ticket."""
        if not self.begun:
            self.hosting.begin()
            self.begun = True
        if not self.drawn:
            self.drawn = self.hosting.draw(self.block)
        ticket = self.drawn.pop(0)
        self.handed.add(ticket.id)
        return ticket

    def place(self, ticket: Ticket) -> int:
        """Where its row is."""
        return self.hosting.session.problems.position(ticket.request.problem.id)

    def commit(self, version: int, outcomes: Mapping[str, str] | None = None) -> None:
        """The chain observes every whole group."""
        for group in self.hosting.commit(version, outcomes):
            self.handed.discard(group.request.ticket)

    def abandon(self, ticket: str, reason: str) -> None:
        """What is missing of a ticket that was fetched will not come. One that is whole stays so."""
        if self.hosting.session.expects(ticket):
            self.hosting.session.abandon(ticket, reason)

    def abandon_all(self, reason: str) -> None:
        """The same of all that were fetched."""
        for ticket in sorted(self.handed):
            self.abandon(ticket, reason)

    def state_dict(self) -> dict[str, Any]:
        return {
            "hosting": self.hosting.state_dict(),
            "drawn": [ticket.id for ticket in self.drawn],
            "handed": sorted(self.handed),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue. What was fetched stays in flight: whoever knows what became of it says so."""
        self.hosting.load_state_dict(saved["hosting"], reissue=False)
        self.drawn = [self.hosting.session.ticket(ticket) for ticket in saved["drawn"]]
        self.handed = set(saved["handed"])
        self.begun = True
