"""pScheduler's dns: one question to a name server. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import SECOND
from node.plugins.tests.dns import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language, Rows
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_TIMEOUT = "PT10S"
_SLACK = SECOND
_RECORDS = ("a", "aaaa", "ns", "cname", "soa", "ptr", "mx", "txt")
SOA = ("nameserver", "owner", "serial", "refresh", "retry", "expire", "minimum")
"""The members of a record of that type, in the order of its text."""
_SHOWN = ("retry", "refresh", "minimum", "expire", "owner", "nameserver")
_LISTS = ("a", "aaaa", "ns", "txt", "mx")


class DnsLanguage(Language):
    """One question to a name server."""

    name = "dns"
    ours = TEST
    asks = "host"
    null_reason = "No host specified"
    description = "Measure how long a name server takes to answer"
    options = (
        text("--host", "Host that asks"),
        text("--host-node", "Node on that host, if it has another name"),
        text("--nameserver", "Server to ask"),
        text("--record", f"Type of record: {', '.join(_RECORDS)}"),
        text("--query", "Name to ask for"),
        text("--timeout", "How long to wait for an answer"),
    )
    members = {
        "query": Member(types.text, required=True, ours="name"),
        "record": Member(types.one_of(*_RECORDS), required=True),
        "nameserver": Member(types.host, ours="server"),
        "timeout": Member(types.duration, ours="timeout", default="PT2S"),
        "host": Member(types.host, ours="source"),
        "host-node": Member(types.host_and_port),
    }
    is_open = True
    label_width = 14

    def duration(self, spec: Document) -> int:
        """Return the timeout and a second."""
        return times.parse_duration(spec.get("timeout", _TIMEOUT)) + _SLACK

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our dns: one try, as the timeout is for all of it."""
        timeout = spec.get("timeout", _TIMEOUT)
        once = {"type": spec["record"].upper(), "timeout": timeout, "tries": 1}
        return {**super().our_spec(spec, hosts), **once}

    def their_spec(self, spec: Document) -> Document | None:
        """Return the spec of our dns, if pScheduler knows the type of record."""
        record = str(spec.get("type", "A")).lower()
        return (
            {**(super().their_spec(spec) or {}), "record": record} if record in _RECORDS else None
        )

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the response time, and the records in the form of their type."""
        kind = spec["record"].upper()
        values = [each["value"] for each in result["answers"] if each["type"] == kind]
        figures: Document = {"time": times.format_milliseconds(result["time_ms"])}
        return {**figures, "record": _record(spec["record"], values)} if values else figures

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return a row with the time, and a row per record."""
        rows: Rows = [("Time", result.get("time"))]
        kind, record = spec["record"], result.get("record", [])
        if isinstance(record, dict):
            return rows + [(name.capitalize(), record.get(name)) for name in _SHOWN]
        for each in record if isinstance(record, list) else [record]:
            if isinstance(each, dict):
                rows.append(("MX", f"{each.get('mx')} preference {each.get('pref')}"))
            else:
                rows.append((kind.upper(), each))
        return rows


def _record(kind: str, values: list[str]) -> Any:
    """Return records in the form of their type: a list, an object, or a single text."""
    if kind == "mx":
        return [_exchange(value) for value in values]
    if kind in _LISTS:
        return values
    if kind == "soa":
        return _authority(values[0])
    return values[0]


def _exchange(value: str) -> Document:
    preference, _, name = value.partition(" ")
    return {"pref": _whole(preference), "mx": name}


def _authority(value: str) -> Document:
    pieces = dict(zip(SOA, value.split(), strict=False))
    return {name: piece if name in SOA[:2] else _whole(piece) for name, piece in pieces.items()}


def _whole(piece: str) -> int | str:
    return int(piece) if piece.isdecimal() else piece
