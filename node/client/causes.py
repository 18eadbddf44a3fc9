"""Why there was no connection, in words."""

from __future__ import annotations

import os

import aiohttp


def cause_of(error: Exception) -> str:
    """What the system said, without what the sentence around it says already."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientSSLError):
        return os.strerror(error.errno).lower() if error.errno else str(error)
    return str(error) or type(error).__name__
