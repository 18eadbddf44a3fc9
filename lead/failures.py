"""How an error is told to people, be it one that nobody foresaw."""

from __future__ import annotations

import structlog

from node.model.errors import ParleyError

log = structlog.get_logger()


def describe_failure(error: Exception, event: str, **about: str) -> str:
    """Why something broke off; what nobody foresaw is logged as ``event``, too."""
    if isinstance(error, ParleyError):
        return error.detail
    log.error(event, exc_info=error, **about)
    return f"a fault of this program: {error!r}"[:500]
