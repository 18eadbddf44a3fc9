"""The states of an exchange at a participant, and of its negotiation at the lead.

The names are those of the SQL enums ``exchange_state`` and ``negotiation_state``.
"""

from __future__ import annotations

from enum import StrEnum


class ExchangeState(StrEnum):
    """The state of the runs that a participant booked together."""

    HELD = "held"
    COMMITTED = "committed"
    RELEASED = "released"


class NegotiationState(StrEnum):
    """The lead's decision on an exchange."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
