"""Answers in the forms that clients of pScheduler read."""

from __future__ import annotations

import json
from typing import Any

import orjson
from aiohttp import web

HTML = "text/html"
PLAIN = "text/plain"


def of_json(value: Any, *, pretty: bool = False) -> web.Response:
    """Answer with JSON and a newline."""
    return web.Response(body=encoded(value, pretty=pretty), content_type="application/json")


def encoded(value: Any, *, pretty: bool = False) -> bytes:
    """Return a value as JSON with a newline at its end."""
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if pretty else 0)
    try:
        return orjson.dumps(value, option=options)
    except TypeError:  # integers of more than 64 bits
        text = json.dumps(value, indent=4 if pretty else None)
        return f"{text}\n".encode()


def of_text(text: str, content_type: str = PLAIN, status: int = 200) -> web.Response:
    """Answer with lines of text."""
    body = text if text.endswith("\n") else f"{text}\n"
    return web.Response(text=body, content_type=content_type, charset="utf-8", status=status)


def ok() -> web.Response:
    """Answer that it was done."""
    return of_text("OK", HTML)
