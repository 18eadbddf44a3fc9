"""Time limits of tests, which a busy host must not reach."""

from __future__ import annotations

PATIENCE_S = 120.0
"""Maximum seconds to wait for something that must happen; nothing that happens takes as long."""

SHARED = 2
"""Factor between the processor time of work on a quiet host and beside other tests."""

BUSY = 5
"""Factor between the time that a test may take on an idle host and the timeout that ends it."""
