"""What is measured over which WANs, and what the truth of each figure is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from node.execution.trial import Trial
from node.lab.wan import WanSettings
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
"""Bytes of IP and TCP headers, time stamps included, in each full packet."""

Figures = dict[str, tuple[float, float]]
"""Figure → truth and what was reported, both in the unit at the end of its name."""


@dataclass(frozen=True)
class Case:
    """One run: of what, over what, and how its figures are compared with the truth.

    ``link_bytes`` is the MTU of the link behind the WAN. ``echoes`` are sent while the run lasts:
    how many, and how many bytes each has. Nothing else runs beside one that is ``alone``.
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
        """``20 ms, loss 1 %, 50 Mb/s, IPv6``."""
        words = [f"{self.wan.delay_ms:g} ms", f"loss {100 * self.wan.loss:g} %"]
        if self.wan.rate_mbit is not None:
            words.append(f"{self.wan.rate_mbit:g} Mb/s")
        if self.link_bytes != _MTU:
            words.append(f"a link of {self.link_bytes} bytes")
        if self.echoes is not None:
            words.append(f"pings of {self.echoes[1]} bytes")
        return ", ".join([*words, f"IPv{self.ip_version}"])


def cases() -> Iterator[Case]:
    """All of them, by test and tool."""
    every = (
        *_round_trips(),
        *_interfaces(),  # before what leaves connections behind that take their leave later
        *_traces(),
        *_mtus(),
        *_latencies(),
        *_streams(),
        *_clocks(),
        *_questions(),
        *_pages(),
        *_connections(),
        *_handshakes(),
        *_tcp(),
        *_udp(),
    )
    for seed, case in enumerate(every, 1):  # else all would lose the same packets
        yield replace(case, wan=replace(case.wan, seed=seed))


def _paths(losses: tuple[float, ...] = LOSSES) -> Iterator[tuple[WanSettings, int]]:
    """Each delay with each loss, by both versions of IP."""
    for delay_ms, loss, ip_version in product(DELAYS_MS, losses, IP_VERSIONS):
        yield WanSettings(delay_ms=delay_ms, loss=loss), ip_version


_WHOLE = (0.0,)
"""No loss: no figure tells of it, and what the system sends again it sends after times of its own.
"""


def _result(trial: Trial) -> Mapping[str, Any]:
    return trial.merged.result or {}


def _round_trip(case: Case) -> float:
    return 2 * case.wan.delay_ms


def _round_trips() -> Iterator[Case]:
    spec = {"dest": "b.example", "count": 200, "interval": "PT0.01S"}
    for tool in ("ping", "fping"):
        for wan, ip_version in _paths():
            given = spec | {"ip_version": ip_version}
            yield Case("rtt", tool, given, wan, ip_version, _compare_rtt)


def _compare_rtt(case: Case, truth: Truth, trial: Trial) -> Figures:
    """All packets are echoes; each direction may lose one."""
    result, lost = _result(trial), truth.forward.lost + truth.backward.lost
    return {
        "rtt_median_ms": (_round_trip(case), result["rtt_ms"]["median"]),
        "loss": (lost / truth.forward.taken, result["loss"]),
    }


def _traces() -> Iterator[Case]:
    """One hop, and no loss: which hop a lost packet was meant for, the WAN does not know."""
    for tool in ("scamper", "traceroute", "mtr", "tracepath"):
        for wan, ip_version in _paths(_WHOLE):
            given = {"dest": "b.example", "ip_version": ip_version}
            yield Case("trace", tool, given, wan, ip_version, _compare_trace)


def _compare_trace(case: Case, truth: Truth, trial: Trial) -> Figures:
    last = _result(trial)["hops"][-1]
    rtts_ms = [rtt for each in last["addresses"] for rtt in each["rtts_ms"]]
    return {"rtt_median_ms": (_round_trip(case), statistics.median(rtts_ms))}


def _mtus() -> Iterator[Case]:
    """Loss in one place only: a packet that is lost may be taken for one that was too long."""
    for tool in ("tracepath", "ping-df"):
        paths = [*product(_paths(_WHOLE), LINKS_BYTES)]
        lossy = [(WanSettings(delay_ms=20, loss=0.1), version) for version in IP_VERSIONS]
        for (wan, ip_version), link_bytes in [*paths, *product(lossy, LINKS_BYTES)]:
            given = {"dest": "c.example", "ip_version": ip_version}
            yield Case("mtu", tool, given, wan, ip_version, _compare_mtu, link_bytes=link_bytes)


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
    """As of one measurement; and of the intervals, the median that is furthest off."""
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
    """Both ends have one clock; by how much it may be wrong is what one way takes."""
    result = _result(trial)
    return {
        "offset_ms": (0.0, result["offset_ms"]),
        "bound_ms": (case.wan.delay_ms, result["bound_ms"]),
    }


_TIMEOUT_MS = 1000


def _questions() -> Iterator[Case]:
    """Over UDP with loss: one packet each way, asked again after a time that is known."""
    asked = {"name": NAME, "server": "b.example", "timeout": "PT1S", "tries": 6}
    for wan, ip_version in _paths():
        given = asked | {"type": "A", "protocol": "udp", "ip_version": ip_version}
        yield Case("dns", "dnspython", given, wan, ip_version, _compare_udp_question)
    for wan, ip_version in _paths(_WHOLE):
        given = asked | {"type": "AAAA", "protocol": "tcp", "ip_version": ip_version}
        yield Case("dns", "dnspython", given, wan, ip_version, _compare_tcp_question)


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
    """One round trip to connect, one to ask."""
    return {"time_over_tcp_ms": (2 * _round_trip(case), _result(trial)["time_ms"])}


def _pages() -> Iterator[Case]:
    for tool in ("curl", "fetch"):
        for wan, ip_version in _paths(_WHOLE):
            given = {"url": f"https://{NAME}/", "ip_version": ip_version}
            yield Case("http", tool, given, wan, ip_version, _compare_page)


def _compare_page(case: Case, truth: Truth, trial: Trial) -> Figures:
    """A round trip for each: name, TCP, TLS 1.3, request; the answer is one packet."""
    result, once = _result(trial), _round_trip(case)
    phases = {f"{name}_ms": (once, result["phases_ms"][name]) for name in _PHASES}
    return phases | {"total_ms": (len(_PHASES) * once, result["total_ms"])}


_PHASES = ("name", "connect", "tls", "first_byte")


def _connections() -> Iterator[Case]:
    spec = {"dest": NAME, "port": 80, "count": 20, "interval": "PT0.05S"}
    for wan, ip_version in _paths(_WHOLE):
        given = spec | {"ip_version": ip_version}
        yield Case("tcp", "connect", given, wan, ip_version, _compare_connections)


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
        given = {"dest": NAME, "ip_version": ip_version}
        yield Case("tls", "handshake", given, wan, ip_version, _compare_handshake)


def _compare_handshake(case: Case, truth: Truth, trial: Trial) -> Figures:
    """A round trip for each: name, TCP, TLS 1.3."""
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
    """What was sent is known by itself; of what came back, how much the WAN let through."""
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
"""Up to here a flow leaves the processors to others; nuttcp paces UDP by a busy loop, though."""


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
    """The link's rate, less the headers of full packets, is what TCP can deliver."""
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
    """What is sent is four fifths of the link's rate; a share of it is lost."""
    result, sent = _result(trial), 0.8 * (case.wan.rate_mbit or 0)
    return {
        "udp_rate_mbps": (sent * (1 - truth.forward.loss), result["rate_bps"] / 1e6),
        "udp_loss": (truth.forward.loss, result["datagrams"]["loss"]),
    }
