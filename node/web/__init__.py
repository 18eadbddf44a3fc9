"""The page at ``/``: static files that show what the API returns.

It consists of plain ES modules without a build step; ``app.js`` connects the others. Every file in
this folder with one of the known suffixes is served under its own name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX = "index.html"

_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """One file of the page; the tag is a hash of its content."""

    media_type: str
    body: bytes
    tag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return every file of the page by name; they are read once and change with the program."""
    by_name: dict[str, StaticFile] = {}
    for entry in files(__name__).iterdir():
        media_type = _MEDIA_TYPES.get(PurePath(entry.name).suffix)
        if media_type is not None:
            body = entry.read_bytes()
            tag = hashlib.sha256(body).hexdigest()[:32]
            by_name[entry.name] = StaticFile(media_type, body, tag)
    return MappingProxyType(by_name)
