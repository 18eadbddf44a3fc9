"""Obstacles in a trace, as ``parley explain`` shows them."""

from __future__ import annotations

from typing import Any

import pytest

from node.cli.explain import _obstacle_text
from node.model import times

START = times.parse_instant("2026-12-01T10:00:00Z")
SPAN = {"window": 0, "starts_at": START, "ends_at": START + times.HOUR}
WHEN = "2026-12-01 10:00:00Z to 11:00:00"


@pytest.mark.parametrize(
    ("obstacle", "says"),
    [
        ({"rule": "lab", "sentence": "limit 'lab': so"}, f"closed limit 'lab': so {WHEN}"),
        ({"campaign": "ops", "sentence": "ops would have 2"}, f"closed ops would have 2 {WHEN}"),
        ({"percent": 25.0, "later": 0}, f"closed kept for other leads {WHEN}"),
        (
            {"run": None, "scheduling_class": "exclusive"},
            f"busy   another node's run (exclusive) {WHEN}",
        ),
    ],
)
def test_each_obstacle_is_worded(obstacle: dict[str, Any], says: str) -> None:
    """Limits and shares are not shown as runs of another node."""
    assert _obstacle_text(SPAN | obstacle) == says
