"""The circumstances of a part on a quiet host, as they are sent."""

from __future__ import annotations

from typing import Any


def told(**changes: Any) -> dict[str, Any]:
    """Return all circumstances; ``changes`` are of the processors."""
    clock = {"synchronised": True, "source": None, "error_bound_ms": 1, "identity": ""}
    return {
        "tool": "sleep",
        "tool_version": "9.1",
        "context": None,
        "observed_ms": 60_000.0,
        "clock": {**clock, "stepped_ms": 0},
        "processors": {"count": 2, "busy": 0.1, "own": 0, "waiting": None, **changes},
        "interface": None,
        "own_traffic": None,
        "neighbours": [],
        "neighbours_count": 0,
    }
