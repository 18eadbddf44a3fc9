"""The table of true and reported values, as Markdown."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

PREFACE = """\
# Reported and true values of the tests

Created by `make accuracy`: two network namespaces on one host, an emulated WAN between them
(`node/cli/lab/wan.py`), behind it a name server, a web server and a link with an MTU of its own.
The WAN has the delay and rate of the first column, and counts the packets that it lost: the true
loss is the actual one, not the configured probability. Both ends share one clock, so one-way
figures have no clock error. Delays include two wake-ups of the emulator, some 0.1 ms, and those of
the measuring program; true rates are those of the link minus the headers of full packets.

- **Loss** is varied where a figure reports it (`rtt`, `latency`, `latencybg`, `throughput` over
  UDP, `interface`), where it must not change the figures (`clock`), or where it makes a test repeat
  packets (`dns`, `mtu`). TCP's retransmission times are its own, so `http`, `tcp`, `tls` and
  throughput over TCP have no known truth under loss. A connection whose first packet is lost takes
  a second longer.
- **Rates** are varied for `throughput`, the only test that a rate limits.
- `mtu`: the truth is the MTU of the link behind the WAN's far end; the host behind it answers, or
  the router before it reports the limit. `http`, `tcp`, `tls`: each phase is one round trip, with
  a name server as far away as the web server, and TLS 1.3. `dns`: one round trip, or two over TCP;
  each lost packet adds its timeout of a second, which `total` contains and `time` does not.
- `interface`: pings of known length are sent over the WAN; the replies are those it let through.
- `latencybg` is measured over 6 s in intervals of 2 s; one figure is that of the interval with the
  largest difference.
- `idle` measures nothing, and servers of OWAMP are no nodes: neither is in the table.

Known causes of differences:

- Figures of a single measurement, which are not a median of many (`dns`, `http`, `tls`, `name`),
  include whatever else the host did at that moment. Resolving a name includes loading parts of the
  C library, some 1 ms here, and TLS the computations of both ends, some 4 ms.
- `irtt` takes its timestamps in the program and not in the kernel, so its delays include its own
  wake-ups. It sends four packets more than it reports, and an opening for each interval; the WAN
  counts them as well, which changes its loss by a packet or two.
- `nuttcp` reports the omitted seconds in blocks of 8 KiB: up to 1.3 % of 5 s at 1 Mb/s.
- `iperf3` opens a stream over UDP with one datagram each way and retransmits neither. With a loss
  of 10 %, one run in five therefore has no result, and says so. Of the runs of `nuttcp` there, one
  in some thirty has none: it did not end within the booked time.
"""


@dataclass(frozen=True)
class Row:
    """One figure of one run; a run that failed has a reason and no figures.

    ``late_ms`` is the maximum lateness of the emulator's packets during the run. ``lossy``: the WAN
    lost packets, so that a tool may have failed because of it.
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
    """The format of figures of one kind and their differences; ``{}`` is the number."""

    value: str
    difference: str
    scale: float = 1.0
    relative: bool = False
    """If true, differences are shares of the truth."""

    def of(self, row: Row) -> float:
        """Return the difference in this unit."""
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
"""Units by the ending of a figure's name."""


def written(rows: Sequence[Row], versions: Iterable[str]) -> str:
    """Return the whole document."""
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
