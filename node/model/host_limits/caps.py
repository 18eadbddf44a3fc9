"""Caps of the owner's limits: what one target gets from this host, or all nodes of a group. Pure.

A cap of targets counts the runs of all other nodes together, by the network in which a target lies.
Targets are the hosts of a spec that take no part. An IPv6 address that leads to an IPv4 address
counts as that one. A cap of groups (``who``) counts the runs of all nodes of these groups together,
so that somebody with many keys has no more than with one. The rate of a cap bounds the sum of the
rates at which runs move payload at one time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from node.model import times
from node.model.classes import SchedulingClass
from node.model.host_limits.quotas import PeriodQuota
from node.model.targets import Network, literal, reached_addresses

MEGABIT = 1_000_000

ALL = "all"
"""For whom a cap of groups counts, unless it counts for each node."""


class CapAccount(NamedTuple):
    """The name of a cap, and for what is counted: the network of a target, all nodes, or one.

    ``rate`` is that of each run (b/s), 0 if the cap has none.
    """

    name: str
    network: str
    rate: int = 0


@dataclass(frozen=True)
class Cap:
    """A cap; ``networks`` are those to which it applies, None all.

    Addresses of one network of this length, ``v4`` or ``v6``, count together. ``bps`` is the
    maximum rate of all runs at one time, None if it is not bounded.

    A cap of groups has their names in ``who``, and no networks. It is about runs of these
    ``classes`` (None: all), and counts for ``each`` node, or for all together; ``tasks_max`` are
    the open tasks that it allows.
    """

    name: str
    quotas: tuple[PeriodQuota, ...]
    networks: tuple[Network, ...] | None = None
    v4: int = 32
    v6: int = 64
    bps: int | None = None
    who: tuple[str, ...] = ()
    classes: frozenset[SchedulingClass] | None = None
    each: bool = False
    tasks_max: int | None = None

    def bounds(self, groups: AbstractSet[str], scheduling_class: SchedulingClass) -> bool:
        """Return whether it is a cap of one of these groups, for runs of this class."""
        if groups.isdisjoint(self.who):
            return False
        return self.classes is None or scheduling_class in self.classes

    def applies_to(self, host: str) -> bool:
        """Return whether it may apply to a target; names may have any address."""
        if self.who:
            return False
        address = literal(host)
        return self.networks is None or address is None or bool(self.accounts(address))

    def accounts(self, address: str, rate: int = 0) -> list[CapAccount]:
        """Return the accounts that count a run of this rate to this address.

        There are none if the cap does not apply.
        """
        outer, *inner = reached_addresses(address)
        counted = []
        for each in inner or [outer]:
            if self.networks is not None and not any(each in it for it in self.networks):
                continue
            length = self.v4 if each.version == 4 else self.v6  # noqa: PLR2004 - the version of IP
            network = ipaddress.ip_network((each, length), strict=False)
            counted.append(CapAccount(self.name, str(network), rate if self.bps else 0))
        return counted

    def in_words(self) -> str:
        """Describe: ``360 runs per hour, 1 Mb/s to each /32 or /64``."""
        parts = [quota.in_words() for quota in self.quotas]
        if self.bps is not None:
            parts.append(rate_text(self.bps))
        if self.who:
            if self.tasks_max is not None:
                parts.append(f"{self.tasks_max} open tasks")
            runs = "" if self.classes is None else f"{', '.join(sorted(self.classes))} runs of "
            nodes = "each node" if self.each else "all nodes together"
            return f"{', '.join(parts)} for {runs}{nodes} of {', '.join(self.who)}"
        return f"{', '.join(parts)} to each /{self.v4} or /{self.v6}"


def accounts_of(
    caps: Iterable[Cap], addresses: Iterable[str], rate: int = 0
) -> tuple[CapAccount, ...]:
    """Return for what a run of this rate to these targets counts, in order, without names."""
    known = [address for it in addresses if (address := literal(it)) is not None]
    of_targets = [cap for cap in caps if not cap.who]
    return tuple(
        sorted({each for cap in of_targets for it in known for each in cap.accounts(it, rate)})
    )


def group_accounts(
    caps: Iterable[Cap],
    groups: AbstractSet[str],
    lead: str,
    scheduling_class: SchedulingClass,
    rate: int,
) -> Iterator[CapAccount]:
    """Yield for which caps of groups a run of this rate counts, that a node of them leads."""
    for cap in caps:
        if cap.bounds(groups, scheduling_class):
            yield CapAccount(cap.name, lead if cap.each else ALL, rate if cap.bps else 0)


def run_rate(moved: int, duration: int, mbps: int) -> int:
    """Return the rate of a run (b/s) that moves so many bytes in a duration (µs).

    ``mbps`` is the rate that its test states, 0 if it states none.
    """
    return max(-(-8 * moved * times.SECOND // max(1, duration)), mbps * MEGABIT)


def rate_text(bps: int) -> str:
    """Return a rate for people: ``1.5 Mb/s``."""
    for unit, word in ((10**9, "Gb/s"), (10**6, "Mb/s"), (10**3, "kb/s")):
        if bps >= unit:
            return f"{round(bps / unit, 1):g} {word}"
    return f"{bps} b/s"
