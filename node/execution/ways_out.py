"""The look-ups behind :mod:`node.model.ways_out`: a session of HTTP that keeps to the rules.

aiohttp asks a resolver for the addresses of each name that it connects to, at each redirect anew;
:class:`JudgingResolver` judges them all. What is connected to is judged once more where its socket
is made: for a host that aiohttp reads as an address, whatever digits it has, no resolver is asked.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from node.execution import netlink
from node.model.targets import Network, TargetRules, api_networks
from node.model.ways_out import Asker, Role, refusal

_Place = tuple[int, int, int, str, tuple[Any, ...]]


def rules_of_this_host(
    own_port: int = 0, allowed: Iterable[Network] = (), private: Iterable[Network] = ()
) -> TargetRules:
    """Return the rules of a host without a node's settings, as for a command.

    ``own_port`` is that of the node's API, ``allowed`` what the owner excepts, and ``private`` the
    private addresses of known nodes.
    """
    own = frozenset(netlink.addresses())
    return TargetRules(own, own_port, api_networks("::"), tuple(allowed), None, tuple(private))


def judging_session(asker: Asker, role: Role, rules: TargetRules) -> aiohttp.ClientSession:
    """Return a session that connects to those names alone whose addresses are good for the word."""
    connector = judging_connector(asker, role, rules)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False)


def judging_connector(
    asker: Asker, role: Role, rules: TargetRules, *, verify: bool = True
) -> aiohttp.TCPConnector:
    """Return a connector that connects to those addresses alone that are good for the word.

    ``verify``: certificates must be trusted.
    """

    def endpoint(place: _Place) -> socket.socket:
        family, kind, protocol, _, (address, port, *_) = place
        why = refusal(asker, role, address, rules, port=port)
        if why is not None:
            raise OSError(None, why)
        return socket.socket(family, kind, protocol)

    resolver = JudgingResolver(asker, role, rules)
    return aiohttp.TCPConnector(ssl=verify, resolver=resolver, socket_factory=endpoint)


class JudgingResolver(AbstractResolver):
    """Looks names up for somebody's word in a role, and fails if that is not good for them."""

    def __init__(self, asker: Asker, role: Role, rules: TargetRules) -> None:
        """Judge what is found by the rules of this host."""
        self._asker, self._role, self._rules = asker, role, rules
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        :raises OSError: one of them is refused, or there is none.
        """
        found = await self._resolver.resolve(host, port, family)
        addresses = [each["host"] for each in found]
        why = refusal(
            self._asker, self._role, host, self._rules, port=port or None, addresses=addresses
        )
        if why is not None:
            raise OSError(None, why)
        return found

    async def close(self) -> None:
        """Do nothing: nothing is open."""
        await self._resolver.close()
