"""Describe why a connection failed."""

from __future__ import annotations

import os

import aiohttp


def cause_of(error: Exception) -> str:
    """Return the system's reason without the address, which the caller's sentence names."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        reason = getattr(error.os_error, "reason", None)
        return f"TLS failed: {str(reason or error.os_error).replace('_', ' ').lower()}"
    if isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientSSLError):
        return os.strerror(error.errno).lower() if error.errno else str(error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        words = getattr(error.certificate_error, "verify_message", "")
        return str(words) or "its certificate is not valid"
    return str(error) or type(error).__name__
