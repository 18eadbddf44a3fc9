"""Trace context (W3C): whose trace a request belongs to, in the log and in what it asks others.

The header ``traceparent`` of a request is accepted, and its trace is passed on to other nodes.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

import structlog

HEADER = "traceparent"

_WRITTEN = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-"
    r"(?P<flags>[0-9a-f]{2})(?:-.*)?"
)


@dataclass(frozen=True)
class Trace:
    """The trace that a request belongs to, and its flags as they were sent."""

    id: str
    flags: str


_CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)


def trace_of(header: str | None) -> Trace | None:
    """Return the trace that a header ``traceparent`` names; None if it is not a valid one."""
    match = _WRITTEN.fullmatch(header or "")
    return None if match is None else Trace(match["trace"], match["flags"])


@contextlib.contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """Let what is logged and sent meanwhile belong to a trace; without one, to none."""
    token = _CURRENT.set(trace)
    bound = {} if trace is None else {"trace_id": trace.id}
    try:
        with structlog.contextvars.bound_contextvars(**bound):
            yield
    finally:
        _CURRENT.reset(token)


def headers() -> Mapping[str, str]:
    """Return the headers by which a request to another node continues the current trace."""
    trace = _CURRENT.get()
    if trace is None:
        return {}
    return {HEADER: f"00-{trace.id}-{secrets.token_hex(8)}-{trace.flags}"}
