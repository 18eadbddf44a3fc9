"""The options of pool tasks, and the views of their seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from node.cli.options import given_values, options
from node.cli.output import Record, aligned_text, cell_text, printable_text
from node.cli.references import short
from node.cli.times import local_time_text
from node.cli.values import MATCH_HELP, predicate, value_of
from node.model import times

_PLAIN = ("pool", "k", "min_k", "choice", "field")
_TERMS_SHOWN = 4


seat_options = options(f"""
    --pool NAME                  Nodes of this pool instead of named ones.
    -k 1..                       How many nodes of the pool.
    --min-k 1..                  How many nodes suffice.
    --match CONDITION...         {MATCH_HELP}
    --prefer NAME=A,B...         Preferred attributes of a node.
    --spread NAME=COUNT...       Maximum number of nodes with the same value: site=1; repeat for
                                 more.
    --together                   All k nodes at the same time, or none.
    --choice [sticky|rotating]   Which nodes measure again: the same, or each in turn.
    --seat-field FIELD as field  The field of the spec for the node.
""")
"""``--pool`` and the options of a request for seats."""


def seat_request(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seats part of a task document, with only the options that were given."""
    request = given_values(given, *_PLAIN)
    if given["match"]:
        request["match"] = predicate(given["match"])
    if given["prefer"]:
        pairs = (_pair(text, "--prefer") for text in given["prefer"])
        request["prefer"] = {n: [value_of(each) for each in v.split(",")] for n, v in pairs}
    if given["spread"]:
        pairs = (_pair(text, "--spread") for text in given["spread"])
        request["spread"] = {name: value_of(value) for name, value in pairs}
    if given["together"]:
        request["together"] = True
    return request


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def request_text(request: Record) -> str:
    """Describe a request: ``20 of europe, together, 1 per site``."""
    words = [f"{request['k']} of {request['pool']}"]
    if request["min_k"]:
        words.append(f"at least {request['min_k']}")
    if request["together"]:
        words.append("together")
    words += [f"{most} per {name}" for name, most in request["spread"].items()]
    return ", ".join(words)


def request_rows(request: Record | None) -> list[tuple[str, str]]:
    """Return names and values of a seat request besides number and pool, for the view of a task."""
    if request is None:
        return []
    from node.model.predicates import parse

    prefer = "; ".join(f"{name} {cell_text(values)}" for name, values in request["prefer"].items())
    spread = ", ".join(f"at most {most} alike in {n}" for n, most in request["spread"].items())
    return [
        ("match", parse(request["match"]).in_words() if request["match"] else ""),
        ("prefers", prefer),
        ("spread", spread),
        ("choice", request["choice"] or "that of the pool"),
        ("filled in as", request["field"] or ""),
    ]


def seats_view(seats: Sequence[Record], wanted: int) -> str:
    """Describe the seats term by term: the node of each, or the reason why it has none."""
    lines: list[str] = []
    terms = dict.fromkeys((seat["term"], seat["until"]) for seat in seats)
    for term, until in list(terms)[:_TERMS_SHOWN]:
        in_term = [seat for seat in seats if seat["term"] == term]
        taken = sum(seat["state"] in {"taken", "over"} for seat in in_term)
        lines.append(f"  {taken} of {wanted} seats {_term_text(term, until)}:")
        rows = [
            (str(seat["number"]), _holder_text(seat), printable_text(_seat_news(seat)))
            for seat in in_term
        ]
        lines.append(aligned_text(rows, "    "))
    if len(terms) > _TERMS_SHOWN:
        lines.append(f"  and {len(terms) - _TERMS_SHOWN} more terms")
    return "\n".join(lines)


def _holder_text(seat: Record) -> str:
    if seat["node"] is None:
        return "nobody"
    return f"{seat['node']} (lost)" if seat["state"] == "lost" else str(seat["node"])


def _seat_news(seat: Record) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in seat["runs"].items() if count)
    task = f"task {short(seat['task'])}" if seat["task"] else ""
    return "; ".join(filter(None, (task, counts, seat["reason"])))


def _term_text(term: str, until: str) -> str:
    """Describe a term: ``from … to …``, or ``at …`` if it has a single slot."""
    begin, end = times.parse_instant(term), times.parse_instant(until)
    return (
        f"at {local_time_text(begin)}"
        if end - begin < times.SECOND
        else f"from {local_time_text(begin)} to {local_time_text(end)}"
    )
