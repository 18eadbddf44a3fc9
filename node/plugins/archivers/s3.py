"""``s3``: batches of results as Parquet files in a bucket of S3 or a compatible service.

Objects are ``<prefix>/date=<UTC day of the run's end>/<digest of the keys in it>.parquet``: the
same batch again is the same object. A batch that is composed differently after a crash may repeat
rows; their ``key`` is the same. Columns are ``at``, ``key``, ``series`` (the task), ``test``,
``state``, ``succeeded``, ``metrics`` (name, value, unit, labels) and ``document`` (JSON).
"""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import Field, StringConstraints

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document
from node.plugins.contracts import (
    ArchivingHost,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
)
from node.plugins.fields import SECRET, ArchiverTimeout
from node.plugins.transport.batches import OwnArchiver, again, timeout_field
from node.plugins.transport.posting import HttpReply, Poster, Url, url_without_query

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_Words = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,500}$")]

_PREFIX = r"^([A-Za-z0-9_=-][A-Za-z0-9_.=/-]{0,200})?$"


class S3Spec(Document):
    """The bucket, and the key to write with."""

    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] = (
        Field(description="Must exist.")
    )
    prefix: Annotated[str, StringConstraints(pattern=_PREFIX)] = Field(
        "parley", description="The prefix of each object's name."
    )
    endpoint: Url | None = Field(
        None, description="Such as https://minio.example:9000; by default Amazon's of the region."
    )
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,50}$")] = Field(
        "us-east-1", description="The bucket's region; requests are signed for it."
    )
    access_key: _Words | None = Field(
        None, description="The key's id; by default that of the service's environment or host."
    )
    secret_key: _Words | None = Field(None, description="Never shown.", json_schema_extra=SECRET)
    timeout: ArchiverTimeout = timeout_field("an object")


class S3Destination:
    """The bucket into which files are put."""

    def __init__(self, spec: S3Spec, host: ArchivingHost, where: str) -> None:
        self._spec = spec
        server = (spec.endpoint or f"https://s3.{spec.region}.amazonaws.com").rstrip("/")
        self._bucket = f"{server}/{spec.bucket}"
        self._poster = Poster(self._bucket, spec.timeout, host.now, agent=host.agent)
        self._credentials: Credentials | None = None

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Put an object for each day."""
        by_day: dict[str, list[DeliveryItem]] = defaultdict(list)
        for item in batch:
            by_day[times.to_datetime(item.at).strftime("%Y-%m-%d")].append(item)
        outcomes = {day: await self._put(day, items) for day, items in by_day.items()}
        return [outcomes[times.to_datetime(item.at).strftime("%Y-%m-%d")] for item in batch]

    async def _put(self, day: str, batch: Sequence[DeliveryItem]) -> DeliveryOutcome:
        digest = hashlib.sha256("\n".join(item.key for item in batch).encode()).hexdigest()
        folder = f"{self._spec.prefix.rstrip('/')}/".lstrip("/")
        body = await asyncio.to_thread(parquet_of, batch)
        answer = await self._send_signed("PUT", f"/{folder}date={day}/{digest[:32]}.parquet", body)
        if answer.outcome.status is DeliveryStatus.REFUSED:
            # A missing bucket or a key without permission can be repaired, so the rows wait.
            return again(answer.outcome.reason)
        return answer.outcome

    async def _send_signed(self, method: str, path: str, body: bytes) -> HttpReply:
        """Send a request signed by botocore, in a thread: it may look up keys over the network."""
        url = self._bucket + path
        headers = await asyncio.to_thread(self._signature_headers, method, url, body)
        return await self._poster.request(method, url, body, headers)

    def _signature_headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
        from botocore.session import get_session

        spec = self._spec
        if self._credentials is None:
            if spec.access_key is not None:
                self._credentials = Credentials(spec.access_key, spec.secret_key)
            else:
                self._credentials = get_session().get_credentials()
        if self._credentials is None:
            msg = "there is no access_key, and neither the environment nor the host has one"
            raise ArchiverFailed(msg)
        request = AWSRequest(method=method, url=url, data=body)
        S3SigV4Auth(self._credentials, "s3", spec.region).add_auth(request)
        return dict(request.headers.items())

    async def test(self) -> str:
        """List the bucket with the key; nothing is put there.

        :raises ArchiverFailed: that is not possible.
        """
        answer = await self._send_signed("GET", "?list-type=2&max-keys=0", b"")
        if answer.outcome.status is not DeliveryStatus.ACCEPTED:
            msg = f"{self._bucket}: {answer.outcome.reason}"
            raise ArchiverFailed(msg)
        return f"{self._bucket} exists and can be listed; nothing was put there"

    async def close(self) -> None:
        """Close the connections."""
        await self._poster.close()


class S3Archiver(OwnArchiver):
    """Puts files into a bucket."""

    name = "s3"
    title = "Put Parquet files into a bucket of S3"
    spec_model: type[Document] = S3Spec
    extra = "s3"
    modules = ("botocore", "pyarrow")
    octets = 16_000_000  # the rows may be of several days
    destination = S3Destination

    def label(self, spec: S3Spec) -> str:
        """Return bucket and prefix, and the endpoint if it is not Amazon's."""
        return " ".join(filter(None, (f"s3://{spec.bucket}/{spec.prefix}", _place_text(spec))))

    def refusal(self, spec: S3Spec, host: ArchivingHost) -> tuple[str, str] | None:
        """Refuse a key without its secret, and the reverse."""
        if (spec.access_key is None) != (spec.secret_key is None):
            return "secret_key", "access_key and secret_key must be set together"
        return None


def parquet_of(batch: Sequence[DeliveryItem]) -> bytes:
    """Return a file with a row for each document."""
    import pyarrow as pa
    from pyarrow import parquet

    metric = pa.struct(
        [
            ("name", pa.string()),
            ("value", pa.float64()),
            ("unit", pa.string()),
            ("labels", pa.map_(pa.string(), pa.string())),
        ]
    )
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            ("key", pa.string()),
            ("series", pa.string()),
            ("test", pa.string()),
            ("state", pa.string()),
            ("succeeded", pa.bool_()),
            ("metrics", pa.list_(metric)),
            ("document", pa.string()),
        ]
    )
    buffer = io.BytesIO()
    table = pa.Table.from_pylist([_row(item) for item in batch], schema)
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _row(item: DeliveryItem) -> dict[str, Any]:
    document = orjson.loads(item.body)
    fields = document if isinstance(document, Mapping) else {}
    test = fields.get("test")
    metrics = fields.get("metrics")
    return {
        "at": item.at,
        "key": item.key,
        "series": item.series,
        "test": _text(test.get("type")) if isinstance(test, Mapping) else None,
        "state": _text(fields.get("state")),
        "succeeded": item.succeeded,
        "metrics": [
            _metric(each)
            for each in (metrics if isinstance(metrics, list) else ())
            if isinstance(each, Mapping)
        ],
        "document": item.body.decode(),
    }


def _metric(metric: Mapping[str, Any]) -> dict[str, Any]:
    value, labels = metric.get("value"), metric.get("labels")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "name": _text(metric.get("name")),
        "value": float(value or 0) if number else None,
        "unit": _text(metric.get("unit")),
        "labels": [(key, str(text)) for key, text in labels.items()]
        if isinstance(labels, Mapping)
        else [],
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _place_text(spec: S3Spec) -> str:
    return f"at {url_without_query(spec.endpoint)}" if spec.endpoint else ""


ARCHIVER = S3Archiver()
