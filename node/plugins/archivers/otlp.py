"""``otlp``: the figures of results as gauges, by OTLP over HTTP with protobuf bodies.

Names, attributes and units are those of :mod:`node.model.samples`; the resource is this node. If a
receiver rejects some data points of a batch, the batch is bisected to find the result.
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints

from node.model.wire.fields import Document
from node.plugins.contracts import ArchivingHost, DeliveryItem, DeliveryOutcome, DeliveryStatus
from node.plugins.fields import SECRET, ArchiverTimeout
from node.plugins.transport import otlp
from node.plugins.transport.batches import in_order, refused_outcome, timeout_field
from node.plugins.transport.exporting import ExportDestination, Exporter, Figures
from node.plugins.transport.posting import DOCUMENT_REJECTED_STATUSES, Headers, Poster, Url

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class OtlpSpec(Document):
    """The collector to export to."""

    url: Url = Field(description="Such as http://collector.example:4318/v1/metrics, in full.")
    headers: Headers = Field(
        default_factory=dict,
        max_length=16,
        description="Further headers, such as Authorization. Their values are never shown.",
        json_schema_extra=SECRET,
    )
    attributes: dict[str, Annotated[str, StringConstraints(max_length=200)]] = Field(
        default_factory=dict, max_length=16, description="Further attributes of the resource."
    )
    timeout: ArchiverTimeout = timeout_field("a request")


class OtlpDestination(ExportDestination):
    """The collector to which gauges are exported."""

    def __init__(self, spec: OtlpSpec, host: ArchivingHost, where: str) -> None:
        """Store the arguments; the host is the resource. Nothing is connected yet."""
        super().__init__(Poster(spec.url, spec.timeout, host.now, agent=host.agent))
        self._headers = {**spec.headers, **otlp.HEADERS}
        self._resource = {**spec.attributes, "service.name": "parley", "host.name": host.name}

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Deliver as all exporters do, and keep the order of each series."""
        return in_order(batch, await super().deliver(batch))

    async def export(self, results: Sequence[Figures]) -> tuple[DeliveryOutcome, bool]:
        """Post one request; partially rejected data points blame one of the results."""
        body = otlp.compressed_body(_request(results, self._resource))
        answer = await self.poster.post(body, self._headers)
        outcome = answer.outcome
        if (
            outcome.status is DeliveryStatus.ACCEPTED
            and (rejected := _rejection_reason(answer.body)) is not None
        ):
            return refused_outcome(rejected), True
        return outcome, answer.status in DOCUMENT_REJECTED_STATUSES


class OtlpArchiver(Exporter):
    """Sends gauges to a collector."""

    name = "otlp"
    title = "Export figures as metrics by OTLP over HTTP"
    spec_model: type[Document] = OtlpSpec
    extra = "otlp"
    modules = ("opentelemetry.proto",)
    destination = OtlpDestination


def _request(
    results: Sequence[Figures], resource: Mapping[str, str]
) -> ExportMetricsServiceRequest:
    """Return a request with a gauge for each name, and a data point for each sample."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    scope = resource_metrics.scope_metrics.add()
    otlp.name_sender(resource_metrics.resource, scope, resource.items())
    gauges: dict[tuple[str, str], Metric] = {}
    for at, samples in results:
        for sample in samples:
            gauge = (sample.name, sample.unit)
            if gauge not in gauges:
                gauges[gauge] = scope.metrics.add(name=sample.name, unit=sample.unit)
            point = gauges[gauge].gauge.data_points.add(
                time_unix_nano=otlp.nanoseconds(at), as_double=sample.value
            )
            otlp.add_attributes(point, sample.labels)
    return request


def _rejection_reason(body: bytes) -> str | None:
    """Return why the receiver rejected some of it; None if it took all, or the body is not OTLP."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceResponse,
    )

    response = ExportMetricsServiceResponse()
    try:
        response.ParseFromString(body)
    except DecodeError:
        return None
    partly = response.partial_success
    if not partly.rejected_data_points:
        return None
    return f"rejected: {partly.error_message or 'without a reason'}"


ARCHIVER = OtlpArchiver()
