"""Posting to a URL, for archivers that use HTTP: persistent connections, and the outcomes.

Statuses: 2xx is accepted; 408, 425, 429 and 5xx are retried, after ``Retry-After`` if it is sent;
3xx and other 4xx are refused for good.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated
from urllib.parse import urlsplit

import aiohttp
from pydantic import AfterValidator, StringConstraints
from yarl import URL

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.useragent import AGENT
from node.model.wire.fields import Url as Url  # noqa: PLC0414 - the field of specs
from node.plugins.contracts import DeliveryOutcome, DeliveryStatus
from node.plugins.transport.batches import ACCEPTED, again, refused_outcome
from node.plugins.transport.senders import error_summary

DOCUMENT_REJECTED_STATUSES = frozenset({400, 413, 422})
"""Statuses that a single document of a batch can cause: the others deserve another try."""

_AGAIN = frozenset({408, 425, 429})
_SUCCESS = range(200, 300)
_REDIRECT = range(300, 400)
_FAULT = 500
_BODY_MAX = 4096
_TEXT_MAX = 300
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_OURS = frozenset({
    "connection", "content-encoding", "content-length", "content-type", "host", "idempotency-key",
    "parley-signature", "transfer-encoding",
})  # fmt: skip


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            msg = f"{name[:100]!r} cannot be set; leave it out"
            raise ValueError(msg)
        if any(letter in text for letter in "\r\n\0"):
            msg = f"the value of {name} contains a line break"
            raise ValueError(msg)
    return value


Headers = Annotated[
    dict[str, Annotated[str, StringConstraints(max_length=4000)]], AfterValidator(_headers)
]
"""Additional headers of each request, besides those that describe the body."""


@dataclass(frozen=True)
class HttpReply:
    """The reply to a request: the status (0: no answer) and the beginning of the body."""

    status: int
    body: bytes
    outcome: DeliveryOutcome


class Poster:
    """One URL, with persistent connections."""

    def __init__(
        self,
        url: str,
        timeout: int,
        now: Callable[[], int],
        *,
        verify: bool = True,
        bind: str | None = None,
        agent: str = AGENT,
    ) -> None:
        """Store the arguments; ``timeout`` (µs) is per request. Nothing is connected yet.

        ``verify`` is whether the certificate of the server must be trusted, ``bind`` the address of
        this host to connect from, ``agent`` the name of this program with a contact.
        """
        self._agent = agent
        self._url = url
        self._timeout = timeout
        self._now = now
        self._verify = verify
        self._local = None if bind is None else (bind, 0)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Post a body to the URL, and wait for the answer."""
        return await self.request("POST", str(URL(self._url)), body, headers)

    async def send(self, method: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Send a body to the URL, and wait for the answer."""
        return await self.request(method, str(URL(self._url)), body, headers)

    async def request(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpReply:
        """Send another request to the same server; the URL is used as it is, without quoting."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._verify, local_addr=self._local)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._timeout / times.SECOND),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        all_headers = {**headers, "User-Agent": self._agent}
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                data=body,
                headers=all_headers,
                allow_redirects=False,
            ) as answer:
                beginning = await answer.content.read(_BODY_MAX)
                text = beginning[:_TEXT_MAX].decode(errors="replace")
                return HttpReply(answer.status, beginning, _outcome(answer, text, self._now()))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return HttpReply(0, b"", again(_reason(error, self._timeout)))

    async def test(self) -> str:
        """Connect, with TLS for https; nothing is posted.

        :raises ArchiverFailed: nothing listens there, or its certificate is not trusted.
        """
        parts = urlsplit(self._url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        context = _context(verify=self._verify) if secure else None
        try:
            async with asyncio.timeout(self._timeout / times.SECOND):
                _, writer = await asyncio.open_connection(
                    parts.hostname, port, ssl=context, local_addr=self._local
                )
        except (OSError, TimeoutError) as error:
            msg = f"{parts.hostname} port {port}: {_reason(error, self._timeout)}"
            raise ArchiverFailed(msg) from None
        writer.close()
        return f"{parts.hostname} port {port} answers; nothing was posted"

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _context(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class UrlDestination:
    """A destination that is a URL; subclasses define what is posted."""

    def __init__(self, poster: Poster) -> None:
        """Store the poster; nothing is connected yet."""
        self.poster = poster

    async def test(self) -> str:
        """Connect, with TLS for https; nothing is posted.

        :raises ArchiverFailed: nothing listens there, or its certificate is not trusted.
        """
        return await self.poster.test()

    async def close(self) -> None:
        """Close the connections."""
        await self.poster.close()


def url_without_query(url: str) -> str:
    """Return the URL without its query, which may contain keys."""
    return url.partition("?")[0]


def _outcome(answer: aiohttp.ClientResponse, text: str, now: int) -> DeliveryOutcome:
    status = answer.status
    if status in _SUCCESS:
        return ACCEPTED
    words = " ".join(f"{status} {answer.reason or ''} {text}".split())
    if status in _REDIRECT:
        to = answer.headers.get("Location", "elsewhere")[:_TEXT_MAX]
        return DeliveryOutcome(
            DeliveryStatus.REFUSED, f"{status}: redirected to {to}; use that address instead"
        )
    if status in _AGAIN or status >= _FAULT:
        return DeliveryOutcome(
            DeliveryStatus.AGAIN, words, retry_after(answer.headers.get("Retry-After"), now)
        )
    return refused_outcome(words)


def retry_after(text: str | None, now: int) -> int:
    """Return the pause (µs) that ``Retry-After`` asks for: seconds or a date; 0 if neither."""
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


def _reason(error: Exception, timeout: int) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {times.duration_text(timeout)}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.strerror:
        return f"{error.host} port {error.port}: {error_summary(error)}"
    return error_summary(error)
