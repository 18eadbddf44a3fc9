"""Describe why a connection failed."""

from __future__ import annotations

import os

import aiohttp


def cause_of(error: Exception) -> str:
    """Return the system's reason without the address, which the caller's sentence names."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientSSLError):
        return os.strerror(error.errno).lower() if error.errno else str(error)
    return str(error) or type(error).__name__
