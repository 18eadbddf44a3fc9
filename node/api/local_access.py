"""Recognise requests of programs and people on this host, who may read without a token. Pure.

A request over loopback comes from this host, unless somebody else's request came through a proxy on
this host, or from a page of another site in a browser on this host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from node.model.loopback import is_loopback

_FORWARDING = re.compile(
    r"x[-_]forwarded.*|forwarded|via|cdn-loop|x[-_]real[-_]ip|x-original-.*|x-envoy-.*"
    r"|.*client-?ip|.*connecting-ip|proxy-connection|x-(arr|amzn)-.*|x-request-start",
    re.ASCII,
)
"""The headers that proxies add, and networks of proxies: Akamai, AWS, Azure, Cloudflare, Fastly."""

_HOST = re.compile(r"(localhost|[0-9.]+|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?", re.ASCII)


def is_local(
    remote: str | None, version: tuple[int, int], target: str, headers: Mapping[str, str]
) -> bool:
    """Return whether a request comes from this host itself, as far as it shows.

    ``remote`` is the caller's address; ``version`` (of HTTP) and ``target`` are the request line's.
    A name in ``Host`` that resolves to this host may be an attacker's (DNS rebinding), so only
    ``localhost`` and loopback addresses count there; a whole URL as the target would take
    precedence over ``Host``. HTTP/1.0 is what nginx speaks to a server behind it, unless told.
    """
    return (
        is_loopback(remote or "")
        and version >= (1, 1)
        and target.startswith("/")
        and _names_loopback(headers.get("Host", ""))
        and not is_forwarded(headers)
    )


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Return whether a proxy has passed the request on."""
    return any(map(_FORWARDING.fullmatch, map(str.lower, headers)))


def _names_loopback(host: str) -> bool:
    shape = _HOST.fullmatch(host)
    return shape is not None and is_loopback(shape[1].strip("[]"))
