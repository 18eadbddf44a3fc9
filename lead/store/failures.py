"""Describes errors to users, expected and unexpected ones."""

from __future__ import annotations

import structlog

from lead.model.reasons import program_fault
from node.model.errors import ParleyError
from node.model.reason import Reason

log = structlog.get_logger()


def describe_failure(error: Exception, event: str, **about: str) -> Reason:
    """Return the reason why something failed; log an unexpected error as ``event``."""
    if isinstance(error, ParleyError):
        return error.reason
    log.error(event, exc_info=error, **about)
    return program_fault(repr(error))
