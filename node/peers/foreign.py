"""The port to nodes of another kind: hosts that run pScheduler, and take part in tasks led here.

They have no card and no key, and never lead anything here by this way. ``node/pscheduler`` has the
only implementation; a node without it cannot reach them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from node.client.peers import Peer
from node.model.wire.checks import Diagnosis, PeerFacts, ProbeOffer, ProbeRequest
from node.model.wire.comparisons import NodeComparison
from node.model.wire.host_limits import GrantedLimits
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import (
    BookedRun,
    CommitAnswer,
    CommitRequest,
    ConfirmationAnswer,
    ConfirmationRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    FreedTime,
    HoldAnswer,
    HoldRequest,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    Release,
    RunEnd,
    TaskEnd,
)
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.store.nodes import KnownNode


@dataclass(frozen=True)
class ForeignDescription:
    """The facts that a node of another kind tells of itself, in place of a card."""

    name: str
    attributes: dict[str, Any] = field(default_factory=dict)


class ForeignPeer(Protocol):
    """A node of another kind as far as this node speaks to it.

    What it cannot be asked raises :class:`node.model.errors.PeerFailed`, with a sentence.
    """

    identity: str
    name: str
    binding: bool

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known there."""
        ...

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Return whether it would take part; nothing is stored there."""
        ...

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the ranges that it says are free."""
        ...

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book runs there."""
        ...

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Complete these bookings of the exchange and take the others back."""
        ...

    async def release(self, exchange: UUID, release: Release) -> None:
        """Take the bookings of an exchange back."""
        ...

    async def end_run(self, end: RunEnd) -> None:
        """Take a run back."""
        ...

    async def end_task(self, end: TaskEnd) -> None:
        """End a task there."""
        ...

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Return an empty answer: it has nothing to say about tasks that it leads here."""
        ...

    async def compare(self, request: DigestRequest) -> Differences:
        """Return which runs it has otherwise."""
        ...

    async def compare_with_sender(self) -> NodeComparison:
        """Return an empty comparison: it leads nothing here by this way."""
        ...

    async def booked_run(self, run: UUID) -> BookedRun:
        """Return a run as it is booked there."""
        ...

    async def impact(self, request: ImpactRequest) -> Impact:
        """Raise, for it cannot say what would give way."""
        ...

    async def limits(self) -> GrantedLimits:
        """Raise, for it does not tell its limits."""
        ...

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """Raise, for it leads no exchange."""
        ...

    async def report_freed_time(self, message: FreedTime) -> None:
        """Tell it nothing: it does not listen."""
        ...

    async def check(self, towards: str) -> Diagnosis:
        """Raise, for it checks no ways."""
        ...

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:
        """Raise, for it shares no campaigns."""
        ...

    async def facts(self) -> PeerFacts:
        """Raise, for it does not tell the state of its host."""
        ...

    async def probe(self, request: ProbeRequest) -> ProbeOffer:
        """Raise, for it opens no ports for probes."""
        ...

    async def send_part(self, part: PartMessage) -> None:
        """Raise, for parts are fetched from there and not sent."""
        ...

    async def send_intervals(self, intervals: IntervalsMessage) -> None:
        """Raise, for it takes no intervals."""
        ...


AnyPeer = Peer | ForeignPeer
"""A client of another node, of whatever kind."""


class ForeignNodes(Protocol):
    """All that a node needs of the nodes of another kind."""

    def peer(self, known: KnownNode) -> ForeignPeer:
        """Return the client of a node of another kind."""
        ...

    async def describe(self, url: str) -> ForeignDescription:
        """Return what the node at a URL tells of itself; raises ``PeerError`` if there is none."""
        ...

    async def look(self, known: KnownNode) -> None:
        """Check that a node answers; raises ``PeerError`` if it does not."""
        ...

    async def clock(self, known: KnownNode) -> int:
        """Return the instant that a node's clock shows (µs)."""
        ...

    async def run(self) -> None:
        """Keep watch over what they have booked, and fetch its parts, until cancelled."""
        ...
