"""How long tests wait for what must happen."""

from __future__ import annotations

PATIENCE_S = 120.0
"""Longer than anything takes on a busy host: only what never happens takes so long, in seconds."""

BUSY = 5
"""How many times as long as on an idle host a test may take."""
