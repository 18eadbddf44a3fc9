"""TOML that somebody else has written, read at a cost in proportion to its length. Pure.

The library keeps each beginning of a dotted key: one of 100,000 parts, in a file of 200 kB, would
take ten seconds and gigabytes.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from node.model.nesting import DEPTH_MAX

_NO_KEYS = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\.)*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments, whose dots are no part of a key."""
_LONG_KEY = re.compile(rf"(?:\.[^.,=\n]*){{{DEPTH_MAX}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """Return a document of TOML.

    :raises ValueError: it is none, or nests too deep.
    """
    if _LONG_KEY.search(_NO_KEYS.sub("", text)):
        msg = f"a key has more than {DEPTH_MAX} parts"
        raise ValueError(msg)
    try:
        return tomllib.loads(text)
    except RecursionError:
        msg = "lists and tables are nested too deep"
        raise ValueError(msg) from None
