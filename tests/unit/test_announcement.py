"""Announcements of a node are ordered: by the generation of its database, then among themselves."""

from __future__ import annotations

from uuid import UUID

import pytest

from node.model.announcement import Announcement, announcement_of, next_announcement

OLD, NEW = UUID(int=7), UUID(int=3)
HERE, THERE = "https://here.example:8642", "https://there.example:8642"


def test_what_has_not_changed_is_not_announced_anew() -> None:
    """A node that starts again says what it said."""
    first = next_announcement(None, OLD, HERE, 100)
    assert first == Announcement(OLD, 100, 100, HERE)
    assert next_announcement(first, OLD, HERE, 200) is first


def test_another_url_is_a_later_announcement_of_the_same_generation() -> None:
    """A node that moves with its database is later than before, and no other node."""
    first = next_announcement(None, OLD, HERE, 100)
    moved = next_announcement(first, OLD, THERE, 200)
    assert moved == Announcement(OLD, 100, 200, THERE)
    assert moved.order > first.order
    assert not moved.is_by_another(first)


@pytest.mark.parametrize("now", [200, 50])
def test_a_restored_node_is_later_than_its_backup_whatever_the_clock_says(now: int) -> None:
    """Even on a host whose clock is behind; and the old host does not win by moving later."""
    backup = next_announcement(None, OLD, HERE, 100)
    restored = next_announcement(backup, NEW, THERE, now)
    assert restored.order > backup.order
    assert restored.is_by_another(backup)
    late = next_announcement(backup, OLD, "https://third.example", 10_000)
    assert late.order < restored.order


@pytest.mark.parametrize(
    "changed",
    [{"generation": "x"}, {"url": "ftp://a"}, {"announced_at": "soon"}],
)
def test_claims_of_another_form_are_no_announcement(changed: dict[str, object]) -> None:
    """Claims are read back as they were signed; anything else is refused."""
    announcement = Announcement(OLD, 100, 100, None)
    assert announcement_of(announcement.claims) == announcement
    assert announcement_of({**announcement.claims, **changed}) is None
