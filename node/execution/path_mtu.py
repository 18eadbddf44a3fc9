"""The largest packet that gets to an address in one piece, found by pings. It starts a program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass

from node.execution import process
from node.execution.process import Confinement, Needs
from node.execution.tool_runner import ToolRunner
from node.model.errors import HostError
from node.plugins.contracts import Privilege
from node.plugins.ownprograms import own_program

_IP_MTU, _IPV6_MTU = 14, 24
_MOST = 65535
_WAIT_S = 0.6
_TRIES = 3
_WAIT_AT_ONCE_S = 0.3


@dataclass(frozen=True)
class PathMtu:
    """The result of a search, in bytes.

    ``link`` is what the kernel knows of the way, ``mtu`` the largest size that was answered, None
    if none was, for the reason ``fault``. ``vanished`` is the smallest size that was lost without a
    report, ``told_by`` who reported a limit.
    """

    link: int | None
    mtu: int | None
    fault: str | None = None
    vanished: int | None = None
    told_by: str | None = None


async def find(
    address: str, runner: ToolRunner, timeout_s: float, *, at_once: bool = False
) -> PathMtu:
    """Search for the largest packet that gets to an address and back.

    ``at_once``: as fast as possible, with many packets under way together (some two seconds).
    """
    link = await _link_mtu(address)
    arguments = {
        "host": address,
        "ip_version": None,
        "device": None,
        "source": None,
        "most": min(link or _MOST, _MOST),
        "wait_s": _WAIT_AT_ONCE_S if at_once else _WAIT_S,
        "tries": _TRIES,
        "first_ns": 0,
        "at_once": at_once,
    }
    command = own_program("mtu_search.py", arguments)
    confinement = Confinement(runner, Needs(timeout_s, Privilege.ECHO, connects=False))
    try:
        ended = await process.finish(command.argv, timeout_s=timeout_s, confinement=confinement)
    except HostError as error:
        return PathMtu(link, None, error.detail)
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        said = process.tail(ended.stderr, 1)
        return PathMtu(link, None, f"the search printed no result: {said}")
    if "error" in found:
        return PathMtu(link, None, str(found["error"]))
    told_by = next((who for who, _ in found["limits"] if who), None)
    return PathMtu(link, found["mtu"], None, found["vanished"], told_by)


async def _link_mtu(address: str) -> int | None:
    """Return the MTU of the way to an address as the kernel knows it; None if it does not."""
    with contextlib.suppress(OSError):
        loop = asyncio.get_running_loop()
        family, *_, place = (await loop.getaddrinfo(address, 9, type=socket.SOCK_DGRAM))[0]
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect(place)  # sends nothing
            if family == socket.AF_INET6:
                return asking.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
            return asking.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    return None
