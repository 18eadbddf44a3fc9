"""Answers in the forms that clients of pScheduler read."""

from __future__ import annotations

import json
from typing import Any

import orjson
from aiohttp import web

HTML = "text/html"
PLAIN = "text/plain"


def json_response(value: Any, *, pretty: bool = False) -> web.Response:
    """Return a response with a value as JSON, and a line break at its end."""
    return web.Response(body=encoded_json(value, pretty=pretty), content_type="application/json")


def encoded_json(value: Any, *, pretty: bool = False) -> bytes:
    """Return a value as JSON in UTF-8 with a line break; ``pretty``: indented."""
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if pretty else 0)
    try:
        return orjson.dumps(value, option=options)
    except TypeError:  # integers of more than 64 bits
        text = json.dumps(value, indent=4 if pretty else None)
        return f"{text}\n".encode()


def text_response(text: str, content_type: str = PLAIN, status: int = 200) -> web.Response:
    """Return a response with lines of text."""
    body = text if text.endswith("\n") else f"{text}\n"
    return web.Response(text=body, content_type=content_type, charset="utf-8", status=status)


def done_response() -> web.Response:
    """Return the response to a change that has nothing to tell: pScheduler's ``OK``."""
    return text_response("OK", HTML)
