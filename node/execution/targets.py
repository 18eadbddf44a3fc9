"""Targets that tasks of other nodes may measure from this host.

The decision is in :mod:`node.model.targets`; here are the facts: the addresses of this host, what
its owner allows, and look-ups. It is made when a task is introduced, as far as targets are written
as addresses, and again before each run, after the look-up.

The address of a participant that is known here is that of its card, whoever leads the task
(:mod:`node.model.participant_addresses`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from node.execution import host_sampling, netlink
from node.model import participant_addresses, targets
from node.model.contexts import offered
from node.model.errors import HostError
from node.model.host_limits.quotas import RunAmounts
from node.model.loopback import is_loopback
from node.model.naming import normal
from node.model.spans import Span
from node.model.targets import IpAddress, Network, TargetRules, literal
from node.model.wire.tasks import Participant
from node.plugins.contracts import (
    PartContext,
    TargetChecking,
    Targeting,
    Test,
    Tool,
    Unprompted,
    unchecked,
)
from node.settings import Settings
from node.store.nodes import KnownNode

_FAMILIES = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}

STRANGERS_MBPS_MAX = 1
"""Maximum rate to a host that has not agreed to take part, for tasks of other nodes, in Mb/s."""
_RATE = "mbps"

LOOK_UPS_MAX = 64
"""Maximum number of look-ups under way; each that does not end keeps a thread for half a minute."""


class NamedTargetCounter(Protocol):
    """Counts runs to targets whose address was not known when the runs were booked."""

    @property
    def counts_named(self) -> bool:
        """Return whether anything is counted."""
        ...

    async def count_named(
        self, addresses: Sequence[str], span: Span, amounts: RunAmounts, mbps: int
    ) -> str | None:
        """Count a run to these addresses, and return None; or return why it is refused."""
        ...


class ForeignTargets:
    """The targets of tasks that other nodes lead."""

    def __init__(
        self,
        settings: Settings,
        known: Callable[[], Sequence[KnownNode]],
        contexts: Callable[[], Mapping[str, str]],
        counter: Callable[[], NamedTargetCounter],
    ) -> None:
        """``known()`` returns all known nodes, ``contexts()`` the contexts with their addresses.

        ``counter()`` counts runs to targets that are names.
        """
        self._counter = counter
        self._settings = settings
        self._known = known
        self._contexts = contexts
        self._look_ups = 0

    def refusal(
        self,
        lead: str,
        test: Test,
        spec: Any,
        others: Sequence[Participant],
        addresses: Mapping[str, str],
    ) -> str | None:
        """Return why an introduced task is refused, as far as its addresses are known; or None.

        ``others`` are the other participants, ``addresses`` those of the hosts that the spec names.
        """
        mere = [addresses.get(host, host) for host in mere_targets(test, spec)]
        parties = [each.address for each in others]
        if (refusal := self._excess(lead, test, spec, mere, others)) is not None:
            return refusal
        if not mere and not any(map(literal, parties)):
            return None
        rules = self._rules(None)
        rules_of_spec = self._of_mere_targets(rules, test, spec) if mere else rules
        port = _port(test, spec)
        refusals = (targets.host_refusal(host, port, rules_of_spec) for host in mere)
        refusals_of_parties = (targets.host_refusal(host, None, rules) for host in parties)
        return next(filter(None, (*refusals, *refusals_of_parties)), None)

    def _excess(
        self,
        lead: str,
        test: Test,
        spec: Any,
        mere: Sequence[str],
        others: Sequence[Participant],
    ) -> str | None:
        """Return why a task sends too much to hosts that have not agreed to it; or None.

        The lead has agreed, and known participants are asked before each run (``agreement.py``). A
        participant that is not known here may be an invention of the lead, so it counts only if it
        has to answer before much is sent.
        """
        if not _is_much(test, spec):
            return None
        rate = test.needs(spec)[_RATE]
        cards = self._cards()
        agreed = {normal(word) for word in _words(cards[lead])} if lead in cards else set()
        strangers = [host for host in mere if normal(host) not in agreed]
        if isinstance(test, Unprompted) and test.unprompted:
            strangers += [each.address for each in others if each.node not in cards]
        if not strangers:
            return None
        return (
            f"{test.name} would send {rate} Mb/s to {strangers[0]}, which is not a participant "
            "known here and has not agreed to it; a task of another node sends at most "
            f"{STRANGERS_MBPS_MAX} Mb/s there: send shorter packets or fewer, or let the owner of "
            "this host create the task"
        )

    @staticmethod
    def exceeds(test: Test, spec: Any) -> bool:
        """Return whether a test sends more than strangers get, and before anybody answers."""
        return isinstance(test, Unprompted) and test.unprompted and _is_much(test, spec)

    def misaddressed(self, participants: Sequence[Participant]) -> tuple[str, str] | None:
        """Return the first participant whose address is not that of its card, and why; or None.

        Participants that are not known here are as the lead says; their addresses are targets.
        """
        cards = self._cards()
        for each in participants:
            card = cards.get(each.node)
            fault = card and participant_addresses.address_fault(each, card)
            if fault:
                return each.node, fault
        return None

    def located(self, participants: Sequence[Participant]) -> tuple[Participant, ...]:
        """Return the participants with the addresses of their cards as they are now.

        :raises HostError: one measures in a context that its card does not offer any more.
        """
        cards = self._cards()
        return tuple(_located(each, cards.get(each.node)) for each in participants)

    def _cards(self) -> dict[str, KnownNode]:
        return {node.identity: node for node in self._known()}

    def node_refusal(self, host: str, addresses: Sequence[str]) -> str | None:
        """Return why a check that another node asks for is not made with a node at these addresses.

        ``host`` is what they were looked up from. None if it is made.
        """
        return targets.addresses_refusal(host, addresses, None, self._rules(None))

    async def checked(
        self, test: Test, tool: Tool, context: PartContext, patience_s: float
    ) -> PartContext:
        """Return the part with checked addresses instead of names, and with the rules.

        A tool that checks targets itself keeps names; looking them up is part of what it measures.

        :raises HostError: a target is refused, or has no address.
        """
        if (reason := unchecked(tool, context.spec)) is not None:
            raise HostError(reason)
        namespace = None if context.context is None else context.context.namespace
        rules_of_parties = self._rules(namespace)
        rules = self._of_mere_targets(rules_of_parties, test, context.spec)
        itself = isinstance(tool, TargetChecking) and tool.checks_targets
        addresses = dict(context.addresses)
        for host in mere_targets(test, context.spec):
            at = addresses.get(host, host)
            if itself and literal(at) is None:
                continue
            port = _port(test, context.spec)
            addresses[host] = await self._address(at, port, context, rules, patience_s)
        await self._count_named(test, context, addresses, patience_s)
        parties = list(context.parties)
        for place, party in enumerate(parties):
            if place != context.participant:
                address = await self._address(
                    party.address, None, context, rules_of_parties, patience_s
                )
                parties[place] = replace(party, address=address)
        return replace(context, addresses=addresses, parties=tuple(parties), rules=rules)

    async def _count_named(
        self, test: Test, context: PartContext, addresses: Mapping[str, str], patience_s: float
    ) -> None:
        """Count a run for those of its targets that its task names without an address.

        :raises HostError: a cap has no room for it, or a name has no address.
        """
        counter = self._counter()
        named = [
            host
            for host in mere_targets(test, context.spec)
            if literal(context.addresses.get(host, host)) is None
        ]
        if not named or not counter.counts_named:
            return
        found: list[str] = []
        for host in named:
            at = addresses.get(host, host)
            address = literal(at)
            found += [address] if address else await self._looked_up(at, context, patience_s)
        moved = test.expected_bytes(context.spec, None) or 0
        amounts = RunAmounts(context.ends - context.starts, moved)
        span, mbps = (context.starts, context.ends), test.needs(context.spec).get(_RATE) or 0
        if (refusal := await counter.count_named(found, span, amounts, mbps)) is not None:
            raise HostError(refusal)

    async def _address(
        self,
        host: str,
        port: int | None,
        context: PartContext,
        rules: TargetRules,
        patience_s: float,
    ) -> str:
        """Return the first address of a host, of which all are targets.

        :raises HostError: one is refused, or there is none.
        """
        address = literal(host)
        found = [address] if address else await self._looked_up(host, context, patience_s)
        if (refusal := targets.addresses_refusal(host, found, port, rules)) is not None:
            raise HostError(refusal)
        return found[0]

    async def _looked_up(self, host: str, context: PartContext, patience_s: float) -> list[str]:
        """Return the addresses of a name, looked up from where the part measures.

        :raises HostError: there is none, or it was not found in time.
        """
        if self._look_ups >= LOOK_UPS_MAX:
            raise HostError(f"no address was found for {host}: {LOOK_UPS_MAX} names are looked up")
        namespace = None if context.context is None else context.context.namespace
        resolve = partial(_resolved, host, _FAMILIES[_version(context)])
        answer = aside(partial(host_sampling.in_namespace, namespace, resolve), host)
        self._look_ups += 1
        answer.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise HostError(f"no address was found for {host} in {patience_s:.1f} s") from None
        except OSError as fault:
            raise HostError(f"{host}: {fault.strerror or fault}") from fault

    def _ended(self, answer: asyncio.Future[list[str]]) -> None:
        self._look_ups -= 1
        answer.exception()  # it was reported, or nobody waits for it any more

    def _rules(self, namespace: str | None) -> TargetRules:
        settings = self._settings
        own = frozenset(self._own(namespace))
        return TargetRules(
            own=own,
            own_port=settings.listen_port,
            api=targets.api_networks(settings.listen_host),
            allowed=(*settings.allowed_targets, *self._on_loopback(own)),
        )

    def _of_mere_targets(self, rules: TargetRules, test: Test, spec: Any) -> TargetRules:
        """Return the rules for hosts that take no part: only known nodes may be private."""
        addresses = {literal(word) for node in self._known() for word in _words(node)}
        private = tuple(ipaddress.ip_network(each) for each in addresses if each is not None)
        return replace(rules, content=_reported_content(test, spec), private=private)

    def _own(self, namespace: str | None) -> Iterator[IpAddress]:
        """Yield the addresses of this host, also those by which others reach it."""
        yield from netlink.addresses()
        if namespace is not None:
            yield from host_sampling.in_namespace(namespace, netlink.addresses)
        settings = self._settings
        url = urlsplit(settings.public_url).hostname or ""
        words = (settings.listen_host, settings.measurement_address, url)
        for word in (*words, *self._contexts().values()):
            if (address := literal(word)) is not None:
                yield ipaddress.ip_address(address)

    def _on_loopback(self, own: Container[IpAddress]) -> Iterator[Network]:
        """Yield the known nodes' addresses on this host, if this node is set up on loopback itself.

        It is, if it measures from loopback and reaches all nodes that it knows there, as in a lab
        on one host. Then the other nodes are measured on this host, and nothing else here is.
        """
        known = [node for node in self._known() if not node.is_self]
        urls = [urlsplit(node.url).hostname or "" for node in known if node.url is not None]
        if not all(map(_is_loopback, (self._settings.measurement_address, *urls))):
            return
        for node in known:
            for word in (node.address, *offered(node.attributes).values()):
                address = literal(word)
                if _is_loopback(word) or (address and ipaddress.ip_address(address) in own):
                    yield ipaddress.ip_network(address or "")


def aside(look_up: Callable[[], list[str]], name: str) -> asyncio.Future[list[str]]:
    """Call ``look_up`` in a thread of its own, and return the future of its result.

    The library's own timeout is half a minute: one thread can be abandoned, a pool would fill.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def call() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(answer.set_result, look_up())
        except Exception as fault:  # noqa: BLE001 - whoever waits gets it
            settle = partial(answer.set_exception, fault)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=call, name=f"look up {name}", daemon=True).start()
    return answer


