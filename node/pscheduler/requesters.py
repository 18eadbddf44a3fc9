"""Callers of the façade, known by the address from which they ask, and what each may do. Pure.

An address is a weak identity: anybody on the same host has it, and so has everybody behind one NAT.
So these callers are a class of their own, and get no more than a token with the role ``run`` does.
They see and change what they have posted, by their address or the key of the task, and are users
like others for the limits of this host. Only where the owner lets a network read, it sees the tasks
of all. This host itself is an address like any other: whatever runs on it has no token either.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from node.model.principals import OUTSIDE, STRANGER, Principal, PrincipalKind, Role
from node.model.targets import Network


class Need(StrEnum):
    """The right that a route needs."""

    NONE = "none"
    """Anybody may ask whether this is a node, and what it can measure."""
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Requester:
    """The caller of one request.

    ``may_write`` is whether it may post tasks and take care of its own, ``reads_all`` whether it
    sees those of all.
    """

    address: str
    may_write: bool
    reads_all: bool

    @property
    def may_read(self) -> bool:
        """Return whether there is anything that it may see."""
        return self.may_write or self.reads_all

    @property
    def sole_address(self) -> str | None:
        """The address whose tasks alone the caller sees; None if it sees those of all."""
        return None if self.reads_all else self.address

    @property
    def label(self) -> str:
        """The user as whose request a new task is kept."""
        return f"{OUTSIDE}{self.address}"

    @property
    def principal(self) -> Principal:
        """The caller as the audit and the limits see them: a user, or a stranger."""
        if not self.may_write:
            return STRANGER
        return Principal(PrincipalKind.TOKEN, self.label, Role.RUN)


@dataclass(frozen=True)
class Gate:
    """The networks from which the owner lets others write and read."""

    write: tuple[Network, ...]
    read: tuple[Network, ...]

    def requester(self, remote: str) -> Requester:
        """Return the caller with this address."""
        address = plain_address(remote)
        return Requester(address, _within(address, self.write), _within(address, self.read))


def plain_address(remote: str) -> str:
    """Return an address without its zone, and IPv4 inside IPv6 as IPv4."""
    text = remote.partition("%")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _within(text: str, networks: Collection[Network]) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in networks)
