"""``http``: posts batches of results to a URL (a webhook).

The body is a JSON array, or JSON lines; compressed if wished. ``Idempotency-Key`` is the document's
own key where there is one in the batch, else a digest of all; each document has its ``key``, too.
With a secret, ``Parley-Signature: t=<seconds>,v1=<hex>`` signs ``<seconds>.<body as sent>`` by
HMAC-SHA256 (RFC 2104); a receiver compares it and refuses what is older than some minutes.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import re
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

import aiohttp
from pydantic import AfterValidator, Field, StringConstraints, field_validator

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document, Duration
from node.plugins.contracts import ArchivingHost, Batches, Delivery, Fate, Outcome
from node.plugins.fields import SECRET, between, duration_field

_AGAIN = frozenset({408, 425, 429})
_ONE_IS_BAD = frozenset({400, 413, 422})
"""What may be said because of one document of a batch: the others deserve another try."""
_SUCCESS = range(200, 300)
_REDIRECT = range(300, 400)
_FAULT = 500
_SAID_MAX = 300
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_OURS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "parley-signature",
        "transfer-encoding",
    }
)


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "not an address such as https://collector.example/in"
        raise ValueError(msg)
    if parts.username is not None or parts.password is not None:
        msg = "must not hold a user or password, which would be shown; put them into headers"
        raise ValueError(msg)
    if parts.fragment or any(ord(letter) <= 0x20 for letter in value):  # noqa: PLR2004 - a blank
        msg = "must have neither blanks nor a fragment"
        raise ValueError(msg)
    _ = parts.port  # raises ValueError if it is none
    return value


class HttpSpec(Document):
    """Where to post, and how."""

    url: Annotated[str, StringConstraints(max_length=2000), AfterValidator(_url)] = Field(
        description="Where results are posted; shown in lists, so no place for secrets."
    )
    format: Literal["array", "lines"] = Field(
        "array", description="The body: a JSON array, or a document a line (NDJSON)."
    )
    gzip: bool = Field(default=False, strict=True, description="Compress the body.")
    secret: Annotated[str, StringConstraints(min_length=16, max_length=500)] | None = Field(
        None,
        description="Signs each request: Parley-Signature: t=<seconds>,v1=<HMAC-SHA256 of "
        "'<seconds>.<body as sent>', hexadecimal>. Never shown.",
        json_schema_extra=SECRET,
    )
    headers: dict[str, Annotated[str, StringConstraints(max_length=4000)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Further headers, such as Authorization. Their values are never shown.",
        json_schema_extra=SECRET,
    )
    batch: int = Field(500, ge=1, le=1000, strict=True, description="Most results in a request.")
    timeout: Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)] = duration_field(
        30 * times.SECOND, "How long a request may take; PT1S to PT2M."
    )

    @field_validator("headers")
    @classmethod
    def _sendable(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HEADER.fullmatch(name) or name.lower() in _OURS:
                msg = f"{name[:100]!r} cannot be set"
                raise ValueError(msg)
            if any(letter in text for letter in "\r\n\0"):
                msg = f"the value of {name} holds a line break"
                raise ValueError(msg)
        return value


class HttpArchiver:
    """Posts results to a URL."""

    name = "http"
    title = "Post batches to a URL (webhook), signed"
    ordered = False
    spec_model: type[Document] = HttpSpec

    def label(self, spec: HttpSpec) -> str:
        """The URL without its query, in which some put keys."""
        return spec.url.partition("?")[0]

    def batches(self, spec: HttpSpec) -> Batches:
        """As the spec says; a batch that is taken apart has the time of four requests."""
        return Batches(spec.batch, 8_000_000, 4 * spec.timeout)

    def refusal(self, spec: HttpSpec, host: ArchivingHost) -> tuple[str, str] | None:  # noqa: ARG002 - the contract's
        """Nothing is refused: only whoever has the operator's token names URLs."""
        return None

    def open(self, spec: HttpSpec, host: ArchivingHost) -> HttpDestination:
        """Connects when it is first used."""
        return HttpDestination(spec, host.now)


