"""Callers of the façade, known by the address from which they ask, and what each may do. Pure.

An address is a weak identity: anybody on the same host has it, and so has everybody behind one NAT.
So these callers are a class of their own. They have no role, see and change what was posted through
the façade only, and are users like others for the limits of this host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from node.model.loopback import is_loopback
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

    ``here`` says that it is on this host. Whoever may write may read, too.
    """

    address: str
    here: bool
    may_write: bool
    may_read: bool

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
    """The networks from which the owner lets others write and read.

    ``write`` is None for this host alone.
    """

    write: tuple[Network, ...] | None
    read: tuple[Network, ...]

    def requester(self, remote: str, own: Collection[str]) -> Requester:
        """Return the caller with this address; ``own`` are addresses of this host."""
        address = plain(remote)
        here = is_loopback(address) or address in own
        may_write = here if self.write is None else _within(address, self.write)
        may_read = may_write or here or _within(address, self.read)
        return Requester(address, here, may_write, may_read)


def plain(remote: str) -> str:
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
