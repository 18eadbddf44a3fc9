"""The host itself as a destination, and other hosts as callers."""

from __future__ import annotations

import ipaddress

from node.model.urls import split_url

_V6_PREFIX = 64  # one customer's network


def network_of(remote: str) -> tuple[str, bool]:
    """Return the address or network that counts as one caller, and whether it is local."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote, True  # no address: a local socket
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        network = ipaddress.IPv6Network((address, _V6_PREFIX), strict=False)
        return str(network), False
    return str(address), address.is_loopback


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, without port or brackets, is the host's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_exposed(url: str) -> bool:
    """Return whether what is sent to a URL can be read or changed on the way to another host."""
    parts = split_url(url)
    return parts is None or (parts.scheme == "http" and not is_loopback(parts.hostname or ""))
