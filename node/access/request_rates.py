"""The number of requests that each user, and each address of strangers, may send in a minute.

Other nodes send requests that cost from a millisecond to fifty, so what they ask for counts by an
estimate of that: their routes have a cost, and long questions take longer. What they tell, and do
not ask, is always taken while it is short; what is long counts by its length, apart from questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from node.model.loopback import network_of
from node.model.principals import Principal, PrincipalKind, Role
from node.model.rates import RateLimit
from node.model.times import MILLISECOND, MINUTE, SECOND
from node.store.core import Core

STRANGERS_MOST = 600
"""Maximum number of requests without a token from one address, or one network of IPv6, in a minute:
most of them read a card or ask whether the node lives."""

WORK_UNIT = MILLISECOND
_WORK_BYTES = 4096
"""Bytes of a question that take about as long as a unit of work: 2,048 windows take 24 ms."""


MESSAGE_BYTES_FREE = 64_000
"""Length up to which what another node tells is not counted."""
_LONG_MESSAGES = 30_000
"""Work for the long messages of one node in a minute, all of which may come at once: 120 MB."""

_TOGETHER = 3, 2
"""The work for all nodes that no rule names together, by that for one: many keys of one owner leave
the users of this host something, and one key leaves the other nodes something."""


@dataclass(frozen=True)
class Allowance:
    """The requests that a user has left: ``most`` in a minute, ``left`` now.

    ``wait_s`` is the number of seconds until there is another one; 0 if this one was in order.
    """

    most: int
    left: int
    wait_s: int


class RequestRates:
    """Counts the requests of users, except owners and programs on this host, and of other nodes."""

    def __init__(self, core: Core, is_named: Callable[[str], bool]) -> None:
        """``is_named(identity)``: the limits of this host have a group that names this node."""
        self._is_named = is_named
        self._clock = core.clock
        self._most = core.settings.requests_per_minute
        self._limit = RateLimit(MINUTE // self._most, self._most)
        self._strangers = RateLimit(MINUTE // STRANGERS_MOST, STRANGERS_MOST)
        interval = WORK_UNIT * 100 // core.settings.peer_work
        self._peers = RateLimit(interval, MINUTE // interval)
        self._messages = RateLimit(MINUTE // _LONG_MESSAGES, _LONG_MESSAGES)
        together = interval * _TOGETHER[1] // _TOGETHER[0]
        self._unnamed = RateLimit(together, MINUTE // together)

    def spend_of_peer(self, identity: str, cost: int, length: int) -> int:
        """Count the work for a question of another node, by its key; or return the seconds to wait.

        ``cost`` is that of its route (ms), and ``length`` that of the question in bytes.
        """
        work, now = cost + length // _WORK_BYTES, self._clock.monotonic()
        wait = self._peers.wait(identity, now, work)
        if not wait and not self._is_named(identity):
            wait = self._unnamed.wait("", now, work)
        return math.ceil(wait / SECOND)

    def spend_for_message(self, identity: str, length: int) -> int:
        """Count a message of this length (bytes) from another node; or return the seconds to wait.

        One that is short is not counted.
        """
        if length <= MESSAGE_BYTES_FREE:
            return 0
        work, now = length // _WORK_BYTES, self._clock.monotonic()
        return math.ceil(self._messages.wait(identity, now, work) / SECOND)

    def spend_of_stranger(self, remote: str) -> Allowance | None:
        """Count a request that needs no token; None for this host, or a proxy on it."""
        network, local = network_of(remote)
        if local:
            return None
        now = self._clock.monotonic()
        wait = self._strangers.wait(network, now)
        left = 0 if wait else self._strangers.left(network, now)
        return Allowance(STRANGERS_MOST, left, math.ceil(wait / SECOND))

    def spend(self, principal: Principal) -> Allowance | None:
        """Count a request, unless there is none left; None for those who have no limit."""
        if principal.kind is not PrincipalKind.TOKEN or principal.role is Role.OWN:
            return None
        now = self._clock.monotonic()
        wait = self._limit.wait(principal.name, now)
        left = 0 if wait else self._limit.left(principal.name, now)
        return Allowance(self._most, left, math.ceil(wait / SECOND))
