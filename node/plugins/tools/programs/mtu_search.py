"""Searches for the largest packet that fits, by pings that must not be fragmented.

``mtu_search.py '{"host": "192.0.2.1", "most": 65535, …}'``, see :func:`measure`. It starts the
system's ``ping`` for each size, because ping is the program that may send echo requests.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

LEAST = {4: 68, 6: 1280}
"""The size that every link carries (RFC 791, RFC 8200); nothing smaller is tried."""

HEADERS = {4: 28, 6: 48}
"""Bytes of IP and ICMP headers."""

_PRINTED_MAX = 1_000_000
"""Maximum bytes on each stream; the kernel ends a ping that prints more."""

_OWN = re.compile(r"local error: message too long, mtu[=:] ?(\d{1,6})", re.ASCII)
_TOLD = re.compile(
    r"From (\S{1,100}) icmp_seq=\d+ "
    r"(?:Frag needed and DF set \(mtu = |Packet too big: mtu=)(\d{1,6})",
    re.ASCII,
)
_ANSWERED = re.compile(r"\d+ bytes from .{1,300} time=", re.ASCII)
_REFUSED = re.compile(r"From (\S{1,100}) icmp_seq=\d+ (.{1,200})")
_INTERVAL_S = "0.2"  # the shortest that every version allows users other than root
_AT_ONCE = 16
"""Number of sizes of a round of :func:`search_at_once`."""
_CANNOT = 2  # ping's exit code when it could not send


@dataclass(frozen=True)
class ProbeOutcome:
    """The outcome of packets of one size: answered, limited by a reporting host, or silent."""

    answered: bool = False
    told_by: str | None = None
    mtu: int = 0
    """The reported size in bytes; 0 if none was reported."""
    own: bool = False
    """This host itself reports the limit, without sending."""
    said: str = ""

    @property
    def silent(self) -> bool:
        """True if there was neither an answer nor a report."""
        return not self.answered and self.told_by is None and not self.own


@dataclass
class MtuBounds:
    """The bounds so far: packets of ``fits`` bytes pass; ``limits`` are who reported which size."""

    fits: int
    limits: list[tuple[str | None, int]] = field(default_factory=list)
    vanished: int | None = None
    """The smallest size that vanished."""


def search(attempt: Callable[[int], ProbeOutcome], least: int, most: int) -> MtuBounds | None:
    """Search for the largest answered size; None if not even ``least`` is answered.

    It is assumed that all sizes up to the largest one are answered. A reported limit is tried next;
    otherwise the range is bisected.
    """
    if not attempt(least).answered:
        return None
    bounds, most = MtuBounds(least), max(least, most)
    size = most
    while bounds.fits < most:
        outcome = attempt(size)
        if outcome.answered:
            bounds.fits = size
        else:
            if outcome.silent:
                bounds.vanished = size
            elif outcome.mtu:
                bounds.limits.append((outcome.told_by, outcome.mtu))
            most = size - 1
            if bounds.fits <= outcome.mtu <= most:
                size = most = outcome.mtu
                continue
        size = (bounds.fits + most + 1) // 2
    return bounds


def search_at_once(
    attempt: Callable[[Sequence[int]], Sequence[ProbeOutcome]], least: int, most: int
) -> MtuBounds | None:
    """Search like :func:`search`, in a few rounds with packets of many sizes each.

    It takes the shortest time that is possible if all that is too long vanishes. One packet of each
    size is sent; if a single size was lost of all, that is tried again, because it proves nothing.
    """
    bounds, longest = MtuBounds(least), max(least, most)
    lost: set[int] = set()
    most, sizes = longest, [least, *_spread(least, longest)]
    while sizes:
        outcomes = dict(zip(sizes, attempt(sizes), strict=True))
        if least in outcomes and not outcomes[least].answered:
            return None
        bounds.fits = max([bounds.fits, *(size for size in sizes if outcomes[size].answered)])
        failed = {size: outcomes[size] for size in sizes if size > bounds.fits}
        told = {(it.told_by, it.mtu) for it in failed.values() if it.mtu}
        bounds.limits += sorted(told - set(bounds.limits), key=lambda limit: -limit[1])
        silent = [size for size, outcome in failed.items() if outcome.silent]
        bounds.vanished = min(filter(None, (*silent, bounds.vanished)), default=None)
        lost |= failed.keys()
        most = min([most, *(size - 1 for size in failed)])
        sizes = _spread(bounds.fits, most)
    if len(lost) == 1 and attempt([*lost])[0].answered:
        return MtuBounds(longest)
    return bounds


def _spread(fits: int, most: int) -> list[int]:
    """Return sizes above the one that fits, evenly up to the largest one that may."""
    steps = min(_AT_ONCE, most - fits)
    return [fits + (most - fits) * step // steps for step in range(1, steps + 1)]


def outcome_of(printed: str) -> ProbeOutcome:
    """Parse the output of one ping."""
    if _ANSWERED.search(printed):
        return ProbeOutcome(answered=True)
    if own := _OWN.search(printed):
        return ProbeOutcome(own=True, mtu=int(own[1]))
    if report := _TOLD.search(printed):
        return ProbeOutcome(told_by=report[1], mtu=int(report[2]))
    refused = _REFUSED.search(printed)
    return ProbeOutcome(said=f"{refused[2].strip()} (from {refused[1]})" if refused else "")


class SizeProber:
    """Pings of one address: one per size, and more if it is lost, because loss proves nothing."""

    def __init__(self, address: str, version: int, arguments: stamp_endpoint.Arguments) -> None:
        """Prepare pings of ``address``, with the arguments of :func:`measure`."""
        self.said = ""
        self._argv = ["ping", f"-{version}", "-n", "-M", "do", "-i", _INTERVAL_S]
        self._argv += ["-W", f"{arguments['wait_s']:g}"]
        via = arguments.get("device") or arguments.get("source")
        self._argv += [] if via is None else ["-I", via]
        self._address = address
        self._headers = HEADERS[version]
        self._again = arguments["tries"] - 1

    def __call__(self, size: int) -> ProbeOutcome:
        """Return the outcome of packets of ``size`` bytes.

        :raises stamp_endpoint.Unusable: ping cannot send.
        """
        outcome = self._ping(size, 1)
        if outcome.silent:
            self.said = outcome.said or self.said
            outcome = self._ping(size, self._again)
        return outcome

    def at_once(self, sizes: Sequence[int]) -> list[ProbeOutcome]:
        """Return the outcomes of packets of several sizes that are under way together.

        :raises stamp_endpoint.Unusable: ping cannot send.
        """
        with ThreadPoolExecutor(len(sizes)) as pool:
            return list(pool.map(lambda size: self._ping(size, 1), sizes))

    def _ping(self, size: int, count: int) -> ProbeOutcome:
        argv = [*self._argv, "-c", str(count), "-s", str(size - self._headers)]
        argv += ["--", self._address]
        exit_code, stdout, stderr = finish(argv)
        outcome = outcome_of(stdout + stderr)
        if (exit_code >= _CANNOT or exit_code < 0) and not outcome.own:
            lines = stderr.strip().splitlines() or ["it printed no reason"]
            raise stamp_endpoint.Unusable(lines[0].removeprefix("ping: "))
        return outcome


def finish(argv: list[str]) -> tuple[int, str, str]:
    """Run a program; return its exit code and what it printed on its two streams.

    Its output goes into files, not pipes: child processes that it leaves behind may keep them open
    without blocking us.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        exit_code = subprocess.call(argv, stdout=out, stderr=err)  # noqa: S603 - an argv, no shell
        printed = [
            os.pread(stream.fileno(), _PRINTED_MAX, 0).decode(errors="replace")
            for stream in (out, err)
        ]
    return exit_code, printed[0], printed[1]


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run the search.

    Arguments: ``host`` (address or name), ``ip_version`` (4, 6 or null), ``device``, ``source``
    (the address to send from, or null), ``most`` (bytes), ``wait_s``, ``tries`` for each size (2 or
    more), ``first_ns`` (the instant to begin), ``at_once`` (whether to send many sizes together).
    Result: ``address``, ``mtu``, ``limits`` as [reporting address or null, bytes], ``vanished``:
    the smallest size without an answer or a report, or null.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (_PRINTED_MAX, _PRINTED_MAX))
    host: str = arguments["host"]
    addresses = stamp_endpoint.addresses(host, arguments["ip_version"], 0)
    family, (address, *_) = addresses[0]
    version = 6 if family == socket.AF_INET6 else 4
    prober = SizeProber(address, version, arguments)
    stamp_endpoint.wait_until(arguments["first_ns"])
    least, most = LEAST[version], arguments["most"]
    if arguments.get("at_once"):
        mtu = search_at_once(prober.at_once, least, most)
    else:
        mtu = search(prober, least, most)
    if mtu is None:
        why = f": {prober.said}" if prober.said else ""
        return {"error": f"{address} answers no echo request of {LEAST[version]} bytes{why}"}
    return {"address": address, "mtu": mtu.fits, "limits": mtu.limits, "vanished": mtu.vanished}


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
