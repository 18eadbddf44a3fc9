"""The nodes of ours that the addresses of a template are. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit


@dataclass(frozen=True)
class KnownNode:
    """A node that is known here; ``contexts`` are further places to measure from, by address."""

    name: str
    address: str
    url: str | None = None
    contexts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A node, and where on its host to measure; None is its own address."""

    node: str
    context: str | None = None


class NodeFinder:
    """Finds nodes by their names and addresses, as templates write them."""

    def __init__(
        self,
        nodes: Iterable[KnownNode],
        named: Mapping[str, str],
        known_ips: Mapping[str, Sequence[str]],
    ) -> None:
        """``named`` are nodes by address as somebody has said; ``known_ips`` are those of names."""
        self._ips = known_ips
        self._places: dict[str, Place] = {}
        every = list(nodes)
        for node in every:
            for host in (node.name, node.address, _host(node.url)):
                self._add(host, Place(node.name))
        for node in every:
            for context, address in node.contexts.items():
                self._add(address, Place(node.name, context))
        self._places |= {_normalised_host(host): Place(node) for host, node in named.items()}

    def _add(self, host: str, place: Place) -> None:
        for spelling in (host, *self._ips.get(_normalised_host(host), ())):
            if spelling:
                self._places.setdefault(_normalised_host(spelling), place)

    def find(self, host: str) -> Place | None:
        """Return the place that has this name or address, with or without a port."""
        plain = _normalised_host(host)
        for spelling in (plain, *self._ips.get(plain, ())):
            if (place := self._places.get(_normalised_host(spelling))) is not None:
                return place
        return None


@lru_cache(maxsize=10_000)
def _normalised_host(host: str) -> str:
    """Return a host without port and brackets, in small letters; addresses in their short form."""
    text = host.strip().lower()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.rstrip(".")


def _host(url: str | None) -> str:
    return "" if url is None else urlsplit(url).hostname or ""
