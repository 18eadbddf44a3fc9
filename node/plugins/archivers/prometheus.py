"""``prometheus``: the figures of results by remote write 1.0, to Prometheus or what speaks like it.

The names and labels are those of :mod:`node.model.samples`, and of the node's own ``/metrics``.
The message is protobuf of three small kinds, written here, in snappy's block format.
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

import orjson
from pydantic import Field, StringConstraints, field_validator

from node.model import times
from node.model.samples import Sample, name_of, samples_of
from node.model.wire.fields import Document, Duration
from node.plugins.contracts import ArchivingHost, Batches, Delivery, Fate, Outcome
from node.plugins.fields import SECRET, between, duration_field
from node.plugins.transport.posting import ONE_IS_BAD, Headers, Poster, Url, shown

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_MILLISECOND = times.SECOND // 1000

Series = tuple[tuple[str, str], ...]
"""Labels sorted by name, ``__name__`` among them."""


class PrometheusSpec(Document):
    """Where to write to."""

    url: Url = Field(description="Such as http://prometheus.example:9090/api/v1/write.")
    headers: Headers = Field(
        default_factory=dict,
        max_length=16,
        description="Further headers, such as Authorization or X-Scope-OrgID. Never shown.",
        json_schema_extra=SECRET,
    )
    labels: dict[str, Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(
        default_factory=dict, max_length=16, description="Labels that all series get."
    )
    timeout: Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)] = duration_field(
        30 * times.SECOND, "How long a request may take; PT1S to PT2M."
    )

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name_of(name) != name:
                msg = f"{name[:100]!r} is no name of a label"
                raise ValueError(msg)
        return value


class PrometheusArchiver:
    """Samples by remote write."""

    name = "prometheus"
    title = "Write figures to Prometheus (remote write)"
    ordered = True
    spec_model: type[Document] = PrometheusSpec
    extra = "prometheus"
    modules = ("cramjam",)

    def label(self, spec: PrometheusSpec) -> str:
        """The URL without its query."""
        return shown(spec.url)

    def batches(self, spec: PrometheusSpec) -> Batches:
        """Five hundred documents; a batch that is taken apart has the time of four requests."""
        return Batches(500, 8_000_000, 4 * spec.timeout)

    def refusal(self, spec: PrometheusSpec, host: ArchivingHost) -> tuple[str, str] | None:  # noqa: ARG002 - the contract's
        """Nothing is refused."""
        return None

    def open(self, spec: PrometheusSpec, host: ArchivingHost) -> PrometheusDestination:
        """Connects when it is first used."""
        return PrometheusDestination(spec, Poster(spec.url, spec.timeout, host.now))


class PrometheusDestination:
    """One receiver."""

    def __init__(self, spec: PrometheusSpec, poster: Poster) -> None:
        """Nothing is connected yet."""
        self._spec = spec
        self._poster = poster

    async def deliver(self, batch: Sequence[Delivery]) -> list[Outcome]:
        """One request for all that have figures."""
        samples = [samples_of(orjson.loads(one.body)) for one in batch]
        usable = [(one.at, found) for one, found in zip(batch, samples, strict=True) if found]
        outcomes = iter(await self._write(usable) if usable else ())
        return [next(outcomes) if found else _NO_RESULT for found in samples]

    async def _write(self, results: Sequence[tuple[int, list[Sample]]]) -> list[Outcome]:
        """Each result's outcome: where one is refused, halves, older ones first."""
        from cramjam import snappy

        message = write_request(series_of(results, self._spec.labels))
        body = bytes(snappy.compress_raw(message))
        answer = await self._poster.post(body, {**self._spec.headers, **_HEADERS})
        if answer.status not in ONE_IS_BAD or len(results) == 1:
            return [answer.outcome] * len(results)
        half = len(results) // 2
        first = await self._write(results[:half])
        if any(one.fate is Fate.AGAIN for one in first):
            # What comes behind would make it too old for Prometheus.
            held = Outcome(Fate.AGAIN, "comes after one that was not taken")
            return [*first, *[held] * (len(results) - half)]
        return [*first, *await self._write(results[half:])]

    async def test(self) -> str:
        """Connect; nothing is written.

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


def series_of(
    results: Sequence[tuple[int, Sequence[Sample]]], labels: Mapping[str, str]
) -> dict[Series, dict[int, float]]:
    """By series its values by instant (ms), oldest first; of two at one instant the later counts.

    ``results`` are instants in µs with their samples; ``labels`` are added to each series.
    """
    found: dict[Series, dict[int, float]] = defaultdict(dict)
    for at, samples in results:
        for sample in samples:
            named = {**labels, **dict(sample.labels), "__name__": sample.name}
            found[tuple(sorted(named.items()))][at // _MILLISECOND] = sample.value
    return {series: dict(sorted(values.items())) for series, values in found.items()}


def write_request(series: Mapping[Series, Mapping[int, float]]) -> bytes:
    """``prometheus.WriteRequest``: timeseries = 1 of labels = 1 and samples = 2."""
    return b"".join(
        _field(1, b"".join([*map(_label, labels), *map(_sample, values.items())]))
        for labels, values in series.items()
    )


def _label(pair: tuple[str, str]) -> bytes:
    return _field(1, b"".join(_field(place, text.encode()) for place, text in enumerate(pair, 1)))


def _sample(pair: tuple[int, float]) -> bytes:
    """Value = 1 (double), timestamp = 2 (int64, ms)."""
    at, value = pair
    return _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits each
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


ARCHIVER = PrometheusArchiver()
