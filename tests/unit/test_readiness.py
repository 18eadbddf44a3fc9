"""A node is ready if its lead lives, its tasks are planned, and its disk has room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.model.readiness import DUE_MAX, FREE_BYTES_MIN, LEAD_SILENT, Readiness
from node.model.times import MINUTE
from tests.support.clocks import START

SOUND = Readiness(START, START, 1, None, "/var/lib/parley", FREE_BYTES_MIN, None)
SILENT_AT = START - LEAD_SILENT - 1


@pytest.mark.parametrize(
    ("facts", "faults"),
    [
        (SOUND, []),
        (replace(SOUND, due_at=START - DUE_MAX), []),
        (
            replace(SOUND, due_at=START - 7 * MINUTE),
            ["the oldest due task has waited 7 min to be planned; see the log of the lead"],
        ),
        (
            replace(SOUND, leads=0, lead_seen_at=SILENT_AT),
            ["no lead plans the tasks of this node: none has reported since 2"],
        ),
        (replace(SOUND, leads=0, lead_seen_at=None), []),
        (
            replace(SOUND, leads=0, lead_seen_at=None, due_at=SILENT_AT),
            ["no lead plans the tasks of this node: none has ever reported here, and tasks wait"],
        ),
        (
            replace(SOUND, free_bytes=FREE_BYTES_MIN // 2),
            ["only 16 MiB are free in /var/lib/parley; make room there"],
        ),
        (
            replace(SOUND, refused_write="could not extend file"),
            ["the database has no room: could not extend file; make room on its disk"],
        ),
    ],
)
def test_each_fault_is_told(facts: Readiness, faults: list[str]) -> None:
    """Each fault has a sentence that says what to do; a node that only takes part has none."""
    assert len(facts.faults) == len(faults)
    for fault, beginning in zip(facts.faults, faults, strict=True):
        assert fault.startswith(beginning)
