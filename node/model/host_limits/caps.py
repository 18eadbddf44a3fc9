"""Caps of the owner's limits: what one target gets from this host, whoever asks. Pure.

A cap counts the runs of all other nodes together, by the network in which a target lies. Targets
are the hosts of a spec that take no part. An IPv6 address that leads to an IPv4 address counts as
that one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from node.model.host_limits.quotas import PeriodQuota
from node.model.targets import Network, literal, reached

CapAccount = tuple[str, str]
"""The name of a cap, and the network of a target, for which is counted."""


@dataclass(frozen=True)
class Cap:
    """A cap; ``networks`` are those to which it applies, None all.

    Addresses of one network of this length, ``v4`` or ``v6``, count together.
    """

    name: str
    quotas: tuple[PeriodQuota, ...]
    networks: tuple[Network, ...] | None = None
    v4: int = 32
    v6: int = 64

    def accounts(self, address: str) -> list[CapAccount]:
        """Return the accounts that count a run to this address; none if the cap does not apply."""
        outer, *inner = reached(address)
        counted = []
        for each in inner or [outer]:
            if self.networks is not None and not any(each in it for it in self.networks):
                continue
            length = self.v4 if each.version == 4 else self.v6  # noqa: PLR2004 - the version of IP
            network = ipaddress.ip_network((each, length), strict=False)
            counted.append((self.name, str(network)))
        return counted

    def in_words(self) -> str:
        """Describe: ``360 runs per hour to each /32 or /64``."""
        quotas = ", ".join(quota.in_words() for quota in self.quotas)
        return f"{quotas} to each /{self.v4} or /{self.v6}"


def accounts_of(caps: Iterable[Cap], addresses: Iterable[str]) -> tuple[CapAccount, ...]:
    """Return for what a run to these targets counts, in order; names are left out."""
    known = [address for it in addresses if (address := literal(it)) is not None]
    return tuple(sorted({each for cap in caps for it in known for each in cap.accounts(it)}))
