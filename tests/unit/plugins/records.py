"""Records that our programs print for one interval, with optional changes."""

from __future__ import annotations

import json
from typing import Any

from node.model.intervals import Interval
from node.plugins.distribution import distribution, histogram, jitter
from node.plugins.tools import procnet, stampbg
from tests.unit.plugins.parts import context

CLOCK = {"synchronised": True, "error_bound_ns": 2_000_000, "stepped_ns": 1000, "identity": "aa"}
WAYS = ("forward", "backward", "round_trip")
SPEC: dict[str, Any] = {"duration": "PT10S", "each": "PT1S"}
"""Ten intervals of ten packets."""


def sender_record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of ten packets, there in 20 ms and more, back in 1 ms."""
    there = {at: 20_000 + 100 * at for at in range(10)}
    delays = {
        "forward": there,
        "backward": dict.fromkeys(there, 1000),
        "round_trip": {at: delay + 1000 for at, delay in there.items()},
    }
    in_ms = {way: {at: us / 1000 for at, us in delays[way].items()} for way in WAYS}
    record = {
        "interval": number,
        "sent": 10,
        "unsent": 0,
        "received_back": 10,
        "late": 0,
        "unreachable": 0,
        "duplicates_forward": 0,
        "duplicates_backward": 0,
        "reordered_backward": 0,
        "delay_ms": {way: distribution(in_ms[way].values()) for way in WAYS},
        "jitter_ms": {way: jitter(in_ms[way]) for way in WAYS},
        "histogram_us": {way: _histogram(delays[way]) for way in WAYS},
        "ttls": [250, 252],
        "complaint": "",
        "clock": CLOCK,
    }
    return record | changes


def owamp_record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of ten packets each way, from and to a server of OWAMP."""
    record = sender_record(number) | {
        "received_at_dest": 10,
        "reordered_forward": 0,
        "server": {"synchronised": True, "error_bound_ns": 70_000},
    }
    del record["unreachable"]
    return record | changes


def silence(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of an interval without answers."""
    nothing = dict.fromkeys(WAYS)
    empty = {way: {"width": 1, "buckets": []} for way in WAYS}
    figures = {"delay_ms": nothing, "jitter_ms": nothing, "histogram_us": empty, "ttls": None}
    return sender_record(number, received_back=0, **figures) | changes


def reflector_record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of ten packets that arrived."""
    counts = {"received": 10, "duplicates": 0, "reordered": 0, "unsent": 0, "strays": 0}
    return {"interval": number, **counts, "clock": CLOCK | {"identity": "bb"}} | changes


def clients_record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of ten packets of irtt's, without the counts that irtt lacks."""
    record = sender_record(number, received_at_dest=10)
    for name in ("unreachable", "duplicates_forward", "ttls"):
        del record[name]
    return record | changes


def server_record(number: int = 0) -> dict[str, Any]:
    """Return a record of irtt's server."""
    return {"interval": number, "clock": CLOCK | {"identity": "bb"}}


def reading(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a second of an interface: 1000 bytes in, 250 out."""
    counts = {"bytes": 1000, "packets": 10, "errors": 0, "drops": 0}
    sent = {"bytes": 250, "packets": 4, "errors": 0, "drops": 0}
    counters = {"interface": "eth0", "took_ns": 10**9, "received": counts, "sent": sent}
    return {"interval": number, "told": counters | changes}


def sleepers_record(number: int = 0) -> dict[str, Any]:
    """Return a record of one interval of a sleeper."""
    return {"interval": number, "slept_ns": 10_000_000_000}


def at_source(document: dict[str, Any]) -> Interval:
    """Read a record as the source's node does."""
    return stampbg.TOOL.read_interval(context("latencybg", 0, **SPEC), _bytes(document))


def at_dest(document: dict[str, Any]) -> Interval:
    """Read a record as the dest's node does."""
    return stampbg.TOOL.read_interval(context("latencybg", 1, **SPEC), _bytes(document))


def counted(document: dict[str, Any]) -> Interval:
    """Read a record as a node reads its interface's counts."""
    return procnet.TOOL.read_interval(context("interface", **SPEC), _bytes(document))


def _bytes(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _histogram(delays_us: dict[int, int]) -> dict[str, Any]:
    width, buckets = histogram(delays_us.values())
    return {"width": width, "buckets": sorted(buckets.items())}
