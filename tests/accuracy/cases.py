"""The cases: what is measured over which WANs, and the truth of each figure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from node.cli.lab.wan import WanSettings
from node.execution.trial import Trial
from tests.accuracy.ground import Truth
from tests.accuracy.serving import NAME

DELAYS_MS = (0.0, 20.0, 200.0)
LOSSES = (0.0, 0.01, 0.1)
RATES_MBIT = (1.0, 10.0, 50.0, 200.0, 500.0)
LINKS_BYTES = (1280, 1400, 1492)
IP_VERSIONS = (4, 6)
_BOTH = {"source": "a.example", "dest": "b.example"}
_MTU = 1500
_HEADERS = {4: 52, 6: 72}
"""Bytes of IP and TCP headers, including timestamps, in each full packet."""

Figures = dict[str, tuple[float, float]]
"""Maps a figure to the truth and the reported value, both in the unit at the end of its name."""


@dataclass(frozen=True)
class Case:
    """One run: its test, its WAN, and how its figures are compared with the truth.

    ``link_bytes`` is the MTU of the link behind the WAN. ``echoes`` are sent during the run: their
    number and their size in bytes. No other run is concurrent with one that is ``alone``.
    """

    test: str
    tool: str
    spec: Mapping[str, Any]
    wan: WanSettings
    ip_version: int
    compare: Callable[[Case, Truth, Trial], Figures]
    link_bytes: int = _MTU
    echoes: tuple[int, int] | None = None
    alone: bool = False

    @property
    def condition(self) -> str:
        """Return ``20 ms, loss 1 %, 50 Mb/s, IPv6``."""
        words = [f"{self.wan.delay_ms:g} ms", f"loss {100 * self.wan.loss:g} %"]
        if self.wan.rate_mbit is not None:
            words.append(f"{self.wan.rate_mbit:g} Mb/s")
        if self.link_bytes != _MTU:
            words.append(f"a link of {self.link_bytes} bytes")
        if self.echoes is not None:
            words.append(f"pings of {self.echoes[1]} bytes")
        return ", ".join([*words, f"IPv{self.ip_version}"])


def cases() -> Iterator[Case]:
    """Yield all cases, by test and tool."""
    every = (
        *_round_trips(),
        *_interfaces(),  # before cases whose connections still send packets later
        *_traces(),
        *_mtus(),
        *_latencies(),
        *_streams(),
        *_clocks(),
        *_times(),
        *_questions(),
        *_pages(),
        *_connections(),
        *_handshakes(),
        *_tcp(),
        *_udp(),
    )
    for seed, case in enumerate(every, 1):  # otherwise all would lose the same packets
        yield replace(case, wan=replace(case.wan, seed=seed))


def _paths(losses: tuple[float, ...] = LOSSES) -> Iterator[tuple[WanSettings, int]]:
    """Yield each delay with each loss, with both IP versions."""
    for delay_ms, loss, ip_version in product(DELAYS_MS, losses, IP_VERSIONS):
        yield WanSettings(delay_ms=delay_ms, loss=loss), ip_version


_WHOLE = (0.0,)
"""No loss: no figure reports it, and the system's own retransmission times are unknown."""


def _result(trial: Trial) -> Mapping[str, Any]:
    return trial.merged.result or {}


def _round_trip(case: Case) -> float:
    return 2 * case.wan.delay_ms


def _round_trips() -> Iterator[Case]:
    spec = {"dest": "b.example", "count": 200, "interval": "PT0.01S"}
    for tool in ("ping", "fping"):
        for wan, ip_version in _paths():
            fields = spec | {"ip_version": ip_version}
            yield Case("rtt", tool, fields, wan, ip_version, _compare_rtt)


