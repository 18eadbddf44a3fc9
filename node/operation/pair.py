"""The checks of the way from this node to another one, and the other node's checks of its way.

What keeps two nodes from measuring is often seen from one side only: a firewall, a key, a clock. So
a user's question about a pair is answered by two views, and each node makes its own: this one asks
the other for it, with a signed request.

A view is a list of checks, which go on whatever one of them finds: a check that cannot be made is
itself a result, with the reason. Only if the other node does not answer, or does not know this one,
what it would have to answer is left out. Checks that send packets of measurements (MTU, ports) go
to the address of the other node, for another node only where its tasks might go, and one at a time,
with a pause: no peer can make this host send at will.

Not here: what a finding means (``node/model/diagnosis.py``), and the checks of this host alone
(``host.py``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict
from typing import TypeVar

from node.client.peers import Peer
from node.execution import path_mtu, port_probes
from node.model import times
from node.model.diagnosis import (
    SYNCHRONISATION,
    ClockReading,
    MtuFinding,
    TestTools,
    checks_of_peer,
    clock_check,
    clock_reading,
    host_check,
    limit_check,
    mtu_check,
    passed_check,
    port_check,
    skipped_check,
    tool_check,
)
from node.model.errors import (
    HostError,
    NotAuthenticated,
    NotFound,
    ParleyError,
    TooManyRequests,
    UnknownToPeer,
)
from node.model.features import TOOL, Feature, has_feature
from node.model.nodekinds import NodeKind
from node.model.wire.checks import (
    Check,
    CheckState,
    Diagnosis,
    DiagnosisAnswer,
    DiagnosisRequest,
    PeerFacts,
    ProbeRequest,
)
from node.operation.host import host_checks
from node.operation.status import clock_of, load_of_host, status_of
from node.plugins import registry
from node.runtime.clock import Clock
from node.service import NodeService
from node.store.nodes import KnownNode

T = TypeVar("T")

_TRIES = 3
_BUSY_S = 2
_MTU_S = 15.0
_REACH_S = 2.0
_EXCHANGES = 3
_PAUSE = 2 * times.SECOND
"""Least time between two checks that other nodes ask for."""


class PairChecker:
    """Checks the way to other nodes, for users and for these nodes."""

    def __init__(self, node: NodeService) -> None:
        """One check for another node is made at a time, because it sends packets."""
        self._node = node
        self._checking = asyncio.Lock()
        self._not_before = 0

    async def diagnose(self, request: DiagnosisRequest) -> DiagnosisAnswer:
        """Check this node, or a pair of nodes in both directions.

        :raises NotFound: one of the two is not known here.
        """
        one, other = self._find_node(request.from_), self._find_node(request.to)
        if one.identity == other.identity:
            return self._keep_views({one.identity}, [await host_checks(self._node)])
        views = await asyncio.gather(self._ask_view(one, other), self._ask_view(other, one))
        ends = {end.identity for end in (one, other) if not end.is_self}
        return self._keep_views(ends, views)

    def _keep_views(self, checked: Collection[str], views: Sequence[Diagnosis]) -> DiagnosisAnswer:
        self._node.host_states.keep_check(checked, views)
        return DiagnosisAnswer(views=tuple(views))

    def _find_node(self, name: str | None) -> KnownNode:
        if name is None:
            return self._node.directory.self
        known = self._node.directory.find(name)
        if known is None:
            names = ", ".join(each.name for each in self._node.directory.all)
            msg = f"no node is called {name}; this node knows {names}"
            raise NotFound(msg)
        return known

    async def diagnose_for_peer(self, towards: str) -> Diagnosis:
        """Check the way to a node, for another node.

        :raises NotFound: it is not known here.
        :raises TooManyRequests: a check is being made, or was a moment ago.
        """
        known, clock = self._node.directory.by_identity(towards), self._node.clock
        if self._checking.locked() or clock.monotonic() < self._not_before:
            msg = f"{self._node.card.name} checks the way to another node at the moment"
            raise TooManyRequests(msg, _PAUSE // times.SECOND)
        async with self._checking:
            try:
                return await self._own_view(known, foreign=True)
            finally:
                self._not_before = clock.monotonic() + _PAUSE

    async def _ask_view(self, one: KnownNode, other: KnownNode) -> Diagnosis:
        """Return the diagnosis that one node makes of the way to another; that node makes it."""
        if one.is_self:
            return await self._own_view(other)
        checks: tuple[Check, ...]
        if one.kind is not NodeKind.PARLEY:
            checks = (
                skipped_check("view", f"{one.name} runs {one.kind}, which has no view to tell"),
            )
        elif not has_feature(one.attributes, Feature.CHECKS):
            version = one.attributes.get("version", "of another version")
            why = (
                f"{one.name} ({version}) cannot be asked to check yet; "
                f"there, its owner types: parley node list"
            )
            checks = (skipped_check("view", why),)
        else:
            try:
                asked = self._node.peer(one.identity)
                found = await _ask_until_free(self._node.clock, lambda: asked.check(other.identity))
                checks = checks_of_peer(
                    found.checks, one.name, _node_add_arguments(one.url, one.identity)
                )
            except UnknownToPeer as error:
                checks = (self._not_added_check(one, error),)
            except ParleyError as error:
                why = f"{one.name} was not asked for its view of {other.name}: {error.detail}"
                checks = (skipped_check("view", why),)
        return Diagnosis(node=one.name, towards=other.name, checks=checks)

    async def _own_view(self, other: KnownNode, *, foreign: bool = False) -> Diagnosis:
        checks: list[Check] = []
        name, towards = self._node.card.name, other.name
        if other.kind is not NodeKind.PARLEY:
            checks += await self._foreign_checks(other)
            return Diagnosis(node=name, towards=towards, checks=tuple(checks))
        here = self._node.directory.self
        peering, usable = await self._peering_check(other)
        checks.append(peering)
        if usable:
            await self._node.peer_monitor.record_answer(other)
            checks += await self._remote_checks(other, foreign=foreign)
        checks += tool_check(_tests_of_pairs(), _pair_tools(here), _pair_tools(other), towards)
        return Diagnosis(node=name, towards=towards, checks=tuple(checks))

    async def _peering_check(self, other: KnownNode) -> tuple[Check, bool]:
        """Check whether a node answers with the key that is known, and knows this one."""
        node, clock = self._node, self._node.clock
        began = clock.monotonic()
        try:
            if other.url is not None:
                await node.peers.card(other.url, other.identity)
            took = clock.monotonic() - began
            await node.peer(other.identity).limits()
        except UnknownToPeer as error:
            return self._not_added_check(other, error), False
        except ParleyError as error:
            return _unreachable_check(other, error), False
        way = "it fetches its work here" if other.url is None else f"{_in_ms(took)} at {other.url}"
        what = f"{other.name} answers with the key that is known here ({way}), and knows this node"
        return passed_check("peering", what), True

    async def _foreign_checks(self, other: KnownNode) -> list[Check]:
        """Return the few checks that a host with another program allows: answer and clock."""
        foreign, clock = self._node.foreign, self._node.clock
        if foreign is None:
            return [skipped_check("peering", f"this program does not speak with {other.kind}")]
        sent_at = clock.now()
        try:
            theirs = await foreign.clock(other)
        except ParleyError as error:
            return [_silent_foreign_check(other, error)]
        came_at = clock.now()
        answers = (
            f"{other.name} answers like {other.kind} ({_in_ms(came_at - sent_at)} at {other.url}); "
            "its certificate proves nothing, so whoever answers there is taken for it"
        )
        reading = ClockReading(theirs - (sent_at + came_at) // 2, (came_at - sent_at) // 2)
        return [
            passed_check("peering", answers),
            clock_check(other.name, reading, self._node.settings.clock_limit),
            skipped_check("limits", f"{other.name} does not tell its limits: it runs {other.kind}"),
            skipped_check("ports", f"{other.name} opens no port for a check: it runs {other.kind}"),
        ]

    def _not_added_check(self, other: KnownNode, error: ParleyError) -> Check:
        card = self._node.card
        known_by = _node_add_arguments(card.url, card.identity)
        return Check(
            subject="peering",
            state=CheckState.FAULT,
            what=error.detail.partition("; ")[0],
            cause=f"each of two nodes has to add the other one, and {other.name} has not",
            command=f"parley node add {known_by}",
            where=other.name,
        )

    async def _remote_checks(self, other: KnownNode, *, foreign: bool) -> list[Check]:
        """Return the checks that another node has to answer: clock, limits, MTU, ports."""
        peer, name = self._node.peer_of_parley(other), other.name
        try:
            address = await self._address(other, foreign=foreign)
        except ParleyError as error:
            refused = skipped_check("address", f"no packets are sent to {name}: {error.detail}")
            return [refused, *await self._checks_without_packets(peer, other)]
        found = await asyncio.gather(
            self._checks_without_packets(peer, other),
            _checks_or_reason("mtu", lambda: self._mtu_checks(name, address)),
            _checks_or_reason("ports", lambda: self._port_checks(peer, other, address)),
        )
        return [check for several in found for check in several]

    async def _checks_without_packets(self, peer: Peer, other: KnownNode) -> list[Check]:
        """Return the checks that send no packets of measurements: clock, host, limits."""
        limits = _checks_or_reason("limits", lambda: self._limit_checks(peer))
        if not has_feature(other.attributes, Feature.CHECKS):
            return [skipped_check("clock", _older_version_sentence(other)), *await limits]
        found = await asyncio.gather(
            _checks_or_reason("clock", lambda: self._clock_and_host_checks(peer)), limits
        )
        return [check for several in found for check in several]

    async def _address(self, other: KnownNode, *, foreign: bool) -> str:
        """Return the address to which the packets of a check go.

        For another node (``foreign``) they go only where its tasks might.

        :raises HostError: there is none, or it is refused.
        """
        loop, host = asyncio.get_running_loop(), other.address
        try:
            async with asyncio.timeout(_REACH_S):
                answers = await loop.getaddrinfo(host, 0)
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or "no answer"
            msg = f"no address was found for {host}: {why}"
            raise HostError(msg) from error
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in answers))
        if foreign and (refusal := self._node.foreign_targets.node_refusal(host, addresses)):
            raise HostError(refusal)
        return addresses[0]

    async def _clock_and_host_checks(self, peer: Peer) -> list[Check]:
        """Compare the clocks over three exchanges; the shortest has the smallest uncertainty."""
        clock, limit = self._node.clock, self._node.settings.clock_limit
        exchanges = [await _clock_exchange(peer, clock) for _ in range(_EXCHANGES)]
        facts, best = min(exchanges, key=lambda exchange: exchange[1].uncertain)
        return [clock_check(peer.name, best, limit), *host_check(peer.name, facts)]

    async def _mtu_checks(self, name: str, address: str) -> list[Check]:
        found = await path_mtu.find(address, self._node.tool_runner, _MTU_S)
        return [mtu_check(name, address, MtuFinding(**asdict(found)))]

    async def _port_checks(self, peer: Peer, other: KnownNode, address: str) -> list[Check]:
        if not has_feature(other.attributes, Feature.CHECKS):
            return [skipped_check("ports", _older_version_sentence(other))]
        nonce, settings = secrets.token_hex(16), self._node.settings
        request = ProbeRequest(nonce=nonce)
        offer = await _ask_until_free(self._node.clock, lambda: peer.probe(request))
        if (refusal := self._node.foreign_targets.probe_refusal(other, offer.port)) is not None:
            return [skipped_check("ports", f"nothing is sent to its port: {refusal}")]
        reached = await port_probes.reach(address, offer.port, nonce, _REACH_S)
        reasons = {"TCP": reached.tcp, "UDP": reached.udp}
        ports = f"{settings.port_first}-{settings.port_last}"
        return port_check(peer.name, address, offer.port, reasons, ports)

    async def _limit_checks(self, peer: Peer) -> list[Check]:
        return limit_check(await peer.limits(), self._node.card.name)


async def _ask_until_free(clock: Clock, ask: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a question, asked again while the other node is busy with a check.

    :raises TooManyRequests: it is busy for longer than a check takes.
    """
    for _ in range(_TRIES - 1):
        try:
            return await ask()
        except TooManyRequests as error:
            await clock.sleep(min(error.retry_after_s, _BUSY_S))
    return await ask()


