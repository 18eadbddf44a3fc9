"""The table of what was true and what was reported, as Markdown."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure of one run; a run that failed has a reason and no figures."""

    test: str
    tool: str
    condition: str
    figure: str
    truth: float
    reported: float
    reason: str | None = None


def written(rows: Sequence[Row], versions: Iterable[str]) -> str:
    """The whole document."""
    lines = [
        "# What the tests report, and what was true",
        "",
        "Made by `make accuracy`: two network namespaces on one host, an emulated WAN between them",
        "(`node/lab/wan.py`). It has the delay and rate of the first column, and counts what it",
        "lost: a true loss is what happened, not what was asked for. Both ends have one clock, so",
        "one-way figures have no error of a clock. Delays include two wake-ups of the emulator,",
        "some 0.1 ms; true rates are those of the link less the headers of full packets.",
        "",
        f"{platform.system()} {platform.release()}, {platform.machine()}; {', '.join(versions)}.",
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
    values = (_text(row.figure, row.truth), _text(row.figure, row.reported))
    return (row.condition, _words(row.figure), *values, _difference(row))


def _worst(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    for key in dict.fromkeys((row.test, row.tool, row.figure) for row in rows):
        own = [row for row in rows if (row.test, row.tool, row.figure) == key and not row.reason]
        if own:
            worst = max(own, key=_off)
            name = _words(worst.figure)
            yield (*key[:2], name, str(len(own)), _difference(worst), worst.condition)


def _off(row: Row) -> float:
    """By how much, in the figure's own measure: rates as a share of the truth."""
    off = abs(row.reported - row.truth)
    return off / row.truth if row.figure.endswith("_mbps") and row.truth else off


def _difference(row: Row) -> str:
    off = row.reported - row.truth
    if row.figure.endswith("_mbps"):
        return f"{100 * off / row.truth:+.1f} %"
    return f"{off:+.3f} ms" if row.figure.endswith("_ms") else f"{100 * off:+.2f} points"


def _text(figure: str, value: float) -> str:
    if figure.endswith("_ms"):
        return f"{value:.3f} ms"
    return f"{value:.4g} Mb/s" if figure.endswith("_mbps") else f"{100 * value:.2f} %"


def _words(figure: str) -> str:
    return figure.removesuffix("_ms").removesuffix("_mbps").replace("_", " ")
