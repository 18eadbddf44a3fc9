"""Targets that tasks of other nodes may measure from this host.

The decision is in :mod:`node.model.ways_out`; here are the facts: the addresses of this host, what
its owner allows, and look-ups. It is made when a task is introduced, as far as targets are written
as addresses, and again before each run, after the look-up.

The address of a participant that is known here is that of its card, or of the context in which it
measures, whoever leads the task: a lead can send no traffic to an address that it has invented in
the name of a node known here. One that is not known here may be an invention of the
lead: it is a mere target, and since nobody can be asked for the port at which it listens, nothing
is sent to it at one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from node.execution import host_sampling, netlink
from node.execution.catalog import unchecked_tool
from node.execution.known_places import KnownPlaces, is_at_loopback, words_of
from node.execution.ways_out import judging_session
from node.model import ports, targets, ways_out
from node.model.contexts import offered_contexts
from node.model.errors import HostError
from node.model.features import Feature, has_feature
from node.model.host_limits.quotas import RunAmounts
from node.model.naming import Described, host_of, normalised_word
from node.model.reason import Reason
from node.model.reasons import (
    address_not_of_card,
    context_not_offered,
    no_address_found,
    no_address_in_time,
    participant_unknown_here,
    stated_port_not_of_tools,
    too_many_look_ups,
    too_much_for_stranger,
)
from node.model.spans import Span
from node.model.targets import IpAddress, Network, TargetRules, literal
from node.model.ways_out import Asker, Role
from node.model.wire.tasks import Participant
from node.plugins import registry
from node.plugins.contracts import (
    PartContext,
    TargetChecking,
    Targeting,
    Test,
    Tool,
    Unprompted,
)
from node.plugins.listening import listening_places, receiving_places, stated_port
from node.runtime.opt_outs import OptOuts
from node.runtime.settings import Settings
from node.runtime.threads import aside
from node.store.nodes import KnownNode

_FAMILIES = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}

STRANGERS_MBPS_MAX = 1
"""Maximum rate to a host that has not agreed to take part, for tasks of other nodes, in Mb/s."""
_RATE = "mbps"

Way = tuple[Asker, Role]
_FOREIGN_TARGET: Way = (Asker.NODE, Role.TARGET)
_MOVED: Way = (Asker.NODE, Role.PEER)
_INTRODUCED: Way = (Asker.PUBLISHER, Role.PEER)
_OF_USERS = "tasks of users with the role run"

LOOK_UPS_MAX = 64
"""Maximum number of look-ups under way; each that does not end keeps a thread for half a minute."""


class NamedTargetCounter(Protocol):
    """Counts runs to targets whose address was not known when the runs were booked."""

    @property
    def counts_named_targets(self) -> bool:
        """Return whether anything is counted."""
        ...

    def excepted_networks(self, rule: str | None) -> tuple[Network, ...]:
        """Return the networks that a rule of this name lets users measure."""
        ...

    async def count_named_targets(
        self, addresses: Sequence[str], span: Span, amounts: RunAmounts, mbps: int
    ) -> Reason | None:
        """Count a run to these addresses, and return None; or return why it is refused."""
        ...


class Introduced(Protocol):
    """A task with its participants, as its lead introduces it to the one at ``participant``."""

    @property
    def participants(self) -> Sequence[Participant]:
        """All participants, in their order."""
        ...

    @property
    def participant(self) -> int | None:
        """The place of this node."""
        ...

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses of the hosts that the spec names."""
        ...


