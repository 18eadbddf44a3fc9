"""Describe why a connection of aiohttp failed."""

from __future__ import annotations

import aiohttp

from node.client.exchanges import UNRESOLVED, system_cause


def cause_of(error: Exception) -> str:
    """Return the system's reason without the address, which the caller's sentence names."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return UNRESOLVED
        case aiohttp.ClientConnectorSSLError():
            return system_cause(error.os_error)
        case aiohttp.ClientConnectorCertificateError():
            return system_cause(error.certificate_error)
        case _:
            return system_cause(error)
