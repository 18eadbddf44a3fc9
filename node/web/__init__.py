"""The page at ``/``: static files that read the API and never decide anything.

Plain ES modules without a build step; ``app.js`` wires the others together. Whatever lies in this
folder with one of the known endings is served, by its own name.
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
    """One file of the page; the tag changes with every byte of it."""

    media_type: str
    body: bytes
    tag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Every file of the page by name, read once: they change only with the program."""
    found: dict[str, StaticFile] = {}
    for entry in files(__name__).iterdir():
        media_type = _MEDIA_TYPES.get(PurePath(entry.name).suffix)
        if media_type is not None:
            body = entry.read_bytes()
            tag = hashlib.sha256(body).hexdigest()[:32]
            found[entry.name] = StaticFile(media_type, body, tag)
    return MappingProxyType(found)
