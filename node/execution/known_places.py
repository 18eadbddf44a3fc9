"""The places of known nodes, as the rules for targets need them: read once for each directory.

A node may know a thousand others, and judges the targets of each task that is introduced to it and
of each run that begins: to read all cards for each would take a tenth of a second each time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from node.model.contexts import offered_contexts
from node.model.loopback import is_loopback
from node.model.naming import CARDS_READ, host_of
from node.model.targets import IpAddress, Network, literal
from node.model.ways_out import port_of
from node.store.nodes import KnownNode


@dataclass(frozen=True, eq=False)
class KnownPlaces:
    """The places of nodes by their cards, which are those in ``known``.

    ``cards`` are by identity. ``networks`` have one address each: those of all nodes; ``others``
    are the addresses of all but this one. ``apis`` are the addresses and ports of APIs whose URLs
    have addresses. ``on_loopback``: this node reaches all others there.
    """

    known: Sequence[KnownNode]
    cards: Mapping[str, KnownNode]
    networks: tuple[Network, ...]
    others: frozenset[IpAddress]
    apis: frozenset[tuple[IpAddress, int]]
    on_loopback: bool

    @classmethod
    def of(cls, known: Sequence[KnownNode]) -> KnownPlaces:
        """Read the cards of all known nodes, this one among them."""
        read = [(_networks(words_of(card)), _api(card.url), card) for card in known]
        return cls(
            known=known,
            cards={card.identity: card for card in known},
            networks=tuple({network for networks, _, _ in read for network in networks}),
            others=frozenset(
                network.network_address
                for card in known
                if not card.is_self
                for network in _networks(addresses_of(card))
            ),
            apis=frozenset(api.place for _, api, _ in read if api.place is not None),
            on_loopback=all(
                api.on_loopback
                for _, api, card in read
                if card.url is not None and not card.is_self
            ),
        )

    def on_host(self, own: frozenset[IpAddress]) -> Iterator[Network]:
        """Yield the addresses of other nodes that are on loopback, or among those of this host."""
        for address in self.others & own | self._others_on_loopback:
            yield ipaddress.ip_network(address)

    @cached_property
    def _others_on_loopback(self) -> frozenset[IpAddress]:
        return frozenset(each for each in self.others if is_loopback(str(each)))


def words_of(card: KnownNode) -> tuple[str, ...]:
    """Return what a card says that stands for its node as a target: its name and addresses."""
    return (card.name, *addresses_of(card))


def addresses_of(card: KnownNode) -> tuple[str, ...]:
    """Return the address of a card, and those of its contexts; one may be a name."""
    return (card.address, *offered_contexts(card.attributes).values())


def is_at_loopback(host: str) -> bool:
    """Return whether a host is written as an address on loopback."""
    return is_loopback(literal(host) or "")


class _Api(NamedTuple):
    """The address and the port of a node's API, if its URL has them, and whether on loopback."""

    place: tuple[IpAddress, int] | None
    on_loopback: bool


@lru_cache(maxsize=CARDS_READ)
def _api(url: str | None) -> _Api:
    host = host_of(url or "") or ""
    address, port = literal(host), port_of(url or "")
    place = None
    if address is not None and port is not None:
        place = ipaddress.ip_address(address), port
    return _Api(place, is_at_loopback(host))


@lru_cache(maxsize=CARDS_READ)
def _networks(words: Sequence[str]) -> tuple[Network, ...]:
    """Return those of these words that are addresses."""
    return tuple(ipaddress.ip_network(each) for word in words if (each := literal(word)))
