"""Describe what a mesh has delivered: missing runs by cause, the worst pairs, matrices."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from node.cli.output import Column, Record, RecordLayout, aligned_text, percent, readable_text
from node.cli.times import local_time_text

PAIRS_MAX = 2_000
"""Maximum number of tasks of a mesh whose pairs are all read without being asked for."""
WORST = 15
"""The number of worst pairs that are read then."""

_LISTED = WORST
_WIDEST = 24
_LEAST = 2
_DENSE = 0.5
_CELL = 4


def share(delivery: Record) -> str:
    """Format the delivered share of the due runs as ``97.2 %``; a dash if none was due."""
    if not delivery["due"]:
        return "-"
    return percent(delivery["delivered"] / delivery["due"])


def _missing_reason(pair: Record) -> str:
    if not pair["causes"]:
        return ""
    first = pair["causes"][0]
    return f"{first['count']} {first['state']}: {first['example']}"


PAIR = RecordLayout(
    "key,test,source,dest,state,due,delivered,open,causes",
    Column("measure", lambda pair: pair["key"].split("/")[0], whole=True),
    Column("source", lambda pair: pair["source"], whole=True),
    Column("dest", lambda pair: pair["dest"], whole=True),
    Column("state", lambda pair: pair["state"], whole=True),
    Column("due", lambda pair: str(pair["due"]), whole=True),
    Column("delivered", share, whole=True),
    Column("most frequent cause of missing runs", _missing_reason),
    empty="Nothing was due.",
)


def status_view(mesh: Record) -> str:
    """Describe the delivery of a mesh, and its differences from the file."""
    delivery = mesh["delivery"]
    tasks = ", ".join(f"{count} {state}" for state, count in mesh["tasks"].items())
    delivered = (
        f"{share(delivery)} of {delivery['due']} due delivered"
        if delivery["due"]
        else "nothing was due"
    )
    head = [
        f"mesh {mesh['name']}: {delivered}, {delivery['open']} in progress",
        f"  tasks: {tasks}",
        f"  from {local_time_text(mesh['since'])} to {local_time_text(mesh['until'])}",
    ]
    left_out = mesh["pairs_left_out"]
    sections = [head, _drift(mesh["drift"]), _causes(delivery), _worst_pair_lines(mesh["pairs"])]
    if left_out:
        sections.append(["Only the worst pairs are shown; -o csv or --all-pairs lists all of them"])
    else:
        sections += _matrices(mesh["pairs"])
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def not_applied_view(mesh: Record) -> str:
    """Describe a mesh that was never applied, and what applying its file would create."""
    head = f"mesh {mesh['name']}: nothing was applied yet; apply it: parley mesh apply FILE"
    return "\n\n".join([head, "\n".join(_drift(mesh["drift"]))])


def _drift(drift: Record | None) -> list[str]:
    if drift is None:
        return []
    rows = [["to create", key, ""] for key in drift["create"]]
    rows += [["to edit", edit["key"], "; ".join(edit["differences"])] for edit in drift["edit"]]
    rows += [["to end", ending["key"], ending["reason"]] for ending in drift["end"]]
    lines = [f"Compared with the file: {drift['sentence']}"]
    if rows:
        shown = [list(map(readable_text, row)) for row in rows[:_LISTED]]
        lines += aligned_text(shown, indent="  ").splitlines()
    more = len(rows) - _LISTED
    return [*lines, f"  and {more} more; -o json lists them"] if more > 0 else lines


def _causes(delivery: Record) -> list[str]:
    if not delivery["causes"]:
        return []
    rows = [
        [
            str(cause["count"]),
            f"{100 * cause['count'] / delivery['due']:.1f} %",
            cause["state"],
            readable_text(cause["cause"]),
        ]
        for cause in delivery["causes"][:_LISTED]
    ]
    return ["Missing, by cause", *aligned_text(rows, indent="  ").splitlines()]


def _worst_pair_lines(pairs: list[dict[str, Any]]) -> list[str]:
    bad = [pair for pair in pairs if pair["delivered"] < pair["due"]]
    if not bad:
        return []
    bad.sort(key=lambda pair: (pair["delivered"] / pair["due"], pair["key"]))
    rows = [[column.text(pair) for column in PAIR.columns] for pair in bad[:_LISTED]]
    headings = [column.heading for column in PAIR.columns]
    lines = ["Worst pairs", *aligned_text([headings, *rows], indent="  ").splitlines()]
    more = len(bad) - _LISTED
    return [*lines, f"  and {more} more; -o csv lists all pairs"] if more > 0 else lines


def _matrices(pairs: list[dict[str, Any]]) -> list[list[str]]:
    """Return the lines of a matrix for each full mesh: rows to columns, in % of the due runs."""
    by_label: dict[str, dict[tuple[str, str], Record]] = defaultdict(dict)
    for pair in pairs:
        by_label[pair["key"].split("/")[0]][pair["source"], pair["dest"]] = pair
    return [lines for label, cells in by_label.items() if (lines := _matrix(label, cells))]


def _matrix(label: str, cells: dict[tuple[str, str], Record]) -> list[str]:
    sources = list(dict.fromkeys(source for source, _ in cells))
    dests = sorted({dest for _, dest in cells})
    if min(len(sources), len(dests)) < _LEAST or len(cells) < _DENSE * len(sources) * len(dests):
        return []
    if len(dests) > _WIDEST:
        size = f"{len(sources)} by {len(dests)}"
        return [f"{label}: {size} pairs are too many for a matrix; -o csv lists them"]
    rows = [[source, *(_cell(cells.get((source, dest))) for dest in dests)] for source in sources]
    return [
        f"{label}: delivered in %, from row to column",
        *aligned_text([["", *dests], *rows], indent="  ").splitlines(),
    ]


def _cell(pair: Record | None) -> str:
    if pair is None:
        return ""
    if not pair["due"]:
        return "-".rjust(_CELL)
    return f"{int(100 * pair['delivered'] / pair['due'])}".rjust(_CELL)
