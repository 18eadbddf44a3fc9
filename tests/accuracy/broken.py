"""The part "broken paths": what each test must tell of each fault, and what it told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from node.cli.lab.wan import WanSettings
from node.plugins import registry
from node.plugins.contracts import Merged, Test
from node.plugins.plausibility import with_notes
from tests.accuracy.faults import FAULTS
from tests.accuracy.ground import Ground
from tests.accuracy.serving import NAME
from tests.support.impossible import impossible

HEAD = "\n## Broken paths\n"
DELAY_MS = 5.0
LOSS = 0.3
_IPV4 = 4

PREFACE = f"""
Each test over a WAN of {DELAY_MS:g} ms that is broken (`tests/accuracy/faults.py`), over IPv4.
A path that dies in the middle does so three seconds after the first packet of a run that takes some
six, unless one round trip is all that the test needs. `must` is what the test has to tell, and
`told` is its line in lists, after the reason if it failed. No figure may be there that cannot be.
"""


@dataclass(frozen=True)
class Must:
    """A demand on an outcome: in words, and as a check of its largest loss and its result."""

    words: str
    holds: Callable[[float | None, Merged], bool]


FAILS = Must("fails", lambda _, merged: merged.reason is not None)
NO_MTU = Must(
    "fails for long packets",
    lambda _, merged: "longer packets may vanish" in (merged.reason or ""),
)
NOTHING = Must("no answer", lambda loss, merged: merged.reason is not None or loss == 1)
SOME = Must("some loss", lambda loss, merged: merged.reason is not None or 0 < (loss or 0) < 1)
FINE = Must("no loss", lambda loss, merged: merged.reason is None and not loss)
ANY = Must("a result or a reason", lambda _, merged: bool(merged.reason or merged.result))
DOUBLED = Must(
    "no loss, duplicates",
    lambda loss, merged: not loss and any(_counts(merged.result, "duplicates")),
)
SHUFFLED = Must(
    "no loss, reordered", lambda loss, merged: not loss and any(_counts(merged.result, "reordered"))
)
NOTED = Must("no loss, truncated", lambda loss, merged: not loss and "truncated" in _notes(merged))
UNREACHED = Must(
    "dest not reached",
    lambda _, merged: bool(merged.reason) or not (merged.result or {}).get("reached", True),
)
SMALL = Must(
    "1300 bytes, black hole",
    lambda _, merged: (
        bool(merged.result)
        and (merged.result or {}).get("mtu_bytes") == 1300
        and (merged.result or {}).get("black_hole") is True
    ),
)


def _notes(merged: Merged) -> str:
    return " ".join((merged.result or {}).get("notes", ()))


def _counts(result: Any, name: str) -> Iterator[int]:
    """Yield the counts of this name, in either direction."""
    value = (result or {}).get(name)
    for count in value.values() if isinstance(value, Mapping) else (value,):
        if isinstance(count, int):
            yield count


CONNECTED = Must(
    "some do not connect", lambda _, merged: 0 < (merged.result or {}).get("loss", 0) < 1
)
REFUSED = Must("a hop that refuses", lambda _, merged: "'!" in str(merged.result))

_ECHO = (NOTHING, SOME, NOTHING, NOTHING, SOME, DOUBLED, SHUFFLED, FINE, SOME, NOTHING)
_ONE_WAY = (NOTHING, SOME, NOTHING, FINE, SOME, DOUBLED, SHUFFLED, FINE, FINE, NOTHING)
_PATH = (UNREACHED, ANY, UNREACHED, ANY, ANY, FINE, FINE, FINE, ANY, UNREACHED)
_ASKED = (FAILS, ANY, FAILS, ANY, ANY, FINE, FINE, FINE, FINE, FAILS)
_STEADY = (FAILS, CONNECTED, FAILS, ANY, ANY, FINE, FINE, FINE, FINE, FAILS)
_TCP = (FAILS, FAILS, FAILS, NO_MTU, ANY, FINE, FINE, FINE, FINE, FAILS)
_UDP = (FAILS, FAILS, FAILS, NOTHING, SOME, FINE, ANY, FINE, FINE, FAILS)
_MTU = (FAILS, ANY, FAILS, SMALL, ANY, FINE, FINE, FINE, ANY, FAILS)
"""Demands by fault, in the order of ``FAULTS``."""

_BOTH = {"source": "a.example", "dest": "b.example"}
_PACKETS = {"count": 30, "interval": "PT0.2S", "timeout": "PT1S"}
_ECHOES = {"dest": "b.example", **_PACKETS, "length": 1400}
_CONNECTIONS = {"dest": "b.example", "port": 80, "count": 20, "interval": "PT0.3S"}
_HOPS = {"dest": "b.example", "hops_max": 5}
_FLOW = {**_BOTH, "duration": "PT6S", "omit": "PT0S", "congestion": "host"}
_UDP_FLOW = {**_FLOW, "protocol": "udp", "rate_bps": 2_000_000}

CASES: Sequence[tuple[str, str, Mapping[str, Any], Sequence[Must]]] = (
    ("rtt", "ping", _ECHOES, (*_ECHO[:7], NOTED, *_ECHO[8:])),
    ("rtt", "fping", _ECHOES, (*_ECHO[:5], FINE, *_ECHO[6:])),  # its option -C hides duplicates
    ("latency", "stamp", {**_BOTH, **_PACKETS}, _ONE_WAY),
    ("latency", "irtt", {**_BOTH, **_PACKETS}, (*_ONE_WAY[:5], FAILS, *_ONE_WAY[6:])),
    (
        "latencybg",
        "stampbg",
        {**_BOTH, "duration": "PT6S", "each": "PT2S", "interval": "PT0.1S"},
        _ONE_WAY,
    ),
    ("clock", "stamp", {**_BOTH}, _ASKED),
    ("ntp", "ntpclient", {"dest": "b.example", "interval": "PT1S"}, _ASKED),
    ("trace", "traceroute", _HOPS, (*_PATH[:9], REFUSED)),
    ("trace", "mtr", _HOPS, (*_PATH[:9], ANY)),  # it does not report why hops refuse
    ("trace", "tracepath", _HOPS, (*_PATH[:9], REFUSED)),
    ("mtu", "ping-df", {"dest": "b.example"}, _MTU),
    ("dns", "dnspython", {"name": NAME, "server": "b.example", "type": "A"}, _ASKED),
    ("tcp", "connect", _CONNECTIONS, _STEADY),
    ("tls", "handshake", {"dest": NAME}, _ASKED),
    ("http", "curl", {"url": f"https://{NAME}/"}, _ASKED),
    ("throughput", "iperf3", _FLOW, _TCP),
    ("throughput", "nuttcp", _FLOW, (*_TCP[:3], FAILS, *_TCP[4:])),
    ("throughput", "iperf3", {**_UDP_FLOW, "buffer_bytes": 1400}, _UDP),
    ("throughput", "nuttcp", _UDP_FLOW, _UDP),
)


@dataclass(frozen=True)
class BrokenCase:
    """One run over a broken path."""

    test: str
    tool: str
    spec: Mapping[str, Any]
    fault: str
    must: Must

    @property
    def name(self) -> str:
        """Return ``throughput (udp) by iperf3``."""
        udp = " (udp)" if self.spec.get("protocol") == "udp" else ""
        return f"{self.test}{udp} by {self.tool}"


@dataclass(frozen=True)
class BrokenRow:
    """The outcome of a case: what was told, and what is wrong with it, if anything."""

    case: BrokenCase
    told: str
    fault: str | None


def broken_cases() -> Iterator[BrokenCase]:
    """Yield every test with every fault."""
    for test, tool, spec, musts in CASES:
        for fault, must in zip(FAULTS, musts, strict=True):
            yield BrokenCase(test, tool, spec, fault, must)


async def broken_row(place: Ground, case: BrokenCase) -> BrokenRow:
    """Run one case, and judge what it tells."""
    test, tool = registry.tests()[case.test], registry.tools()[case.tool]
    spec = test.spec_model.model_validate(dict(case.spec))
    lost = LOSS if "loss" in case.fault else 0.0
    async with place.wan(WanSettings(delay_ms=DELAY_MS, loss=lost), fault=case.fault):
        trial = await place.measure(test, tool, spec, _IPV4)
    return judged(test, case, trial.merged)


def judged(test: Test, case: BrokenCase, merged: Merged) -> BrokenRow:
    """Return what was told, and whether it is what must be told."""
    result = merged.result
    line = None if result is None else with_notes(test.summary(result), result)
    told = "; ".join(each for each in (merged.reason, line) if each) or "nothing"
    losses = [it.value for it in test.metrics(result) if it.name == "loss"] if result else []
    wrong = list(impossible(result))
    if wrong:
        return BrokenRow(case, told, f"cannot be: {wrong[0]}")
    holds = case.must.holds(max(losses, default=None), merged)
    return BrokenRow(case, told, None if holds else "is not what must be told")


def written_broken(rows: Iterable[BrokenRow]) -> str:
    """Return the part of the document, a table for each test and tool."""
    lines = [HEAD, PREFACE]
    told: dict[str, list[BrokenRow]] = {}
    for row in rows:
        told.setdefault(row.case.name, []).append(row)
    for name, own in told.items():
        lines += [f"\n### {name}\n\n", "| path | must | told |\n|---|---|---|\n"]
        lines += [f"| {row.case.fault} | {row.case.must.words} | {_cell(row)} |\n" for row in own]
    return "".join(lines)


def _cell(row: BrokenRow) -> str:
    text = row.told.replace("|", "\\|").replace("\n", " ")
    return text if row.fault is None else f"**{row.fault}**: {text}"
