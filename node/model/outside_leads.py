"""Leads that are no nodes of Parley: nodes of pScheduler, known by their addresses. Pure.

A node that leads is known by its key and signs what it asks for. A lead from outside has no key: it
is the address from which it posted a task, and proves nothing. Its identity has a form that no key
has, so that the two can never be taken for each other. Nothing is sent to such a lead, which asks
for everything itself: it takes no messages, its silence says nothing, and it is never asked.
"""

from __future__ import annotations

import ipaddress

_SCHEME = "pscheduler:"
_IN_WORDS = "pScheduler at "


def outside_identity(address: str) -> str:
    """Return the identity of the lead at an address."""
    return f"{_SCHEME}{address}"


def is_outside(identity: str) -> bool:
    """Return whether a lead with this identity is no node of Parley."""
    return outside_address(identity) is not None


def outside_address(identity: str) -> str | None:
    """Return the address of a lead from outside; None for a node of Parley."""
    scheme, separator, address = identity.partition(":")
    if f"{scheme}{separator}" != _SCHEME:
        return None
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return None
    return address


def lead_in_words(identity: str) -> str:
    """Return ``pScheduler at 192.0.2.7`` for a lead from outside; any other one as it is."""
    address = outside_address(identity)
    return identity if address is None else f"{_IN_WORDS}{address}"


def is_told_as_outside(name: str) -> bool:
    """Return whether the name of a lead, as people are told it, is that of one from outside."""
    return name.startswith(_IN_WORDS)
