"""The name by which this host's programs call themselves to targets, with a contact. Pure."""

from __future__ import annotations

import re

AGENT = "parley"
CONTACT = re.compile(r"[!#-'*-\[\]-~]{1,200}", re.ASCII)
"""Printable characters but for blanks, quotes, backslashes, and parentheses."""


def user_agent(version: str, contact: str | None) -> str:
    """Return the product with its version, and in a comment whom to ask (RFC 9110, 10.1.5)."""
    return f"{AGENT}/{version}" + (f" (+{contact})" if contact else "")