class HttpDestination:
    """One URL, with connections that are kept open."""

    def __init__(self, spec: HttpSpec, now: Callable[[], int]) -> None:
        """Nothing is connected yet."""
        self._spec = spec
        self._now = now
        self._session: aiohttp.ClientSession | None = None

    async def deliver(self, batch: Sequence[Delivery]) -> list[Outcome]:
        """One request; where one document may be to blame for a refusal, halves of the batch."""
        status, outcome = await self._post(batch)
        if status not in _ONE_IS_BAD or len(batch) == 1:
            return [outcome] * len(batch)
        half = len(batch) // 2
        return [*await self.deliver(batch[:half]), *await self.deliver(batch[half:])]

    async def _post(self, batch: Sequence[Delivery]) -> tuple[int, Outcome]:
        body, headers = self._request(batch)
        try:
            return await self._send(body, headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, Outcome(Fate.AGAIN, _said(error, self._spec.timeout))

    async def _send(self, body: bytes, headers: dict[str, str]) -> tuple[int, Outcome]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._spec.timeout / times.SECOND),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        async with self._session.post(
            self._spec.url, data=body, headers=headers, allow_redirects=False
        ) as answer:
            said = (await answer.content.read(_SAID_MAX)).decode(errors="replace")
            return answer.status, _outcome(answer, said, self._now())

    def _request(self, batch: Sequence[Delivery]) -> tuple[bytes, dict[str, str]]:
        """The body as sent, and the headers with it."""
        if self._spec.format == "lines":
            body, kind = b"".join(one.body + b"\n" for one in batch), "application/x-ndjson"
        else:
            body, kind = b"[" + b",\n".join(one.body for one in batch) + b"]", "application/json"
        keys = [one.key for one in batch]
        single = len(keys) == 1
        headers = {
            **self._spec.headers,
            "Content-Type": kind,
            "User-Agent": "parley",
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

    async def test(self) -> str:
        """Connect, with TLS where it is https; nothing is posted.

        :raises ArchiverFailed: nobody listens there, or its certificate is not trusted.
        """
        parts = urlsplit(self._spec.url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        context = ssl.create_default_context() if secure else None
        try:
            async with asyncio.timeout(self._spec.timeout / times.SECOND):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
        except (OSError, TimeoutError) as error:
            msg = f"{parts.hostname} port {port}: {_said(error, self._spec.timeout)}"
            raise ArchiverFailed(msg) from None
        writer.close()
        return f"{parts.hostname} port {port} answers; nothing was posted"

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def signature(secret: str, body: bytes, seconds: int) -> str:
    """What a receiver computes again: HMAC-SHA256 over the instant, a dot and the body as sent."""
    signed = f"{seconds}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _digest(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def _outcome(answer: aiohttp.ClientResponse, said: str, now: int) -> Outcome:
    status = answer.status
    if status in _SUCCESS:
        return Outcome(Fate.ACCEPTED)
    words = " ".join(f"{status} {answer.reason or ''} {said}".split())
    if status in _REDIRECT:
        to = answer.headers.get("Location", "elsewhere")[:_SAID_MAX]
        return Outcome(Fate.REFUSED, f"{status}: it is at {to} now; give that address")
    if status in _AGAIN or status >= _FAULT:
        return Outcome(Fate.AGAIN, words, retry_after(answer.headers.get("Retry-After"), now))
    return Outcome(Fate.REFUSED, words)


def retry_after(text: str | None, now: int) -> int:
    """The pause (µs) that ``Retry-After`` asks for: seconds or a date; 0 if neither."""
    if text is None:
        return 0
    if text.strip().isascii() and text.strip().isdecimal():
        return int(text.strip()[:6]) * times.SECOND
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return 0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    since = (date - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return max(0, int(since) * times.SECOND - now)


def _said(error: Exception, timeout: int) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {times.format_duration(timeout)}"
    return str(error) or type(error).__name__


ARCHIVER = HttpArchiver()
