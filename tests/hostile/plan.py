"""The size of a round of hostile requests."""

from __future__ import annotations

from dataclasses import dataclass

FAMILIES = (
    "roles",
    "described",
    "peers",
    "signatures",
    "targets",
    "booking",
    "participants",
    "facade",
    "users",
    "secrets",
    "framing",
    "floods",
)
"""The kinds of hostile requests, in the order of the report."""


@dataclass(frozen=True)
class Plan:
    """The requests of a round, and the bounds that the nodes have to keep."""

    requests: int = 21_000
    seed: int = 0
    seconds: float = 170.0
    """Longest time in which requests are sent, in seconds."""
    rest_s: float = 30.0
    """Pause before the memory is measured, in seconds."""
    per_s: float = 160.0
    """Most requests in a second, on average; more would only show how busy the host is."""
    clients: int = 8
    """Number of requests under way at once, beside floods."""
    families: tuple[str, ...] = FAMILIES
    answer_s: float = 1.0
    """Longest time in which an honest user gets an answer, in seconds."""
    growth_max_mb: float = 60.0
    """Most by which a node's memory may have grown after the rest, in MB."""
    drawn: int = 8
    """Number of documents that are drawn from the description of each operation."""
    flood: float = 1.0
    """Size of floods, as a part of the full one."""
