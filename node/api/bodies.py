"""Read request bodies: bounded in size, in time, and in bytes held at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import HttpVersion11, web

from node.model.errors import MalformedRequest, Overloaded, TooLarge, TooSlow

BODY_S = 30.0
"""Maximum seconds in which a body must arrive."""

HELD_MAX = 32_000_000
"""Maximum bytes of bodies that a node holds at once, of all requests under way."""

_CHUNK = 65_536


class Bodies:
    """Counts the bytes of the bodies of all requests under way."""

    def __init__(self) -> None:
        self._held = 0

    @contextlib.asynccontextmanager
    async def received_body(self, request: web.Request, bytes_max: int) -> AsyncIterator[bytes]:
        """Yield the body of a request, which counts until the end of the context.

        A caller that waits to be told to send it (``Expect: 100-continue``) is told so now.

        :raises MalformedRequest: it is compressed, the caller expects something else, or hung up.
        :raises TooLarge: it has more than ``bytes_max`` bytes.
        :raises TooSlow: it has not arrived in time.
        :raises Overloaded: the bodies of other requests leave no room for it.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            msg = "compressed request bodies are not supported; send it uncompressed"
            raise MalformedRequest(msg)
        if (request.content_length or 0) > bytes_max:
            raise _too_large(bytes_max)
        body = bytearray()
        try:
            await self._read_into(request, body, bytes_max)
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def _read_into(self, request: web.Request, body: bytearray, bytes_max: int) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                await _ask_for_body(request)
                async for chunk in request.content.iter_chunked(_CHUNK):
                    body += chunk
                    self._held += len(chunk)
                    if len(body) > bytes_max:
                        raise _too_large(bytes_max)
                    if self._held > HELD_MAX:
                        msg = "the node is reading too many other requests; send it again later"
                        raise Overloaded(msg)
        except TimeoutError:
            msg = f"the body has not arrived within {BODY_S:g} s; send it again"
            raise TooSlow(msg) from None
        except OSError:  # a refusal that nobody reads, but no fault of this node
            raise MalformedRequest("the caller hung up before the body had arrived") from None


async def expect_later(_request: web.Request) -> None:
    """Leave ``Expect: 100-continue`` to :class:`Bodies`, which reads the body.

    By default, aiohttp asks any caller for the body before it is known who sends it.
    """


async def _ask_for_body(request: web.Request) -> None:
    expected = request.headers.get("Expect")
    if expected is None or request.version < HttpVersion11:
        return
    if expected.lower() != "100-continue":
        msg = f"Expect: {expected[:100]} is not supported; leave this header out"
        raise MalformedRequest(msg)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer itself has not begun


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is larger than {bytes_max} bytes")


BODIES: web.AppKey[Bodies] = web.AppKey("bodies")
"""The bodies of an application's requests."""
