"""Announcements: where a node is, said by itself and signed, so that others follow it. Pure.

A node that was restored on another host has the same key and another URL. It announces both, and
others follow. Two hosts may have one key, if the first one goes on after the second one was
restored: the announcements are ordered, first by the generation of the database, then among those
of one generation, so that an old host takes nothing back, and an old announcement says nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from node.model.wire.nodes import Url


@dataclass(frozen=True)
class Announcement:
    """The URL of a node (None in pull mode), and the instants (µs) that order what it announces.

    ``generation`` names the history of its database, which began at ``generation_at``.
    """

    generation: UUID
    generation_at: int
    announced_at: int
    url: Url | None

    @property
    def claims(self) -> Mapping[str, Any]:
        """The claims that the node signs, as JSON values."""
        return {
            "generation": str(self.generation),
            "generation_at": self.generation_at,
            "announced_at": self.announced_at,
            "url": self.url,
        }

    @property
    def order(self) -> tuple[int, str, int]:
        """The sort key of announcements of one node: the later one has the greater key."""
        return self.generation_at, str(self.generation), self.announced_at

    def is_by_another(self, other: Announcement) -> bool:
        """Return whether they come from different histories: from two hosts, or of a restore."""
        return self.generation != other.generation


def next_announcement(
    before: Announcement | None, generation: UUID, url: str | None, now: int
) -> Announcement:
    """Return what a node announces, whose last announcement, or that of its backup, was ``before``.

    It is later than that one, unless nothing has changed.
    """
    if before is None:
        return Announcement(generation, now, now, url)
    at = max(now, before.generation_at + 1, before.announced_at + 1)
    if before.generation != generation:
        return Announcement(generation, at, at, url)
    if before.url != url:
        return Announcement(generation, before.generation_at, at, url)
    return before


def announcement_of(claims: Mapping[str, Any]) -> Announcement | None:
    """Return the announcement with these claims; None if they are not those of one."""
    try:
        return _ADAPTER.validate_python(dict(claims))
    except ValidationError:
        return None


_ADAPTER: TypeAdapter[Announcement] = TypeAdapter(Announcement)
