"""Reads the counters of a network interface at the end of each interval, in its own process.

``interface_counters.py '{"interface": "eth0", "first_ns": …, "each_ns": …, "intervals": …}'``, see
:func:`measure`. It sees the interfaces of the network namespace in which it is started.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_DEVICES = Path("/proc/net/dev")
_ROUTES = Path("/proc/net/route")
_ROUTES_6 = Path("/proc/net/ipv6_route")
_ANYWHERE = "00000000"
_ANYWHERE_6 = "0" * 32
_UP = 0x1  # RTF_UP, linux/route.h
_REJECT = 0x200  # RTF_REJECT: the entry that exists when there is no route

COLUMNS = {
    "received": {"bytes": 0, "packets": 1, "errors": 2, "drops": 3},
    "sent": {"bytes": 8, "packets": 9, "errors": 10, "drops": 11},
}
"""The columns of /proc/net/dev (net/core/net-procfs.c)."""

_FIGURES = 16

Counters = dict[str, dict[str, int]]
"""Counts by direction and name."""


def counters(text: str) -> dict[str, Counters]:
    """Parse /proc/net/dev by interface; other lines are ignored."""
    by_interface = {}
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        figures = rest.split()
        if colon and len(figures) >= _FIGURES and all(map(str.isdecimal, figures)):
            by_interface[name.strip()] = {
                way: {what: int(figures[at]) for what, at in columns.items()}
                for way, columns in COLUMNS.items()
            }
    return by_interface


def difference(before: int, after: int) -> int | None:
    """Return how much a counter grew, which may have wrapped at 2^32 or 2^64; None: it was reset.

    It wrapped if it was in the upper half of its range, and is in the lower half now.
    """
    if after >= before:
        return after - before
    for size in (2**32, 2**64):
        if before < size:
            wrapped = before >= size // 2 > after
            return after - before + size if wrapped else None
    return None


def differences(before: Counters, after: Counters) -> Counters | None:
    """Return how much all counters grew; None if one of them was reset."""
    grown: Counters = {}
    for way, figures in before.items():
        grown[way] = {}
        for what, value in figures.items():
            more = difference(value, after[way][what])
            if more is None:
                return None
            grown[way][what] = more
    return grown


def default_interface(routes: str, routes_6: str) -> str | None:
    """Return the interface of the default route: IPv4's best, or IPv6's; None without a route."""
    rows = [line.split() for line in routes.splitlines()[1:]]
    rows_6 = [line.split() for line in routes_6.splitlines()]
    candidates = [
        (0, int(row[6]), row[0])
        for row in rows
        if row[1] == row[7] == _ANYWHERE and int(row[3], 16) & _UP
    ]
    candidates += [
        (1, int(row[5], 16), row[9])
        for row in rows_6
        if row[:2] == [_ANYWHERE_6, "00"] and int(row[8], 16) & (_UP | _REJECT) == _UP
    ]
    return min(candidates)[2] if candidates else None


class InterfaceWatcher:
    """One interface, with its counters at the end of the last interval."""

    def __init__(self, name: str) -> None:
        """Start from the current counters."""
        self._name = name
        self._index, self._counters = self._now()
        self._read_ns = time.monotonic_ns()

    def _now(self) -> tuple[int, Counters | None]:
        try:
            index = socket.if_nametoindex(self._name)
        except OSError:
            return 0, None
        return index, counters(_DEVICES.read_text()).get(self._name)

    def look(self) -> dict[str, Any]:
        """Return the counts since the last look, or the ``reason`` why they are unknown."""
        before, index, since_ns = self._counters, self._index, self._read_ns
        self._index, self._counters = self._now()
        self._read_ns = time.monotonic_ns()
        if self._counters is None:
            return {"reason": f"the interface {self._name} was removed"}
        if before is None or self._index != index:
            return {"reason": f"the interface {self._name} was recreated"}
        grown = differences(before, self._counters)
        if grown is None:
            return {"reason": f"the counters of {self._name} were reset"}
        return {"interface": self._name, "took_ns": self._read_ns - since_ns, **grown}


def _choose(name: str | None) -> str:
    names = sorted(counters(_DEVICES.read_text()))
    if name is None:
        routes_6 = _ROUTES_6.read_text() if _ROUTES_6.exists() else ""
        name = default_interface(_ROUTES.read_text(), routes_6)
        if name is None:
            raise stamp_endpoint.Unusable(
                f"there is no default route; name one of the interfaces {', '.join(names)}"
            )
    if name not in names:
        raise stamp_endpoint.Unusable(f"there is no interface {name}; there are {', '.join(names)}")
    return name


def measure(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Measure all intervals.

    Arguments: ``interface`` (its name; null is that of the default route), ``first_ns`` (when the
    first interval begins), ``each_ns`` (the length of an interval), ``intervals`` (their number).
    Records: ``interface``, ``took_ns``, and the ``bytes``, ``packets``, ``errors`` and ``drops``
    counted as ``received`` and ``sent``; or ``reason``.
    Result: ``intervals``, the number of records.
    """
    name = _choose(arguments["interface"])
    each_ns, count = arguments["each_ns"], arguments["intervals"]
    stamp_endpoint.wait_until(arguments["first_ns"])
    began_ns = time.monotonic_ns()
    watch = InterfaceWatcher(name)
    for number in range(count):
        stamp_endpoint.sleep_until(began_ns + (number + 1) * each_ns)
        stamp_endpoint.record({"interval": number, "told": watch.look()})
    return {"intervals": count}


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