async def _clock_exchange(peer: Peer, clock: Clock) -> tuple[PeerFacts, ClockReading]:
    sent_at = clock.now()
    facts = await peer.facts()
    return facts, clock_reading(sent_at, facts, clock.now())


async def facts_of(node: NodeService, received_at: int) -> PeerFacts:
    """Return the state of this host for another node."""
    status = await status_of(node, for_peer=True)
    load = load_of_host()
    return PeerFacts(
        received_at=received_at,
        clock=clock_of(node),
        processors=load.processors,
        load=load.one_minute,
        needs_attention=len(status.attention),
        answered_at=node.clock.now(),
    )


async def _checks_or_reason(
    subject: str, check: Callable[[], Awaitable[Sequence[Check]]]
) -> Sequence[Check]:
    """Return the results of a check, or one check that tells why it could not be made."""
    try:
        return await check()
    except ParleyError as error:
        return [skipped_check(subject, f"it was not checked: {error.detail}")]


def _node_add_arguments(url: str | None, identity: str) -> str:
    """Return the arguments of ``parley node add`` for a node: its URL and its key."""
    return identity if url is None else f"{url} --identity {identity}"


def _older_version_sentence(other: KnownNode) -> str:
    return f"{other.name} has an older version, which does not answer for this"


def _unreachable_check(other: KnownNode, error: ParleyError) -> Check:
    """Return the check of a node that does not answer, or does not accept what this one signs."""
    where = None
    if isinstance(error, NotAuthenticated):
        cause = "the clocks of the two differ by more than a signature may be old"
        command = SYNCHRONISATION
    elif other.url is not None:
        cause = "its service or host is down, its address has changed, or a firewall is between"
        command = f"curl -sk {other.url}/healthz"
    else:
        cause = (
            "it does not fetch its work here: its service is down, or it does not know this node"
        )
        command, where = "systemctl status parley-node", other.name
    return Check(
        subject="peering",
        state=CheckState.FAULT,
        what=error.detail,
        cause=cause,
        command=command,
        where=where,
    )


def _silent_foreign_check(other: KnownNode, error: ParleyError) -> Check:
    """Return the check of a host that does not answer like the program that it runs."""
    return Check(
        subject="peering",
        state=CheckState.FAULT,
        what=error.detail,
        cause="its services or host are down, its address has changed, or a firewall is between",
        command=f"curl -sk {other.url}/",
    )


def _pair_tools(known: KnownNode) -> dict[str, bool]:
    return {
        name.removeprefix(TOOL): value is True
        for name, value in known.attributes.items()
        if name.startswith(TOOL)
    }


def _tests_of_pairs() -> list[TestTools]:
    """Return the tests that two nodes make together, with their tools."""
    pairs = []
    for name, test in sorted(registry.tests().items()):
        spec = test.spec_model.model_validate(test.example)
        tools = registry.tools_for(name)
        if len(test.participants(spec)) > 1 and tools:
            named = [
                (tool.name, None if tool.requirement is None else tool.requirement.package)
                for tool in tools
            ]
            pairs.append(TestTools(name, named))
    return pairs


def _in_ms(duration: int) -> str:
    return f"{duration / times.MILLISECOND:.3g} ms"
