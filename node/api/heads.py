"""Answers to what is no request: a head that is too long, or none at all.

aiohttp answers with the bytes that it did not understand, and logs them with a traceback. They may
have a token or a key, so neither the answer nor the log has them here: only what kind of fault it
was, and who sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import structlog
from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

_TOO_LONG = 431
_TEXTS = {
    _TOO_LONG: "431: the request line or a header is longer than 8190 bytes",
    400: "400: this is not a request of HTTP/1.1",
}

log = structlog.get_logger()


class DiscreetHandler(RequestHandler):
    """The protocol of a connection, which repeats nothing that it could not read."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to an error that no handler has answered."""
        if not isinstance(exc, http_exceptions.HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        status = _TOO_LONG if isinstance(exc, http_exceptions.LineTooLong) else 400
        log.info("no request", remote=request.remote, fault=type(exc).__name__, status=status)
        answer = web.Response(status=status, text=f"{_TEXTS[status]}\n")
        answer.force_close()
        return answer


def protocol_factory(serving: web.AppRunner) -> Callable[[], asyncio.Protocol]:
    """Return the function that makes the protocol of each new connection of an application."""
    server = cast(web.Server, serving.server)

    def new_protocol() -> asyncio.Protocol:
        protocol = server()
        protocol.__class__ = DiscreetHandler  # aiohttp has no setting for it
        return protocol

    return new_protocol
