"""The number of requests that each user may send in a minute."""

from __future__ import annotations

import math
from dataclasses import dataclass

from node.core import Core
from node.model.principals import Principal, PrincipalKind, Role
from node.model.rates import RateLimit
from node.model.times import MINUTE, SECOND


@dataclass(frozen=True)
class Allowance:
    """The requests that a user has left: ``most`` in a minute, ``left`` now.

    ``wait_s`` is the number of seconds until there is another one; 0 if this one was in order.
    """

    most: int
    left: int
    wait_s: int


class RequestRates:
    """Counts the requests of users, except owners, programs on this host, and other nodes."""

    def __init__(self, core: Core) -> None:
        """Count nothing yet."""
        self._clock = core.clock
        self._most = core.settings.requests_per_minute
        self._limit = RateLimit(MINUTE // self._most, self._most)

    def spend(self, principal: Principal) -> Allowance | None:
        """Count a request, unless there is none left; None for those who have no limit."""
        if principal.kind is not PrincipalKind.TOKEN or principal.role is Role.OWN:
            return None
        now = self._clock.monotonic()
        wait = self._limit.wait(principal.name, now)
        left = 0 if wait else self._limit.left(principal.name, now)
        return Allowance(self._most, left, math.ceil(wait / SECOND))
