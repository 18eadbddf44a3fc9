"""The kinds of nodes that a node knows, and the identities of those that have no key. Pure.

A node of Parley is who has its key. A host that runs pScheduler has none: it is known by the host
and port of its URL, so that its identity says where it is and proves nothing. The form is not that
of a lead from outside (``outside_leads.py``), which is known by the address from which it asks.
"""

from __future__ import annotations

import re
from enum import StrEnum

from node.model.urls import split_url

_PSCHEDULER = "pscheduler://"
_PSCHEDULER_URL = re.compile(
    r"https://((?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?)/pscheduler/?",
    re.ASCII | re.IGNORECASE,
)


GREETING = "This is a Parley"
"""The first words of a node to those who take it for a host that runs pScheduler."""


class NodeKind(StrEnum):
    """The program that a node runs."""

    PARLEY = "parley"
    PSCHEDULER = "pscheduler"


def kind_of(identity: str) -> NodeKind:
    """Return the kind of the node with this identity."""
    return NodeKind.PSCHEDULER if identity.startswith(_PSCHEDULER) else NodeKind.PARLEY


def pscheduler_identity(url: str) -> str | None:
    """Return the identity of a host by the URL of its pScheduler; None if the URL is none.

    >>> pscheduler_identity("https://PS.example.org/pscheduler")
    'pscheduler://ps.example.org'
    """
    match = _PSCHEDULER_URL.fullmatch(url)
    if match is None or split_url(url) is None:
        return None
    place = match[1].lower()
    return f"{_PSCHEDULER}{place.removesuffix(':443')}"


def place_of(identity: str) -> str:
    """Return the HOST[:PORT] of a host by its identity."""
    return identity.removeprefix(_PSCHEDULER)


def pscheduler_url(identity: str) -> str:
    """Return the URL of the pScheduler of a host; the inverse of :func:`pscheduler_identity`."""
    return f"https://{place_of(identity)}/pscheduler"
