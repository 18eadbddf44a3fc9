"""Describes errors to users, expected and unexpected ones."""

from __future__ import annotations

import structlog

from node.model.errors import ParleyError

log = structlog.get_logger()


def describe_failure(error: Exception, event: str, **about: str) -> str:
    """Return the reason why something failed; log an unexpected error as ``event``."""
    if isinstance(error, ParleyError):
        return error.detail
    log.error(event, exc_info=error, **about)
    return f"a fault of this program: {error!r}"[:500]
