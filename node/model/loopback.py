"""The host itself as a destination."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, without port or brackets, is the host's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_exposed(url: str) -> bool:
    """Return whether what is sent to a URL can be read or changed on the way to another host."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
