"""Features of newer versions of the program, so that nodes of two versions work together.

A node shows its features in its card. Another one that does not find a feature there does without
it: it asks in the older way, or says in words what the other node's version cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

ATTRIBUTE = "feature:"
"""Prefix of the attributes of a card that name features."""


class Feature(StrEnum):
    """One that version 0.1 did not have."""

    INTRODUCTIONS = "introductions"
    """Several introductions in one message."""
    ANNOUNCEMENTS = "announcements"
    """It follows a node that was restored on another host."""

    LEAVING_OUT = "leaving-out"
    """Questions that leave out the runs of a task, as if it was edited."""

    CHECKS = "checks"
    """Checks of the way to another node: facts of the host, probes of ports, and the other view."""


def has(attributes: Mapping[str, Any], feature: Feature) -> bool:
    """Return whether a node with these attributes has a feature."""
    return attributes.get(f"{ATTRIBUTE}{feature}") is True
