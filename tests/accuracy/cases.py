"""What is measured over which WANs, and what the truth of each figure is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from node.lab.wan import WanSettings
from tests.accuracy.ground import Truth

DELAYS_MS = (0.0, 20.0, 200.0)
LOSSES = (0.0, 0.01, 0.1)
RATES_MBIT = (1.0, 10.0, 50.0, 200.0, 500.0)
IP_VERSIONS = (4, 6)
_BOTH = {"source": "a.example", "dest": "b.example"}
_MTU = 1500
_HEADERS = {4: 52, 6: 72}
"""Bytes of IP and TCP headers, time stamps included, in each full packet."""

Figures = dict[str, tuple[float, float]]
"""Figure → truth and what was reported, both in the unit at the end of its name."""


@dataclass(frozen=True)
class Case:
    """One run: of what, over what, and how its figures are compared with the truth."""

    test: str
    tool: str
    spec: Mapping[str, Any]
    wan: WanSettings
    ip_version: int
    compare: Callable[[WanSettings, Truth, Mapping[str, Any]], Figures]

    @property
    def condition(self) -> str:
        """``20 ms, loss 1 %, 50 Mb/s, IPv6``."""
        words = [f"{self.wan.delay_ms:g} ms", f"loss {100 * self.wan.loss:g} %"]
        if self.wan.rate_mbit is not None:
            words.append(f"{self.wan.rate_mbit:g} Mb/s")
        return ", ".join([*words, f"IPv{self.ip_version}"])


def cases() -> Iterator[Case]:
    """All of them, by test and tool."""
    every = (*_round_trips(), *_traces(), *_latencies(), *_clocks(), *_tcp(), *_udp())
    for seed, case in enumerate(every, 1):  # else all would lose the same packets
        yield replace(case, wan=replace(case.wan, seed=seed))


def _paths() -> Iterator[tuple[WanSettings, int]]:
    """Each delay with each loss, by both versions of IP."""
    for delay_ms in DELAYS_MS:
        for loss in LOSSES:
            for ip_version in IP_VERSIONS:
                yield WanSettings(delay_ms=delay_ms, loss=loss), ip_version


def _round_trips() -> Iterator[Case]:
    spec = {"dest": "b.example", "count": 200, "interval": "PT0.01S"}
    for tool in ("ping", "fping"):
        for wan, ip_version in _paths():
            given = spec | {"ip_version": ip_version}
            yield Case("rtt", tool, given, wan, ip_version, _compare_rtt)


def _compare_rtt(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
    """All packets are echoes; each direction may lose one."""
    lost = truth.forward.lost + truth.backward.lost
    return {
        "rtt_median_ms": (2 * wan.delay_ms, result["rtt_ms"]["median"]),
        "loss": (lost / truth.forward.taken, result["loss"]),
    }


def _traces() -> Iterator[Case]:
    """One hop, and no loss: which hop a lost packet was meant for, the WAN does not know."""
    for tool in ("scamper", "traceroute", "mtr", "tracepath"):
        for wan, ip_version in _paths():
            if not wan.loss:
                given = {"dest": "b.example", "ip_version": ip_version}
                yield Case("trace", tool, given, wan, ip_version, _compare_trace)


def _compare_trace(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
    rtts_ms = [rtt for each in result["hops"][-1]["addresses"] for rtt in each["rtts_ms"]]
    return {"rtt_median_ms": (2 * wan.delay_ms, statistics.median(rtts_ms))}


def _latencies() -> Iterator[Case]:
    spec = {**_BOTH, "count": 200, "interval": "PT0.01S"}
    for tool in ("stamp", "irtt"):
        for wan, ip_version in _paths():
            yield Case("latency", tool, spec, wan, ip_version, _compare_latency)


def _compare_latency(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
    delays, loss = result["delay_ms"], result["loss"]
    return {
        "forward_median_ms": (wan.delay_ms, delays["forward"]["median"]),
        "backward_median_ms": (wan.delay_ms, delays["backward"]["median"]),
        "forward_loss": (truth.forward.loss, loss["forward"]),
        "backward_loss": (truth.backward.loss, loss["backward"]),
    }


def _clocks() -> Iterator[Case]:
    for wan, ip_version in _paths():
        yield Case("clock", "stamp", {**_BOTH}, wan, ip_version, _compare_clocks)


def _compare_clocks(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
    """Both ends have one clock; by how much it may be wrong is what one way takes."""
    return {
        "offset_ms": (0.0, result["offset_ms"]),
        "bound_ms": (wan.delay_ms, result["bound_ms"]),
    }


_FLOWING: Mapping[str, Mapping[str, Any]] = {"iperf3": {}, "nuttcp": {"congestion": "host"}}


def _tcp() -> Iterator[Case]:
    for tool, rate, ip_version in product(_FLOWING, RATES_MBIT, IP_VERSIONS):
        yield Case(
            "throughput",
            tool,
            {**_BOTH, "duration": "PT5S", **_FLOWING[tool]},
            WanSettings(delay_ms=5, rate_mbit=rate, queue_ms=100),
            ip_version,
            _compare_tcp(ip_version),
        )


def _compare_tcp(
    ip_version: int,
) -> Callable[[WanSettings, Truth, Mapping[str, Any]], Figures]:
    """The link's rate, less the headers of full packets, is what TCP can deliver."""
    payload = (_MTU - _HEADERS[ip_version]) / _MTU

    def compare(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
        return {"rate_mbps": ((wan.rate_mbit or 0) * payload, result["rate_bps"] / 1e6)}

    return compare


def _udp() -> Iterator[Case]:
    paths = ((1, 0.0), (10, 0.01), (50, 0.1))
    for tool, (rate, loss), ip_version in product(_FLOWING, paths, IP_VERSIONS):
        yield Case(
            "throughput",
            tool,
            {**_BOTH, "duration": "PT5S", "protocol": "udp", "rate_bps": rate * 800_000},
            WanSettings(delay_ms=5, loss=loss, rate_mbit=rate),
            ip_version,
            _compare_udp,
        )


def _compare_udp(wan: WanSettings, truth: Truth, result: Mapping[str, Any]) -> Figures:
    """What is sent is four fifths of the link's rate; a share of it is lost."""
    sent = 0.8 * (wan.rate_mbit or 0)
    return {
        "udp_rate_mbps": (sent * (1 - truth.forward.loss), result["rate_bps"] / 1e6),
        "udp_loss": (truth.forward.loss, result["datagrams"]["loss"]),
    }
