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

TOOL = "tool:"
"""Prefix of those that say whether a tool is installed."""


class Feature(StrEnum):
    """A feature that version 0.1 of the program did not have."""

    INTRODUCTIONS = "introductions"
    """Several introductions in one message."""
    ANNOUNCEMENTS = "announcements"
    """It follows a node that was restored on another host."""

    PROCESSES = "processes"
    """It tells a node whether another process with the same key asks it, too."""
    LEAVING_OUT = "leaving-out"
    """Questions that leave out the runs of a task, as if it was edited."""

    TOLD_PORTS = "told-ports"
    """Asked by another participant for a run, it tells the ports of its own hold."""

    BOUND_ANSWERS = "bound-answers"
    """It signs an answer as the one to a request of this method, path and query, if asked to."""

    CHECKS = "checks"
    """Checks of the way to another node: facts of the host, probes of ports, and the other view."""

    SUCCESSIONS = "successions"
    """It follows a node whose key was replaced, and hears which keys are revoked."""

    EPOCHS = "epochs"
    """It hears, as a lead, which epoch of a task a participant knows that refuses an older one."""

    QUOTAS = "quotas"
    """Asked for time, it tells its quotas, also for a task that was not introduced yet."""

    FURTHER_ATTEMPTS = "further-attempts"
    """It books a slot again whose run came to nothing, if its lead says so."""

    FAILED_RESULTS = "failed-results"
    """It takes, as a lead, what a part had measured before it failed."""

    RESOURCES = "resources"
    """It may keep counted resources of the fleet."""

    SHARED_CAMPAIGNS = "shared-campaigns"
    """It tells, as a lead, what campaigns that it shares have used."""


def has_feature(attributes: Mapping[str, Any], feature: Feature) -> bool:
    """Return whether a node with these attributes has a feature."""
    return attributes.get(f"{ATTRIBUTE}{feature}") is True
