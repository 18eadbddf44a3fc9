"""``http``: posts batches of results to a URL (a webhook).

The body is a JSON array, JSON lines, or a single document; optionally compressed.
``Idempotency-Key`` is the key of the document if the batch has only one, and otherwise a digest of
all keys; each document also contains its ``key``. With a secret,
``Parley-Signature: t=<seconds>,v1=<hex>`` signs ``<seconds>.<body as sent>`` by HMAC-SHA256 (RFC
2104); a receiver compares it and refuses requests that are older than some minutes.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from node.model import times
from node.model.wire.fields import Document, Host
from node.plugins.contracts import ArchivingHost, Batches, DeliveryItem, DeliveryOutcome
from node.plugins.fields import SECRET, ArchiverTimeout, flag_field, whole_field
from node.plugins.transport.batches import OwnArchiver, deliver_by_bisection, timeout_field
from node.plugins.transport.posting import (
    DOCUMENT_REJECTED_STATUSES,
    Headers,
    HttpReply,
    Poster,
    Url,
    UrlDestination,
    url_without_query,
)

_SINGLES = 50
"""Maximum requests of a batch whose documents are sent one by one."""


class HttpArchiverSpec(Document):
    """The URL to post to, and the form of the requests."""

    url: Url = Field(
        description="The URL to post results to; shown in lists, so it must not contain secrets."
    )
    format: Literal["array", "lines", "single"] = Field(
        "array",
        description="The body: a JSON array, one document per line (NDJSON), or single: a request "
        "for each document.",
    )
    method: Literal["POST", "PUT"] = Field("POST", description="The method of the requests.")
    verify: bool = flag_field(
        "Whether the certificate of the server must be trusted. Without it, anybody on the way "
        "can read and change what is sent.",
        default=True,
    )
    bind: Host | None = Field(None, description="The address of this host to connect from.")
    content_type: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,200}$")] | None = Field(
        None, description="The Content-Type, if it has to be another one than that of the body."
    )
    gzip: bool = flag_field("Compress the body.")
    secret: Annotated[str, StringConstraints(min_length=16, max_length=500)] | None = Field(
        None,
        description="Signs each request: Parley-Signature: t=<seconds>,v1=<HMAC-SHA256 of "
        "'<seconds>.<body as sent>', hexadecimal>. Never shown.",
        json_schema_extra=SECRET,
    )
    headers: Headers = Field(
        default_factory=dict,
        max_length=16,
        description="Further headers, such as Authorization. Their values are never shown.",
        json_schema_extra=SECRET,
    )
    batch: int = whole_field(500, 1, 1000, "Maximum results per request.")
    timeout: ArchiverTimeout = timeout_field("a request")


class HttpDestination(UrlDestination):
    """The URL to which batches are posted."""

    def __init__(self, spec: HttpArchiverSpec, host: ArchivingHost, where: str) -> None:
        poster = Poster(
            spec.url,
            spec.timeout,
            host.now,
            verify=spec.verify,
            bind=spec.bind,
            agent=host.agent,
        )
        super().__init__(poster)
        self._spec = spec
        self._now = host.now

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Post the batch; if a single document may have caused a refusal, bisect it."""
        if self._spec.format == "single":
            return await self._one_by_one(batch)
        return await deliver_by_bisection(batch, self._post)

    async def _one_by_one(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send each document; the rest has to wait as soon as the server does not answer."""
        outcomes: list[DeliveryOutcome] = []
        for item in batch:
            answer = await self._send([item])
            outcomes.append(answer.outcome)
            if answer.status == 0:
                break
        return outcomes + [outcomes[-1]] * (len(batch) - len(outcomes))

    async def _post(self, batch: Sequence[DeliveryItem]) -> tuple[DeliveryOutcome, bool]:
        answer = await self._send(batch)
        return answer.outcome, answer.status in DOCUMENT_REJECTED_STATUSES

    async def _send(self, batch: Sequence[DeliveryItem]) -> HttpReply:
        return await self.poster.send(self._spec.method, *self._request(batch))

    def _request(self, batch: Sequence[DeliveryItem]) -> tuple[bytes, dict[str, str]]:
        """Return the body as sent, and its headers."""
        body, kind = self._body(batch)
        keys = [item.key for item in batch]
        single = len(keys) == 1
        headers = {
            **self._spec.headers,
            "Content-Type": self._spec.content_type or kind,
            "Idempotency-Key": keys[0] if single else _digest(keys),
        }
        if self._spec.gzip:
            body = gzip.compress(body, compresslevel=5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        if self._spec.secret is not None:
            headers["Parley-Signature"] = signature(
                self._spec.secret, body, self._now() // times.SECOND
            )
        return body, headers

    def _body(self, batch: Sequence[DeliveryItem]) -> tuple[bytes, str]:
        """Return the body, not yet compressed, and its media type."""
        match self._spec.format:
            case "lines":
                return b"".join(item.body + b"\n" for item in batch), "application/x-ndjson"
            case "single":
                [item] = batch
                return item.body, "text/plain" if item.raw else "application/json"
            case _:
                return b"[" + b",\n".join(item.body for item in batch) + b"]", "application/json"


class HttpArchiver(OwnArchiver):
    """Posts results to a URL."""

    name = "http"
    title = "Post batches to a URL (webhook), signed"
    spec_model: type[Document] = HttpArchiverSpec
    destination = HttpDestination

    def label(self, spec: HttpArchiverSpec) -> str:
        """Return the URL without its query, which may contain keys."""
        return url_without_query(spec.url)

    def batches(self, spec: HttpArchiverSpec) -> Batches:
        """Return the spec's limit, and time for four requests in case the batch is bisected."""
        most = min(spec.batch, _SINGLES) if spec.format == "single" else spec.batch
        return Batches(most, 8_000_000, 4 * spec.timeout)


def signature(secret: str, body: bytes, seconds: int) -> str:
    """Return the signature that a receiver recomputes: HMAC-SHA256 of ``<seconds>.<body>``."""
    message = f"{seconds}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()}"


def _digest(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


ARCHIVER = HttpArchiver()