def _is_much(test: Test, spec: Any) -> bool:
    """Return whether a test sends more than a host gets that has not agreed to it."""
    rate = test.needs(spec).get(_RATE, 0)
    return rate is None or rate > STRANGERS_MBPS_MAX


def _words(card: KnownNode) -> tuple[str, ...]:
    return (card.name, card.address, *offered(card.attributes).values())


def _located(participant: Participant, card: KnownNode | None) -> Participant:
    if card is None:
        return participant
    address = participant_addresses.current_address(participant, card)
    if address is None and not card.is_self:
        msg = (
            f"{card.name} does not offer the context {participant.context} any more, as its card "
            "here says, so there is no address to measure to; its owner can offer it again "
            "(PARLEY_CONTEXTS)"
        )
        raise HostError(msg)
    return participant.model_copy(update={"address": address or participant.address})


def _is_loopback(host: str) -> bool:
    return is_loopback(literal(host) or "")


def mere_targets(test: Test, spec: Any) -> list[str]:
    """Return the hosts of a spec that are no participants.

    A host that is named twice, as a participant and as a target, is both.
    """
    hosts = list(test.hosts(spec))
    for participant in test.participants(spec):
        if participant in hosts:
            hosts.remove(participant)
    return hosts


def _port(test: Test, spec: Any) -> int | None:
    return test.target_port(spec) if isinstance(test, Targeting) else None


def _reported_content(test: Test, spec: Any) -> str | None:
    return test.telling(spec) if isinstance(test, Targeting) else None


def _version(context: PartContext) -> int | None:
    """Return the IP version of the spec, or else that of the address to measure from."""
    version: int | None = getattr(context.spec, "ip_version", None)
    own = literal(context.context.name) if context.context and context.context.bound else None
    return version if version or own is None else ipaddress.ip_address(own).version


def _resolved(host: str, family: int) -> list[str]:
    entries = socket.getaddrinfo(host, None, family, socket.SOCK_DGRAM)
    return [str(entry[4][0]) for entry in entries]
