"""``prometheus``: the figures of results by remote write 1.0, to Prometheus or a compatible server.

The names and labels are those of :mod:`node.model.samples`, and of the node's own ``/metrics``.
The message is protobuf with three small message types, encoded here, in snappy's block format.
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from node.model import times
from node.model.samples import Sample, name_of
from node.model.wire.fields import Document
from node.plugins.contracts import ArchivingHost, DeliveryOutcome
from node.plugins.fields import SECRET, ArchiverTimeout
from node.plugins.transport.batches import again, timeout_field
from node.plugins.transport.exporting import ExportDestination, Exporter, Figures
from node.plugins.transport.posting import DOCUMENT_REJECTED_STATUSES, Headers, Poster, Url

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_MILLISECOND = times.SECOND // 1000

Series = tuple[tuple[str, str], ...]
"""Labels sorted by name, including ``__name__``."""


class PrometheusSpec(Document):
    """The server to write to."""

    url: Url = Field(description="Such as http://prometheus.example:9090/api/v1/write.")
    headers: Headers = Field(
        default_factory=dict,
        max_length=16,
        description="Further headers, such as Authorization or X-Scope-OrgID. Never shown.",
        json_schema_extra=SECRET,
    )
    labels: dict[str, Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(
        default_factory=dict, max_length=16, description="Labels to add to all series."
    )
    timeout: ArchiverTimeout = timeout_field("a request")

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name_of(name) != name:
                msg = f"{name[:100]!r} is not a valid label name; use letters, digits and _"
                raise ValueError(msg)
        return value


class PrometheusDestination(ExportDestination):
    """The receiver of remote writes."""

    # If later samples were written first, the waiting one would be too old for Prometheus.
    held = again("comes after one that was not taken")

    def __init__(self, spec: PrometheusSpec, host: ArchivingHost, where: str) -> None:
        super().__init__(Poster(spec.url, spec.timeout, host.now, agent=host.agent))
        self._spec = spec

    async def export(self, results: Sequence[Figures]) -> tuple[DeliveryOutcome, bool]:
        """Post one request."""
        from cramjam import snappy

        message = write_request(series_of(results, self._spec.labels))
        body = bytes(snappy.compress_raw(message))
        answer = await self.poster.post(body, {**self._spec.headers, **_HEADERS})
        return answer.outcome, answer.status in DOCUMENT_REJECTED_STATUSES


class PrometheusArchiver(Exporter):
    """Writes samples by remote write."""

    name = "prometheus"
    title = "Write figures to Prometheus (remote write)"
    spec_model: type[Document] = PrometheusSpec
    extra = "prometheus"
    modules = ("cramjam",)
    destination = PrometheusDestination


def series_of(
    results: Sequence[tuple[int, Sequence[Sample]]], labels: Mapping[str, str]
) -> dict[Series, dict[int, float]]:
    """Return values by series and instant (ms), oldest first; for equal instants the later one.

    ``results`` are instants in µs with their samples; ``labels`` are added to each series.
    """
    values_by_series: dict[Series, dict[int, float]] = defaultdict(dict)
    for at, samples in results:
        for sample in samples:
            series = {**labels, **dict(sample.labels), "__name__": sample.name}
            values_by_series[tuple(sorted(series.items()))][at // _MILLISECOND] = sample.value
    return {key: dict(sorted(values.items())) for key, values in values_by_series.items()}


def write_request(series: Mapping[Series, Mapping[int, float]]) -> bytes:
    """Return a ``prometheus.WriteRequest``: timeseries = 1 of labels = 1 and samples = 2."""
    return b"".join(
        _field(1, b"".join([*map(_label, labels), *map(_sample, values.items())]))
        for labels, values in series.items()
    )


def _label(pair: tuple[str, str]) -> bytes:
    return _field(1, b"".join(_field(place, text.encode()) for place, text in enumerate(pair, 1)))


def _sample(pair: tuple[int, float]) -> bytes:
    """Encode value = 1 (double), timestamp = 2 (int64, ms)."""
    at, value = pair
    return _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits each
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


ARCHIVER = PrometheusArchiver()
