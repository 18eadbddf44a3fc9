"""Traces (W3C): what a request or a run belongs to, in the log, at other nodes, and as spans.

The header ``traceparent`` of a request is accepted; one without it begins a trace of its own. The
trace is bound to the log as ``trace_id``, and passed on to other nodes. A run has the trace that is
its id, on every node, so that what the nodes do for it at different times is one trace.

Spans are kept only where an exporter takes them (``PARLEY_TRACES_ENDPOINT``).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

import structlog

HEADER = "traceparent"
SAMPLED = "01"
SPANS_MAX = 4096
"""Maximum number of spans that wait for the exporter; the oldest are dropped."""

_SPAN_BYTES = 8
_WRITTEN = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?:-.*)?"
)


class SpanKind(IntEnum):
    """The kinds of spans, by their numbers in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(frozen=True)
class Trace:
    """The trace that something belongs to, its flags as they were sent, and the span above it."""

    id: str
    flags: str = SAMPLED
    span: str = ""


@dataclass(frozen=True)
class Span:
    """Something that was done, from when to when (µs); ``fault`` is why it failed."""

    trace: str
    id: str
    parent: str
    name: str
    kind: SpanKind
    began: int
    ended: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None


class SpanRecorder:
    """The spans of this process that ended; it keeps none until an exporter asks for them."""

    def __init__(self) -> None:
        """Begin without spans; none is kept before :meth:`begin`."""
        self._now: Callable[[], int] | None = None
        self._ended: deque[Span] = deque(maxlen=SPANS_MAX)

    def begin(self, now: Callable[[], int]) -> None:
        """Keep spans from now on, timed by this clock (µs)."""
        self._now = now

    def end(self) -> None:
        """Drop the spans that were kept, and keep no more."""
        self._now = None
        self._ended.clear()

    @property
    def now(self) -> int | None:
        """The time; None while spans are not kept."""
        return None if self._now is None else self._now()

    def keep(self, span: Span) -> None:
        """Keep a span, if spans are kept."""
        if self._now is not None:
            self._ended.append(span)

    def take(self, at_most: int) -> list[Span]:
        """Return the oldest spans, and keep them no more."""
        return [self._ended.popleft() for _ in range(min(at_most, len(self._ended)))]


RECORDER = SpanRecorder()
"""The recorder of this process, global as its log is."""

_CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)


def trace_of(header: str | None) -> Trace | None:
    """Return the trace that a header ``traceparent`` names; None if it is not a valid one."""
    match = _WRITTEN.fullmatch(header or "")
    return None if match is None else Trace(match["trace"], match["flags"], match["span"])


def new_trace() -> Trace:
    """Return a trace that nothing belongs to yet."""
    return Trace(secrets.token_hex(16))


def run_trace(run: UUID) -> Trace:
    """Return the trace of a run, the same on every node; all of it is below one span."""
    return Trace(run.hex, span=hashlib.sha256(run.bytes).hexdigest()[: 2 * _SPAN_BYTES])


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


@contextlib.contextmanager
def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    trace: Trace | None = None,
    **attributes: str,
) -> Iterator[dict[str, str]]:
    """Record what is done meanwhile, in this trace or the current one, or else in a new one.

    Yields the attributes, to be added to.
    """
    above = trace or _CURRENT.get() or new_trace()
    own = replace(above, span=secrets.token_hex(_SPAN_BYTES))
    began, fault = RECORDER.now, None
    try:
        with within(own):
            yield attributes
    except Exception as error:
        fault = str(error) or type(error).__name__
        raise
    finally:
        if began is not None and (ended := RECORDER.now) is not None:
            RECORDER.keep(
                Span(above.id, own.span, above.span, name, kind, began, ended, attributes, fault)
            )


def keep_run(run: UUID, began: int, fault: str | None, about: Mapping[str, str]) -> None:
    """Record a run that is over, as the span that all of its trace is below."""
    attributes = {"run": str(run), **about}
    trace = run_trace(run)
    if (now := RECORDER.now) is not None:
        RECORDER.keep(
            Span(trace.id, trace.span, "", "run", SpanKind.INTERNAL, began, now, attributes, fault)
        )


def headers() -> Mapping[str, str]:
    """Return the headers by which a request to another node continues the current trace."""
    trace = _CURRENT.get()
    if trace is None:
        return {}
    return {HEADER: f"00-{trace.id}-{trace.span or secrets.token_hex(_SPAN_BYTES)}-{trace.flags}"}
