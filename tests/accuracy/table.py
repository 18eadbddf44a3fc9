"""The table of what was true and what was reported, as Markdown."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

PREFACE = """\
# What the tests report, and what was true

Made by `make accuracy`: two network namespaces on one host, an emulated WAN between them
(`node/lab/wan.py`), and behind it a name server, a web server and a link with an MTU of its own.
The WAN has the delay and rate of the first column, and counts what it lost: a true loss is what
happened, not what was asked for. Both ends have one clock, so one-way figures have no error of a
clock. Delays include two wake-ups of the emulator, some 0.1 ms, and those of the program that is
measured with; true rates are those of the link less the headers of full packets.

- **Loss** is varied where a figure tells of it (`rtt`, `latency`, `latencybg`, `throughput` over
  UDP, `interface`), where it must not change the others (`clock`), or where it makes a test ask
  again (`dns`, `mtu`). TCP sends again after times of its own: `http`, `tcp`, `tls` and throughput
  over TCP have no truth then. A connection that needed its first packet again takes a second more.
- **Rates** are varied for `throughput`, the only test that a rate stops.
- `mtu`: the truth is the MTU of the link behind the WAN's far end; the host behind it answers, or
  the router before it says what fits. `http`, `tcp`, `tls`: each phase takes one round trip, with a
  name server as far away as the web server, and TLS 1.3. `dns`: one round trip, two over TCP; each
  packet lost makes it wait for its timeout of a second, which `total` contains and `time` does not.
- `interface`: pings of known length are sent over the WAN; what comes back is what it let through.
- `latencybg` is measured over 6 s in intervals of 2 s; one figure is the interval's that is
  furthest off.
- `idle` measures nothing, and `owping` is in no package of Debian: neither is in the table.

What is known of the differences:

- What is measured once, and not as a median of many (`dns`, `http`, `tls`, `name`), has in it what
  else the host did just then. Names contain what the C library loads to look one up, some 1 ms
  here, and TLS the work of both ends, some 4 ms.
- `irtt` takes its stamps in the program and not in the kernel, so its delays contain its own
  wake-ups. Four packets more than it tells of, and the opening of each interval, are lost or not as
  the others are: the WAN counts them, which makes a packet or two of its loss.
- `nuttcp` tells the seconds that are left out in blocks of 8 KiB: up to 1.3 % of 5 s at 1 Mb/s.
- `iperf3` opens a stream over UDP with one datagram each way and sends neither again. Where one
  packet in ten is lost, one run in five has no result therefore, and its reason says so. Of runs of
  `nuttcp` there, one in some thirty has none: it did not come to its end in the time booked.
"""


@dataclass(frozen=True)
class Row:
    """One figure of one run; a run that failed has a reason and no figures.

    ``late_ms`` is by how much the emulator's latest packet of the run was late. ``lossy``: the WAN
    lost packets, so that a tool may have failed for that.
    """

    test: str
    tool: str
    condition: str
    figure: str
    truth: float
    reported: float
    late_ms: float = 0.0
    lossy: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class Unit:
    """How figures of one kind are written, and their differences; ``{}`` is the number."""

    value: str
    difference: str
    scale: float = 1.0
    relative: bool = False
    """Differences are shares of the truth."""

    def of(self, row: Row) -> float:
        """The difference in this unit."""
        off = row.reported - row.truth
        return 100 * off / row.truth if self.relative and row.truth else off * self.scale


UNITS: Mapping[str, Unit] = {
    "_ms": Unit("{:.3f} ms", "{:+.3f} ms"),
    "_mbps": Unit("{:.4g} Mb/s", "{:+.1f} %", relative=True),
    "mtu": Unit("{:.0f} bytes", "{:+.0f} bytes"),
    "_bytes": Unit("{:.0f} bytes", "{:+.0f} bytes"),
    "_packets": Unit("{:.0f}", "{:+.0f}"),
    "tries": Unit("{:.0f}", "{:+.0f}"),
    "loss": Unit("{:.2f} %", "{:+.2f} points", scale=100),
}
"""By how a figure's name ends."""


def written(rows: Sequence[Row], versions: Iterable[str]) -> str:
    """The whole document."""
    late = {(row.test, row.tool, row.condition): row.late_ms for row in rows}.values()
    lines = [
        PREFACE,
        f"{platform.system()} {platform.release()}, {platform.machine()}; {', '.join(versions)}.",
        f"The emulator's latest packet was late by {statistics.median(late):.1f} ms in the median",
        f"run, and by {max(late):.1f} ms in the worst.",
        "",
        "## The worst of each figure",
        "",
        *_table(("test", "tool", "figure", "runs", "largest difference", "over"), _worst(rows)),
    ]
    for test, tool in dict.fromkeys((row.test, row.tool) for row in rows):
        own = [row for row in rows if (row.test, row.tool) == (test, tool)]
        lines += ["", f"## {test} by {tool}", ""]
        lines += _table(("WAN", "figure", "true", "reported", "difference"), map(_cells, own))
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cells(row: Row) -> Sequence[str]:
    if row.reason is not None:
        return (row.condition, row.figure, "", "", row.reason)
    end, unit = _unit(row.figure)
    values = (unit.value.format(value * unit.scale) for value in (row.truth, row.reported))
    return (row.condition, _name(row.figure, end), *values, unit.difference.format(unit.of(row)))


def _worst(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    for key in dict.fromkeys((row.test, row.tool, row.figure) for row in rows):
        own = [row for row in rows if (row.test, row.tool, row.figure) == key]
        if own[0].reason is not None:
            yield (*key, str(len(own)), "", "; ".join(row.condition for row in own))
            continue
        end, unit = _unit(key[2])
        worst = max(own, key=lambda row: abs(unit.of(row)))
        off = unit.difference.format(unit.of(worst))
        over = worst.condition if unit.of(worst) else "all of them"
        yield (*key[:2], _name(key[2], end), str(len(own)), off, over)


def _unit(figure: str) -> tuple[str, Unit]:
    return next((end, unit) for end, unit in UNITS.items() if figure.endswith(end))


def _name(figure: str, end: str) -> str:
    shown = figure.removesuffix(end) if end in {"_ms", "_mbps"} else figure
    return shown.replace("_", " ")
