"""``otlp``: the figures of results as gauges, by OTLP over HTTP with protobuf bodies.

Names, attributes and units are those of :mod:`node.model.samples`; the resource is this node. A
figure that a receiver says it rejected is one of the batch: it is taken apart to find whose.
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import orjson
from pydantic import Field, StringConstraints

from node.model import times
from node.model.samples import Sample, samples_of
from node.model.wire.fields import Document, Duration
from node.plugins.contracts import ArchivingHost, Batches, Delivery, Fate, Outcome
from node.plugins.fields import SECRET, between, duration_field
from node.plugins.transport.ordering import in_order
from node.plugins.transport.posting import ONE_IS_BAD, Headers, Poster, Url, shown

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
_NANOSECONDS = 1000  # in a microsecond


class OtlpSpec(Document):
    """Where to export to."""

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
    timeout: Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)] = duration_field(
        30 * times.SECOND, "How long a request may take; PT1S to PT2M."
    )


class OtlpArchiver:
    """Gauges to a collector."""

    name = "otlp"
    title = "Export figures as metrics by OTLP over HTTP"
    ordered = True
    spec_model: type[Document] = OtlpSpec
    extra = "otlp"
    modules = ("opentelemetry.proto",)

    def label(self, spec: OtlpSpec) -> str:
        """The URL without its query."""
        return shown(spec.url)

    def batches(self, spec: OtlpSpec) -> Batches:
        """Five hundred documents; a batch that is taken apart has the time of four requests."""
        return Batches(500, 8_000_000, 4 * spec.timeout)

    def refusal(self, spec: OtlpSpec, host: ArchivingHost) -> tuple[str, str] | None:  # noqa: ARG002 - the contract's
        """Nothing is refused."""
        return None

    def open(self, spec: OtlpSpec, host: ArchivingHost) -> OtlpDestination:
        """Connects when it is first used."""
        return OtlpDestination(spec, Poster(spec.url, spec.timeout, host.now), host.name)


class OtlpDestination:
    """One collector."""

    def __init__(self, spec: OtlpSpec, poster: Poster, host: str) -> None:
        """``host`` is the resource. Nothing is connected yet."""
        self._headers = {**spec.headers, **_HEADERS}
        self._resource = {**spec.attributes, "service.name": "parley", "host.name": host}
        self._poster = poster

    async def deliver(self, batch: Sequence[Delivery]) -> list[Outcome]:
        """One request for all that have figures."""
        samples = [samples_of(orjson.loads(one.body)) for one in batch]
        usable = [(one.at, found) for one, found in zip(batch, samples, strict=True) if found]
        outcomes = iter(await self._export(usable) if usable else ())
        return in_order(batch, [next(outcomes) if found else _NO_RESULT for found in samples])

    async def _export(self, results: Sequence[tuple[int, list[Sample]]]) -> list[Outcome]:
        """Each result's outcome: where something is refused, halves, older ones first."""
        body = gzip.compress(request_of(results, self._resource), compresslevel=5, mtime=0)
        answer = await self._poster.post(body, self._headers)
        outcome, rejected = answer.outcome, None
        if outcome.fate is Fate.ACCEPTED and (rejected := _rejected(answer.body)) is not None:
            outcome = Outcome(Fate.REFUSED, rejected)
        if (rejected is None and answer.status not in ONE_IS_BAD) or len(results) == 1:
            return [outcome] * len(results)
        half = len(results) // 2
        return [*await self._export(results[:half]), *await self._export(results[half:])]

    async def test(self) -> str:
        """Connect; nothing is exported.

        :raises ArchiverFailed: nobody listens there.
        """
        return await self._poster.test()

    async def close(self) -> None:
        """Close the connections."""
        await self._poster.close()


_NO_RESULT = Outcome(
    Fate.REFUSED,
    "no result with figures: a transform must keep succeeded, metrics, test, task, participants",
)


def request_of(
    results: Sequence[tuple[int, Sequence[Sample]]], resource: Mapping[str, str]
) -> bytes:
    """``ExportMetricsServiceRequest``: a gauge of each name, with a data point for each sample."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    request = ExportMetricsServiceRequest()
    there = request.resource_metrics.add()
    for key, value in sorted(resource.items()):
        there.resource.attributes.add(key=key).value.string_value = value
    scope = there.scope_metrics.add()
    scope.scope.name = "parley"
    gauges: dict[tuple[str, str], Metric] = {}
    for at, samples in results:
        for sample in samples:
            known = (sample.name, sample.unit)
            if known not in gauges:
                gauges[known] = scope.metrics.add(name=sample.name, unit=sample.unit)
            point = gauges[known].gauge.data_points.add(
                time_unix_nano=at * _NANOSECONDS, as_double=sample.value
            )
            for key, value in sample.labels:
                point.attributes.add(key=key).value.string_value = value
    return bytes(request.SerializeToString())


def _rejected(body: bytes) -> str | None:
    """Why the receiver rejected some of it; None if it took all, or says nothing that is OTLP."""
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
