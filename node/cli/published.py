"""Documents that commands read: a file, a URL, and what these include.

What a person types may be any file or URL. What a document names is the word of its publisher, and
good for less (:mod:`node.model.ways_out`): never for a file, nor for plain HTTP if the document
itself came over TLS, and only for the place from which it came, or for public addresses. Redirects
are a publisher's word, too. A file is the word of who typed its name, also in what it includes.
All documents of one command share a bound of bytes and one of time, beyond which nothing is read: a
slow publisher would hold up the other meshes that a node follows.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
import click
from yarl import URL

from node.cli.failures import unreadable_message
from node.client.causes import cause_of
from node.execution.ways_out import judging_connector, rules_of_this_host
from node.model.errors import FieldFault, InvalidDocument, PeerUnreachable
from node.model.useragent import CONTACT, user_agent
from node.model.ways_out import Asker, Role, url_refusal
from node.runtime.version import program_version

SIZE_MAX = 16_000_000
REDIRECTS_MAX = 5
_FETCHED_WITHIN_S = 30.0
_ALL_WITHIN_S = 120.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FILE = "file://"


def resolved_reference(parent: str, name: str) -> str:
    """Return what a document names, as a whole URL or path.

    :raises InvalidDocument: it is no URL.
    """
    try:
        return urljoin(parent, name)
    except ValueError as error:
        raise _refusal(f"{name} is no URL: {error}") from None


def is_url(source: str) -> bool:
    """Return whether a source is fetched over HTTP; others are files."""
    return source.startswith(("http://", "https://"))


class Documents:
    """The documents of one command, which share a bound."""

    def __init__(
        self, *, insecure: bool, size_max: int = SIZE_MAX, within_s: float = _ALL_WITHIN_S
    ) -> None:
        """``insecure``: whatever certificate a server has. ``within_s`` is for all of them."""
        contact = os.environ.get("PARLEY_CONTACT", "")
        contact = contact if CONTACT.fullmatch(contact) else ""
        self._agent = user_agent(program_version(), contact or None)
        self._insecure = insecure
        self._left = self._size_max = size_max
        self._left_s = within_s
        self._rules = rules_of_this_host()
        self._named: set[tuple[str, str, int | None]] = set()

    async def read_named(self, source: str) -> str:
        """Return the text of a file or URL that a person has named.

        :raises PeerUnreachable: the URL is away.
        :raises click.BadParameter: the file cannot be read.
        :raises InvalidDocument: it is too long, or no text.
        """
        if not is_url(source):
            return await self._read_file(source)
        self._named.add(_origin(urlsplit(source)))
        return await self._fetch(source, source)

    async def read_included(self, url: str, parent: str) -> str:
        """Return the text of a document that another one names; ``url`` is absolute.

        :raises PeerUnreachable: the URL is away, or the publisher's word is not good for it.
        :raises click.BadParameter: the file cannot be read.
        :raises InvalidDocument: it is too long, or no text, or no place of documents.
        """
        if not is_url(parent):
            return await self.read_named(url.removeprefix(_FILE))
        return await self._fetch(self._allowed_url(url, parent), parent)

    def _allowed_url(self, url: str, parent: str) -> str:
        """Return the URL unchanged.

        :raises InvalidDocument: a publisher of ``parent`` may not name it.
        """
        try:
            to, origin = urlsplit(url), urlsplit(parent)
            same = _origin(to) in self._named
        except ValueError as error:
            raise _refusal(f"{url} is no URL: {error}") from None
        if to.scheme not in {"https", origin.scheme}:
            raise _refusal(f"{parent} may not name {url}: only https, or its own {origin.scheme}")
        why = None if same else url_refusal(Asker.PUBLISHER, Role.DOCUMENT, url, self._rules)
        if why is not None:
            raise _refusal(f"{parent} may not name {url}: {why}")
        return url

    async def _read_file(self, path: str) -> str:
        def read() -> bytes:
            with Path(path).open("rb") as file:
                return file.read(self._left + 1)

        try:
            return self._text(await asyncio.to_thread(read))
        except OSError as error:
            msg = unreadable_message(path, error)
            raise click.BadParameter(msg, param_hint="SOURCE") from error

    async def _fetch(self, url: str, parent: str) -> str:
        """Return what is at a URL, or at the one to which it leads."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        try:
            async with asyncio.timeout(min(_FETCHED_WITHIN_S, self._left_s)):
                for _ in range(REDIRECTS_MAX + 1):
                    octets, to = await self._fetch_once(url)
                    if to is None:
                        return self._text(octets)
                    url, parent = self._allowed_url(resolved_reference(url, to), url), url
        except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError, ValueError) as error:
            raise PeerUnreachable(f"{url} cannot be fetched: {_reason_text(error)}") from None
        finally:
            self._left_s -= clock.time() - began
        raise PeerUnreachable(f"{parent} leads to more than {REDIRECTS_MAX} other URLs")

    async def _fetch_once(self, url: str) -> tuple[bytes, str | None]:
        """Return the bytes at a URL, and None; or empty bytes, and the URL of a redirect.

        :raises PeerUnreachable: it answers that it has nothing.
        """
        async with (
            aiohttp.ClientSession(connector=self._connector(url)) as session,
            session.get(
                URL(url),
                headers={"Accept": "*/*", "User-Agent": self._agent},
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status in _REDIRECTS and (to := answer.headers.get("Location")):
                return b"", to
            if not answer.ok or answer.status in _REDIRECTS:
                raise PeerUnreachable(f"{url} answers {answer.status} {answer.reason}")
            octets = b""
            while len(octets) <= self._left and (more := await answer.content.read(2**16)):
                octets += more
            return octets, None

    def _connector(self, url: str) -> aiohttp.TCPConnector:
        """Return a connector that refuses addresses that the publisher of the URL may not name."""
        verify = not self._insecure
        if _origin(urlsplit(url)) in self._named:
            return aiohttp.TCPConnector(ssl=verify)
        return judging_connector(Asker.PUBLISHER, Role.DOCUMENT, self._rules, verify=verify)

    def _text(self, octets: bytes) -> str:
        self._left -= len(octets)
        if self._left < 0:
            raise _refusal(f"is longer than {self._size_max:,} bytes, with all that it includes")
        try:
            return octets.decode()
        except UnicodeDecodeError as error:
            raise _refusal(f"is no text in UTF-8: {error}") from None


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, parts.hostname or "", parts.port


def _refusal(fault: str) -> InvalidDocument:
    return InvalidDocument([FieldFault("", fault)])


def _reason_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted; --insecure accepts any, as psConfig does"
    return cause_of(error)