def _compare_rtt(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare echoes: all packets are echoes, and each direction may lose one."""
    result, lost = _result(trial), truth.forward.lost + truth.backward.lost
    return {
        "rtt_median_ms": (_round_trip(case), result["rtt_ms"]["median"]),
        "loss": (lost / truth.forward.taken, result["loss"]),
    }


def _traces() -> Iterator[Case]:
    """Yield cases with one hop and no loss: the WAN cannot know which hop a lost packet was for."""
    for tool in ("scamper", "traceroute", "mtr", "tracepath"):
        for wan, ip_version in _paths(_WHOLE):
            fields = {"dest": "b.example", "ip_version": ip_version}
            yield Case("trace", tool, fields, wan, ip_version, _compare_trace)


def _compare_trace(case: Case, truth: Truth, trial: Trial) -> Figures:
    last = _result(trial)["hops"][-1]
    rtts_ms = [rtt for each in last["addresses"] for rtt in each["rtts_ms"]]
    return {"rtt_median_ms": (_round_trip(case), statistics.median(rtts_ms))}


def _mtus() -> Iterator[Case]:
    """Yield cases that lose packets in one place only: loss may be mistaken for a size limit."""
    for tool in ("tracepath", "ping-df"):
        paths = [*product(_paths(_WHOLE), LINKS_BYTES)]
        lossy = [(WanSettings(delay_ms=20, loss=0.1), version) for version in IP_VERSIONS]
        for (wan, ip_version), link_bytes in [*paths, *product(lossy, LINKS_BYTES)]:
            fields = {"dest": "c.example", "ip_version": ip_version}
            yield Case("mtu", tool, fields, wan, ip_version, _compare_mtu, link_bytes=link_bytes)


def _compare_mtu(case: Case, truth: Truth, trial: Trial) -> Figures:
    return {"mtu": (case.link_bytes, _result(trial)["mtu_bytes"])}


def _latencies() -> Iterator[Case]:
    spec = {**_BOTH, "count": 200, "interval": "PT0.01S"}
    for tool in ("stamp", "irtt"):
        for wan, ip_version in _paths():
            yield Case("latency", tool, spec, wan, ip_version, _compare_latency)


def _compare_latency(case: Case, truth: Truth, trial: Trial) -> Figures:
    result = _result(trial)
    delays, loss = result["delay_ms"], result["loss"]
    return {
        "forward_median_ms": (case.wan.delay_ms, delays["forward"]["median"]),
        "backward_median_ms": (case.wan.delay_ms, delays["backward"]["median"]),
        "forward_loss": (truth.forward.loss, loss["forward"]),
        "backward_loss": (truth.backward.loss, loss["backward"]),
    }


def _streams() -> Iterator[Case]:
    spec = {**_BOTH, "duration": "PT6S", "each": "PT2S", "interval": "PT0.02S"}
    for tool in ("stampbg", "irtt"):
        for wan, ip_version in _paths():
            yield Case("latencybg", tool, spec, wan, ip_version, _compare_stream)


def _compare_stream(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare as for a single measurement; for intervals, the median that deviates most."""
    delay_ms = case.wan.delay_ms
    medians = [
        each.result["delay_ms"]["forward"]["median"] for each in trial.intervals if each.result
    ]
    furthest = max(medians, key=lambda median: abs(median - delay_ms))
    return {
        **_compare_latency(case, truth, trial),
        "an_interval's_forward_median_ms": (delay_ms, furthest),
    }


def _clocks() -> Iterator[Case]:
    for wan, ip_version in _paths():
        yield Case("clock", "stamp", {**_BOTH}, wan, ip_version, _compare_clocks)


def _compare_clocks(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare the offset: both ends have one clock, so the truth is 0 within the one-way delay."""
    result = _result(trial)
    return {
        "offset_ms": (0.0, result["offset_ms"]),
        "bound_ms": (case.wan.delay_ms, result["bound_ms"]),
    }


def _times() -> Iterator[Case]:
    spec = {"dest": "b.example", "count": 4, "interval": "PT1S"}
    for wan, ip_version in _paths(_WHOLE):
        yield Case(
            "ntp", "ntpclient", spec | {"ip_version": ip_version}, wan, ip_version, _compare_times
        )


def _compare_times(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare the offset, 0 as both ends have one clock, and the round trip."""
    result = _result(trial)
    return {
        "offset_ms": (0.0, result["offset_ms"]),
        "round_trip_median_ms": (_round_trip(case), result["round_trip_ms"]["median"]),
    }


_TIMEOUT_MS = 1000


def _questions() -> Iterator[Case]:
    """Yield cases over UDP with loss: one packet each way, repeated after a known time."""
    query = {"name": NAME, "server": "b.example", "timeout": "PT1S", "tries": 6}
    for wan, ip_version in _paths():
        fields = query | {"type": "A", "protocol": "udp", "ip_version": ip_version}
        yield Case("dns", "dnspython", fields, wan, ip_version, _compare_udp_question)
    for wan, ip_version in _paths(_WHOLE):
        fields = query | {"type": "AAAA", "protocol": "tcp", "ip_version": ip_version}
        yield Case("dns", "dnspython", fields, wan, ip_version, _compare_tcp_question)


def _compare_udp_question(case: Case, truth: Truth, trial: Trial) -> Figures:
    result, lost = _result(trial), truth.forward.lost + truth.backward.lost
    return {
        "time_ms": (_round_trip(case), result["time_ms"]),
        "total_ms": (lost * _TIMEOUT_MS + _round_trip(case), result["total_ms"]),
        "tries": (1 + lost, result["tries"]),
    }


def _compare_tcp_question(
    case: Case,
    truth: Truth,
    trial: Trial,
) -> Figures:
    """Compare one round trip to connect, and one to query."""
    return {"time_over_tcp_ms": (2 * _round_trip(case), _result(trial)["time_ms"])}


def _pages() -> Iterator[Case]:
    for tool in ("curl", "fetch"):
        for wan, ip_version in _paths(_WHOLE):
            fields = {"url": f"https://{NAME}/", "ip_version": ip_version}
            yield Case("http", tool, fields, wan, ip_version, _compare_page)


def _compare_page(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare a round trip each for name, TCP, TLS 1.3 and request; the answer is one packet."""
    result, once = _result(trial), _round_trip(case)
    phases = {f"{name}_ms": (once, result["phases_ms"][name]) for name in _PHASES}
    return phases | {"total_ms": (len(_PHASES) * once, result["total_ms"])}


_PHASES = ("name", "connect", "tls", "first_byte")


def _connections() -> Iterator[Case]:
    spec = {"dest": NAME, "port": 80, "count": 20, "interval": "PT0.05S"}
    for wan, ip_version in _paths(_WHOLE):
        fields = spec | {"ip_version": ip_version}
        yield Case("tcp", "connect", fields, wan, ip_version, _compare_connections)


def _compare_connections(
    case: Case,
    truth: Truth,
    trial: Trial,
) -> Figures:
    result, once = _result(trial), _round_trip(case)
    return {
        "name_ms": (once, result["name_ms"]),
        "connect_median_ms": (once, result["connect_ms"]["median"]),
    }


def _handshakes() -> Iterator[Case]:
    for wan, ip_version in _paths(_WHOLE):
        fields = {"dest": NAME, "ip_version": ip_version}
        yield Case("tls", "handshake", fields, wan, ip_version, _compare_handshake)


def _compare_handshake(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare a round trip each for name, TCP and TLS 1.3."""
    phases, once = _result(trial)["phases_ms"], _round_trip(case)
    return {f"{name}_ms": (once, phases[name]) for name in ("name", "connect", "handshake")}


def _interfaces() -> Iterator[Case]:
    spec = {"host": "a.example", "interface": "wan0", "duration": "PT5S", "each": "PT1S"}
    for loss, ip_version, octets in product((0.0, 0.1), IP_VERSIONS, (100, 1400)):
        yield Case(
            "interface",
            "procnet",
            spec,
            WanSettings(delay_ms=20, loss=loss),
            ip_version,
            _compare_interface,
            echoes=(200, octets),
        )


def _compare_interface(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare traffic: sent bytes are known, received ones are what the WAN let through."""
    count, octets = case.echoes or (0, 0)
    result, back = _result(trial), truth.backward.arrived
    return {
        "sent_packets": (count, result["sent"]["packets"]),
        "sent_bytes": (count * octets, result["sent"]["bytes"]),
        "received_packets": (back, result["received"]["packets"]),
        "received_bytes": (back * octets, result["received"]["bytes"]),
    }


_FLOWING: Mapping[str, Mapping[str, Any]] = {"iperf3": {}, "nuttcp": {"congestion": "host"}}
_EASY_MBIT = 10
"""Up to this rate a flow leaves CPU time to others; nuttcp paces UDP by a busy loop, though."""


def _tcp() -> Iterator[Case]:
    for tool, rate, ip_version in product(_FLOWING, RATES_MBIT, IP_VERSIONS):
        yield Case(
            "throughput",
            tool,
            {**_BOTH, "duration": "PT5S", **_FLOWING[tool]},
            WanSettings(delay_ms=5, rate_mbit=rate, queue_ms=100),
            ip_version,
            _compare_tcp,
            alone=rate > _EASY_MBIT,
        )


def _compare_tcp(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare with the link's rate minus the headers of full packets, which is TCP's maximum."""
    payload = (_MTU - _HEADERS[case.ip_version]) / _MTU
    return {"rate_mbps": ((case.wan.rate_mbit or 0) * payload, _result(trial)["rate_bps"] / 1e6)}


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
            alone=rate > _EASY_MBIT or tool == "nuttcp",
        )


def _compare_udp(case: Case, truth: Truth, trial: Trial) -> Figures:
    """Compare UDP: four fifths of the link's rate are sent, and a share is lost."""
    result, sent = _result(trial), 0.8 * (case.wan.rate_mbit or 0)
    return {
        "udp_rate_mbps": (sent * (1 - truth.forward.loss), result["rate_bps"] / 1e6),
        "udp_loss": (truth.forward.loss, result["datagrams"]["loss"]),
    }