class ForeignTargets:
    """The targets of tasks that other nodes lead."""

    def __init__(
        self,
        settings: Settings,
        known: Callable[[], Sequence[KnownNode]],
        contexts: Callable[[], Mapping[str, str]],
        counter: Callable[[], NamedTargetCounter],
        opt_outs: OptOuts | None = None,
    ) -> None:
        """``known()`` returns all known nodes, ``contexts()`` the contexts with their addresses.

        While the known nodes are the same, so is the object that ``known()`` returns. ``counter()``
        counts runs to targets that are names.
        """
        self._counter = counter
        self._settings = settings
        self._known = known
        self._contexts = contexts
        self.opt_outs = opt_outs
        """The objections of targets, whoever wants to measure them; None where nobody is asked."""
        self._look_ups = 0
        self._places_read: KnownPlaces | None = None

    def refusal(
        self, lead: str, test: Test, spec: Any, tools: Sequence[Tool], introduced: Introduced
    ) -> Reason | None:
        """Return why an introduced task is refused, as far as its addresses are known; or None.

        ``tools`` are those with which it may be measured.
        """
        addresses, place = introduced.addresses, introduced.participant
        parties = {at: each for at, each in enumerate(introduced.participants) if at != place}
        mere = [addresses.get(host, host) for host in mere_targets(test, spec)]
        if (
            refusal := self._excess_refusal(lead, test, spec, mere, list(parties.values()))
        ) is not None:
            return refusal
        rules, port = self._rules(None), _port(test, spec)
        rules_of_spec = replace(rules, content=reported_content(test, spec))
        strangers = self.strangers(introduced.participants)
        refusals = (_refusal(_FOREIGN_TARGET, host, rules_of_spec, port) for host in mere)
        refusals_of_parties = (
            _refusal(_way(at, strangers), each.address, rules) for at, each in parties.items()
        )
        refused = next(filter(None, (*refusals, *refusals_of_parties)), None)
        return refused or self._port_refusal(test, spec, tools, introduced)

    def _port_refusal(
        self, test: Test, spec: Any, tools: Sequence[Tool], introduced: Introduced
    ) -> Reason | None:
        """Return why no port is known at which something may be sent, with any of these tools."""
        own, participants = introduced.participant or 0, introduced.participants
        refusals = []
        for tool in tools:
            places = listening_places(tool, spec, len(participants))
            receiving = receiving_places(test, tool, spec, len(participants), own)
            unknown = [participants[at] for at in sorted(receiving & self.strangers(participants))]
            stated = stated_port(spec)
            if unknown:
                refusals.append(participant_unknown_here(unknown[0].name, unknown[0].node))
            elif own in places and stated is not None and stated not in self._settings.tool_ports:
                every = self._settings.tool_ports
                refusals.append(stated_port_not_of_tools(stated, every.start, every.stop - 1))
            else:
                return None
        return next(iter(refusals), None)

    def strangers(self, participants: Sequence[Participant]) -> frozenset[int]:
        """Return the places of the participants that are not known here."""
        cards = self._places.cards
        return frozenset(at for at, each in enumerate(participants) if each.node not in cards)

    def hosts_to_ask(
        self,
        test: Test,
        spec: Any,
        addresses: Mapping[str, str],
        participants: Sequence[Participant],
    ) -> list[str]:
        """Return the hosts that may object to being measured, as named and by their addresses.

        They take no part, or a lead says that they do and nobody knows them here.
        """
        strangers = self.strangers(participants)
        invented = [participants[at].address for at in sorted(strangers)]
        return [*targets_of(test, spec, addresses), *invented]

    @property
    def not_asked(self) -> tuple[Network, ...] | None:
        """The networks that are not asked by DNS whether they object; None if nobody is asked."""
        return None if self.opt_outs is None else tuple(self.opt_outs.allowed())

    def node_has(self, node: str, feature: Feature) -> bool:
        """Return whether a node that is known here has a feature, by its card."""
        card = self._places.cards.get(node)
        return card is not None and has_feature(card.attributes, feature)

    def port_refusal(
        self, participant: Participant, told: range, *, by_itself: bool
    ) -> Reason | None:
        """Return why nothing is sent to the ports of a participant; None if it is.

        ``by_itself``: it has told them itself.
        """
        card, at_home = self._places.cards.get(participant.node), False
        if card is not None and by_itself:
            at_home = _is_at_home(card, current_address(participant, card) or participant.address)
        every = self._settings.tool_ports
        return ports.foreign_port_refusal(participant.name, told, every, at_home=at_home)

    def probe_refusal(self, card: KnownNode, port: int) -> Reason | None:
        """Return why no check sends anything to the port that a node has told; None if one does.

        The owner's word is good for its address only: the node has written its card, and the port.
        """
        at_home, every = _is_at_home(card, card.address), self._settings.tool_ports
        return ports.foreign_port_refusal(card.name, range(port, port + 1), every, at_home=at_home)

    def _excess_refusal(
        self,
        lead: str,
        test: Test,
        spec: Any,
        mere: Sequence[str],
        others: Sequence[Participant],
    ) -> Reason | None:
        """Return why a task sends too much to hosts that have not agreed to it; or None.

        The lead has agreed, and known participants are asked before each run (``agreement.py``). A
        participant that is not known here may be an invention of the lead, so it counts only if it
        has to answer before much is sent.
        """
        if not _is_much(test, spec):
            return None
        rate = test.needs(spec)[_RATE]
        cards = self._places.cards
        agreed = (
            {normalised_word(word) for word in words_of(cards[lead])} if lead in cards else set()
        )
        strangers = [host for host in mere if normalised_word(host) not in agreed]
        if isinstance(test, Unprompted) and test.unprompted:
            strangers += [each.address for each in others if each.node not in cards]
        if not strangers:
            return None
        return too_much_for_stranger(test.name, rate, strangers[0], STRANGERS_MBPS_MAX)

    @staticmethod
    def exceeds(test: Test, spec: Any) -> bool:
        """Return whether a test sends more than strangers get, and before anybody answers."""
        return isinstance(test, Unprompted) and test.unprompted and _is_much(test, spec)

    def find_misaddressed(self, participants: Sequence[Participant]) -> tuple[str, Reason] | None:
        """Return the first participant whose address is not that of its card, and why; or None.

        Participants that are not known here are as the lead says; their addresses are targets.
        """
        cards = self._places.cards
        for each in participants:
            card = cards.get(each.node)
            fault = card and address_fault(each, card)
            if fault:
                return each.node, fault
        return None

    def with_card_addresses(self, participants: Sequence[Participant]) -> tuple[Participant, ...]:
        """Return the participants with the addresses of their cards as they are now.

        :raises HostError: one measures in a context that its card does not offer any more.
        """
        cards = self._places.cards
        return tuple(_at_card_address(each, cards.get(each.node)) for each in participants)

    def relocated(self, participants: Sequence[Participant]) -> tuple[Participant, ...]:
        """Return the participants at the addresses of today, to tell them to others.

        Whoever measures in a context that its card does not offer any more keeps its address: it
        says itself that it does not.
        """
        cards = self._places.cards
        return tuple(_located(each, cards.get(each.node)) for each in participants)

    @property
    def _places(self) -> KnownPlaces:
        """The places of all known nodes, read when the directory has changed."""
        known = self._known()
        if self._places_read is None or self._places_read.known is not known:
            self._places_read = KnownPlaces.of(known)
        return self._places_read

    def node_refusal(self, host: str, addresses: Sequence[str]) -> Reason | None:
        """Return why a check that another node asks for is not made with a node at these addresses.

        ``host`` is what they were looked up from. None if it is made.
        """
        return _refusal((Asker.NODE, Role.PARTICIPANT), host, self._rules(None), None, addresses)

    def moved_refusal(self, url: str) -> Reason | None:
        """Return why another node that says it has moved is not asked at this URL; None if it is.

        Its key is asked for over TLS, but a connection alone may tell something. A name is judged
        once :meth:`session_to_moved` looks it up.
        """
        return ways_out.url_refusal(*_MOVED, url, self._rules_of_moves())

    def session_to_moved(self) -> aiohttp.ClientSession:
        """Return the session by which a node is asked that says it has moved."""
        return judging_session(*_MOVED, self._rules_of_moves())

    def introduced_refusal(self, url: str) -> Reason | None:
        """Return why a node of a directory is not asked at this URL; None as :meth:`moved_refusal`.

        Who has made the directory has chosen the URL, and not the owner who introduces it.
        """
        return ways_out.url_refusal(*_INTRODUCED, url, self._rules_of_moves())

    def session_to_introduced(self) -> aiohttp.ClientSession:
        """Return the session by which a node of a directory is asked."""
        return judging_session(*_INTRODUCED, self._rules_of_moves())

    def _rules_of_moves(self) -> TargetRules:
        """Return the rules; where all nodes are on loopback, as in a lab, one may move there."""
        rules = self._rules(None)
        if self._is_in_a_lab():
            rules = replace(rules, allowed=(*rules.allowed, *targets.LOOPBACK))
        return rules

    async def checked_part(
        self,
        test: Test,
        tool: Tool,
        context: PartContext,
        strangers: Container[int],
        patience_s: float,
    ) -> PartContext:
        """Return the part with checked addresses instead of names, and with the rules.

        A tool that checks targets itself keeps names; looking them up is part of what it measures.
        ``strangers`` are the places of the participants that are not known here.

        :raises HostError: a target is refused, or has no address.
        """
        rules = self._rules(_namespace(context))
        checked = await self._with_targets(Asker.NODE, test, tool, context, rules, patience_s)
        await self._count_named(test, context, checked.addresses, patience_s)
        parties = list(context.parties)
        for place, party in enumerate(parties):
            if place != context.participant:
                way = _way(place, strangers)
                address = await self._address(way, party.address, None, context, rules, patience_s)
                parties[place] = replace(party, address=address)
        return replace(checked, parties=tuple(parties))

    async def checked_part_of_user(
        self, test: Test, tool: Tool, context: PartContext, rule: str | None, patience_s: float
    ) -> PartContext:
        """Return the part of a user's own task like :meth:`checked_part`; ``rule`` admits the task.

        Its participants are nodes that are known here.

        :raises HostError: a target is refused, or has no address.
        """
        rules = self._rules_of_user(_namespace(context), rule)
        return await self._with_targets(Asker.USER, test, tool, context, rules, patience_s)

    async def probed_address(self, host: str, patience_s: float) -> str:
        """Return the address of a host to which a user has single packets sent.

        This host itself may be asked about.

        :raises HostError: it is refused, or has no address.
        """
        rules, address = self._rules_of_user(None, None), literal(host)
        found = [address] if address else await self._look_up(host, None, None, patience_s)
        if not all(ipaddress.ip_address(each) in rules.own for each in found):
            refusal = _refusal((Asker.USER, Role.TARGET), host, rules, None, found)
            if refusal is None and self.opt_outs is not None:
                refusal = await self.opt_outs.refusal([host], patience_s)
            if refusal is not None:
                raise HostError(refusal)
        return found[0]

    def refusal_of_user(
        self,
        test: Test,
        spec: Any,
        tools: Sequence[str],
        addresses: Mapping[str, str],
        rule: str | None,
    ) -> Reason | None:
        """Return why a user's task is refused, as far as its addresses are known; or None.

        ``tools`` are those that the user asks for, ``rule`` admits the task.
        """
        mere = [addresses.get(host, host) for host in mere_targets(test, spec)]
        if not mere:
            return None
        asked = [each for each in registry.tools_for(test.name) if each.name in tools]
        if asked and None not in (reasons := [unchecked_tool(each, spec) for each in asked]):
            return reasons[0]
        rules = replace(self._rules_of_user(None, rule), content=reported_content(test, spec))
        port = _port(test, spec)
        refusals = (_refusal((Asker.USER, Role.TARGET), host, rules, port) for host in mere)
        return next(filter(None, refusals), None)

    def _rules_of_user(self, namespace: str | None, rule: str | None) -> TargetRules:
        rules, excepted = self._rules(namespace), self._counter().excepted_networks(rule)
        return replace(rules, allowed=(*rules.allowed, *excepted), whose=_OF_USERS)

    async def _with_targets(
        self,
        asker: Asker,
        test: Test,
        tool: Tool,
        context: PartContext,
        rules_of_host: TargetRules,
        patience_s: float,
    ) -> PartContext:
        """Return the part with checked addresses of its mere targets, and with the rules."""
        if (reason := unchecked_tool(tool, context.spec)) is not None:
            raise HostError(reason)
        rules = replace(rules_of_host, content=reported_content(test, context.spec))
        itself = isinstance(tool, TargetChecking) and tool.checks_targets
        addresses = dict(context.addresses)
        for host in mere_targets(test, context.spec):
            at = addresses.get(host, host)
            if itself and literal(at) is None:
                continue
            port = _port(test, context.spec)
            way = (asker, Role.TARGET)
            addresses[host] = await self._address(way, at, port, context, rules, patience_s)
        return replace(context, addresses=addresses, rules=rules)

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
        if not named or not counter.counts_named_targets:
            return
        found: list[str] = []
        for host in named:
            at = addresses.get(host, host)
            address = literal(at)
            found += (
                [address] if address else await self._addresses_of_name(at, context, patience_s)
            )
        moved = test.expected_bytes(context.spec, None) or 0
        amounts = RunAmounts(context.ends - context.starts, moved)
        span, mbps = (context.starts, context.ends), test.needs(context.spec).get(_RATE) or 0
        if (refusal := await counter.count_named_targets(found, span, amounts, mbps)) is not None:
            raise HostError(refusal)

    async def _address(
        self,
        way: Way,
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
        found = [address] if address else await self._addresses_of_name(host, context, patience_s)
        if (refusal := _refusal(way, host, rules, port, found)) is not None:
            raise HostError(refusal)
        return found[0]

    async def _addresses_of_name(
        self, host: str, context: PartContext, patience_s: float
    ) -> list[str]:
        """Return the addresses of a name, looked up from where the part measures.

        :raises HostError: there is none, or it was not found in time.
        """
        return await self._look_up(host, _namespace(context), _version(context), patience_s)

    async def _look_up(
        self, host: str, namespace: str | None, version: int | None, patience_s: float
    ) -> list[str]:
        if self._look_ups >= LOOK_UPS_MAX:
            raise HostError(too_many_look_ups(host, LOOK_UPS_MAX))
        resolve = partial(_resolve, host, _FAMILIES[version])
        look_up = partial(host_sampling.in_namespace, namespace, resolve)
        answer = asyncio.ensure_future(aside(look_up, f"look up {host}"))
        self._look_ups += 1
        answer.add_done_callback(self._end_look_up)
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise HostError(no_address_in_time(host, patience_s)) from None
        except OSError as fault:
            raise HostError(no_address_found(fault.strerror or str(fault)).at(host)) from fault

    def _end_look_up(self, answer: asyncio.Future[list[str]]) -> None:
        self._look_ups -= 1
        answer.exception()  # it was reported, or nobody waits for it any more

    def _rules(self, namespace: str | None) -> TargetRules:
        settings = self._settings
        own, places = frozenset(self._own_addresses(namespace)), self._places
        # Where all nodes are on one host, the others are measured there, and nothing else is.
        on_host = places.on_host(own) if self._is_in_a_lab() else ()
        return TargetRules(
            own=own,
            own_port=settings.listen_port,
            api=targets.api_networks(settings.listen_host),
            allowed=(*settings.allowed_targets, *on_host),
            private=places.networks,
            tool_ports=settings.tool_ports,
            known_apis=places.apis,
        )

    def _own_addresses(self, namespace: str | None) -> Iterator[IpAddress]:
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

    def _is_in_a_lab(self) -> bool:
        """Return whether this node measures from loopback and reaches all that it knows there."""
        return is_at_loopback(self._settings.measurement_address) and self._places.on_loopback


def _refusal(
    way: Way,
    host: str,
    rules: TargetRules,
    port: int | None = None,
    addresses: Sequence[str] | None = None,
) -> Reason | None:
    asker, role = way
    return ways_out.refusal(asker, role, host, rules, port=port, addresses=addresses)


def _way(place: int, strangers: Container[int]) -> Way:
    """Return the way to a participant: one that is not known here is a mere target."""
    return _FOREIGN_TARGET if place in strangers else (Asker.NODE, Role.PARTICIPANT)


def _namespace(context: PartContext) -> str | None:
    return None if context.context is None else context.context.namespace


def _is_much(test: Test, spec: Any) -> bool:
    """Return whether a test sends more than a host gets that has not agreed to it."""
    rate = test.needs(spec).get(_RATE, 0)
    return rate is None or rate > STRANGERS_MBPS_MAX


def _is_at_home(card: KnownNode, address: str) -> bool:
    """Return whether a node's API answers at an address of its card."""
    host = host_of(card.url)
    return host is not None and normalised_word(host) == normalised_word(address)


def _at_card_address(participant: Participant, card: KnownNode | None) -> Participant:
    """Return a participant at the address of its card as it is now.

    :raises HostError: it measures in a context that its card does not offer any more.
    """
    lacks = card is not None and not card.is_self and current_address(participant, card) is None
    if card is not None and lacks:
        raise HostError(context_not_offered(card.name, participant.context or ""))
    return _located(participant, card)


def _located(participant: Participant, card: KnownNode | None) -> Participant:
    """Return a participant at the address of its card, or as it is if that has none."""
    address = None if card is None else current_address(participant, card)
    return participant.model_copy(update={"address": address or participant.address})


def targets_of(test: Test, spec: Any, addresses: Mapping[str, str]) -> list[str]:
    """Return the hosts that take no part, as they are named and by their addresses if known."""
    mere = mere_targets(test, spec)
    return [*mere, *(addresses[host] for host in mere if host in addresses)]


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


def reported_content(test: Test, spec: Any) -> str | None:
    """Return what results tell of what is answered, by the field that says so; or None."""
    return test.telling(spec) if isinstance(test, Targeting) else None


def _version(context: PartContext) -> int | None:
    """Return the IP version of the spec, or else that of the address to measure from."""
    version: int | None = getattr(context.spec, "ip_version", None)
    own = literal(context.context.name) if context.context and context.context.bound else None
    return version if version or own is None else ipaddress.ip_address(own).version


def _resolve(host: str, family: int) -> list[str]:
    entries = socket.getaddrinfo(host, None, family, socket.SOCK_DGRAM)
    return [str(entry[4][0]) for entry in entries]


def address_fault(participant: Participant, card: Described) -> Reason | None:
    """Return why an introduced address is not the participant's; None if its card has it."""
    contexts = offered_contexts(card.attributes).values()
    if normalised_word(participant.address) in map(normalised_word, (card.address, *contexts)):
        return None
    known = list(dict.fromkeys((card.address, *contexts)))
    return address_not_of_card(participant.address, card.name, known)


def current_address(participant: Participant, card: Described) -> str | None:
    """Return the address that a participant has by its card as it is now.

    None if it measures in a context that its card does not offer any more.
    """
    if participant.context is None:
        return card.address
    return offered_contexts(card.attributes).get(participant.context)
