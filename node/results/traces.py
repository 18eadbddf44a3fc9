"""Sends spans to a collector, by OTLP over HTTP with protobuf bodies.

https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from node.model import times
from node.model.useragent import AGENT
from node.plugins.contracts import DeliveryStatus
from node.plugins.transport import otlp
from node.plugins.transport.posting import Poster
from node.runtime import tracing
from node.runtime.clock import Clock
from node.runtime.extras import install_command
from node.runtime.tracing import Span

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

EXTRA = "traces"
INTERVAL_S = 2.0
AT_ONCE = 512

_MODULE = "opentelemetry"
_TIMEOUT = 10 * times.SECOND
_FAULT = 2  # STATUS_CODE_ERROR

log = structlog.get_logger()


class SpanExporter:
    """Sends what this process records; while the collector is away, the latest spans are kept."""

    def __init__(
        self, endpoint: str, clock: Clock, resource: Mapping[str, str], agent: str = AGENT
    ) -> None:
        """Let spans be recorded from now on; ``endpoint`` is the whole URL."""
        self._clock = clock
        self._resource = resource
        self._poster = Poster(endpoint, _TIMEOUT, clock.now, agent=agent)
        self._fault: str | None = None
        tracing.RECORDER.begin(clock.now)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            while await self.send() == AT_ONCE:
                pass

    async def send(self) -> int:
        """Send some spans, and return how many; those that are not taken are lost, and logged."""
        spans = tracing.RECORDER.take(AT_ONCE)
        if not spans:
            return 0
        body = otlp.compressed_body(_request(spans, self._resource))
        outcome = (await self._poster.post(body, otlp.HEADERS)).outcome
        fault = None if outcome.status is DeliveryStatus.ACCEPTED else outcome.reason
        if fault is not None and self._fault is None:
            log.warning("traces are not taken", error=fault)
        elif fault is None and self._fault is not None:
            log.info("traces are taken again")
        self._fault = fault
        return len(spans) if fault is None else 0

    async def close(self) -> None:
        """Send what is left, and record no more."""
        await self.send()
        tracing.RECORDER.end()
        await self._poster.close()


def missing_package() -> str | None:
    """Return what to install so that spans can be sent; None if nothing is missing."""
    if importlib.util.find_spec(_MODULE) is not None:
        return None
    return f"install what sends them: {install_command(EXTRA)}"


def _request(spans: Sequence[Span], resource: Mapping[str, str]) -> ExportTraceServiceRequest:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - an extra
        ExportTraceServiceRequest,
    )

    request = ExportTraceServiceRequest()
    sent = request.resource_spans.add()
    scope = sent.scope_spans.add()
    otlp.name_sender(sent.resource, scope, resource.items())
    for each in spans:
        made = scope.spans.add(
            trace_id=bytes.fromhex(each.trace),
            span_id=bytes.fromhex(each.id),
            parent_span_id=bytes.fromhex(each.parent),
            name=each.name,
            kind=int(each.kind),
            start_time_unix_nano=otlp.nanoseconds(each.began),
            end_time_unix_nano=otlp.nanoseconds(each.ended),
        )
        otlp.add_attributes(made, each.attributes.items())
        if each.fault is not None:
            made.status.code = _FAULT
            made.status.message = each.fault
    return request
