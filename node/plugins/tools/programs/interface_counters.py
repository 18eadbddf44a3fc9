"""Reads the counters of a network interface at the end of each interval: a program of its own.

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

_SECOND_NS = 1_000_000_000
_DEVICES = Path("/proc/net/dev")
_ROUTES = Path("/proc/net/route")
_ROUTES_6 = Path("/proc/net/ipv6_route")
_ANYWHERE = "00000000"
_ANYWHERE_6 = "0" * 32
_UP = 0x1  # RTF_UP, linux/route.h
_REJECT = 0x200  # RTF_REJECT: the entry that is there without a route

COLUMNS = {
    "received": {"bytes": 0, "packets": 1, "errors": 2, "drops": 3},
    "sent": {"bytes": 8, "packets": 9, "errors": 10, "drops": 11},
}
"""Where /proc/net/dev has what (net/core/net-procfs.c)."""

_FIGURES = 16

Counters = dict[str, dict[str, int]]
"""By direction and name."""


def counters(text: str) -> dict[str, Counters]:
    """What /proc/net/dev says, by interface; lines that are none are passed over."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        figures = rest.split()
        if colon and len(figures) >= _FIGURES and all(map(str.isdecimal, figures)):
            found[name.strip()] = {
                way: {what: int(figures[at]) for what, at in columns.items()}
                for way, columns in COLUMNS.items()
            }
    return found


def difference(before: int, after: int) -> int | None:
    """By how much a counter grew that may have begun again at 2^32 or 2^64; None: it was reset.

    It began again if it was in the upper half of its range, and is in the lower half now.
    """
    if after >= before:
        return after - before
    for size in (2**32, 2**64):
        if before < size:
            wrapped = before >= size // 2 > after
            return after - before + size if wrapped else None
    return None


def differences(before: Counters, after: Counters) -> Counters | None:
    """By how much all counters grew; None if one of them was reset."""
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
    """The interface of the default route: IPv4's of least metric, else IPv6's; None: no route."""
    rows = [line.split() for line in routes.splitlines()[1:]]
    rows_6 = [line.split() for line in routes_6.splitlines()]
    found = [
        (0, int(row[6]), row[0])
        for row in rows
        if row[1] == row[7] == _ANYWHERE and int(row[3], 16) & _UP
    ]
    found += [
        (1, int(row[5], 16), row[9])
        for row in rows_6
        if row[:2] == [_ANYWHERE_6, "00"] and int(row[8], 16) & (_UP | _REJECT) == _UP
    ]
    return min(found)[2] if found else None


class InterfaceWatcher:
    """One interface: its counters at the end of the last interval."""

    def __init__(self, name: str) -> None:
        """Begin with the counters as they are."""
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
        """What was counted since the last look, or the ``reason`` why that is not known."""
        before, index, since_ns = self._counters, self._index, self._read_ns
        self._index, self._counters = self._now()
        self._read_ns = time.monotonic_ns()
        if self._counters is None:
            return {"reason": f"there is no interface {self._name} any more"}
        if before is None or self._index != index:
            return {"reason": f"the interface {self._name} was made anew"}
        grown = differences(before, self._counters)
        if grown is None:
            return {"reason": f"the counters of {self._name} were reset"}
        return {"interface": self._name, "took_ns": self._read_ns - since_ns, **grown}


def _chosen(wanted: str | None) -> str:
    names = sorted(counters(_DEVICES.read_text()))
    if wanted is None:
        routes_6 = _ROUTES_6.read_text() if _ROUTES_6.exists() else ""
        wanted = default_interface(_ROUTES.read_text(), routes_6)
        if wanted is None:
            raise stamp_endpoint.Unusable(
                f"there is no default route; name one of the interfaces {', '.join(names)}"
            )
    if wanted not in names:
        there = ", ".join(names)
        raise stamp_endpoint.Unusable(f"there is no interface {wanted}; there are {there}")
    return wanted


def measure(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All intervals.

    Arguments: ``interface`` (its name; null is that of the default route), ``first_ns`` (when the
    first interval begins), ``each_ns`` (how long one is), ``intervals`` (how many).
    Records: ``interface``, ``took_ns``, and by ``received`` and ``sent`` how many ``bytes``,
    ``packets``, ``errors`` and ``drops`` were counted; or ``reason``.
    Result: ``intervals``, the number of records.
    """
    name = _chosen(arguments["interface"])
    each_ns, count = arguments["each_ns"], arguments["intervals"]
    stamp_endpoint.wait_until(arguments["first_ns"])
    began_ns = time.monotonic_ns()
    watch = InterfaceWatcher(name)
    for number in range(count):
        _sleep_until(began_ns + (number + 1) * each_ns)
        stamp_endpoint.record({"interval": number, "told": watch.look()})
    return {"intervals": count}


def _sleep_until(due_ns: int) -> None:
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / _SECOND_NS)


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
