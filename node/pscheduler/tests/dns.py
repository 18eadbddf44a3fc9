"""pScheduler's dns: one question to a name server. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.dns import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import TableLanguage, our_test, single_participant, without_none
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_TIMEOUT = "PT10S"
_SLACK = SECOND
_RECORDS = ("a", "aaaa", "ns", "cname", "soa", "ptr", "mx", "txt")
SOA = ("nameserver", "owner", "serial", "refresh", "retry", "expire", "minimum")
"""The members of a record of that type, in the order of its text."""
_LISTS = ("a", "aaaa", "ns", "txt", "mx")
_LABEL_WIDTH = 13


class DnsLanguage(TableLanguage):
    """One question to a name server."""

    name = "dns"
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
        "query": Member(types.text, required=True),
        "record": Member(types.one_of(*_RECORDS), required=True),
        "nameserver": Member(types.host),
        "timeout": Member(types.duration),
        "host": Member(types.host),
        "host-node": Member(types.host_and_port),
    }
    is_open = True

    def participants(self, spec: Document) -> Participants:
        """Return the host: by its node if that is named."""
        return single_participant(spec, "host", "No host specified")

    def duration(self, spec: Document) -> int:
        """Return the timeout and a second."""
        return times.parse_duration(spec.get("timeout", _TIMEOUT)) + _SLACK

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our dns: one try, as the timeout is for all of it."""
        members = {
            "source": hosts[0],
            "name": spec["query"],
            "type": spec["record"].upper(),
            "server": spec.get("nameserver"),
            "timeout": spec.get("timeout", _TIMEOUT),
            "tries": 1,
        }
        return our_test(TEST, members, hosts, [spec.get("host")])

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our dns, if pScheduler knows the type of record."""
        record = str(spec.get("type", "A")).lower()
        if test_type != TEST.name or record not in _RECORDS or "name" not in spec:
            return None
        members = {
            "query": spec["name"],
            "record": record,
            "nameserver": spec.get("server"),
            "timeout": spec.get("timeout", "PT2S"),
            "host": spec.get("source"),
        }
        return {"schema": 1, **without_none(members)}

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return the response time, and the records in the form of their type."""
        taken = round(result["time_ms"] * MILLISECOND)
        kind = spec["record"].upper()
        values = [each["value"] for each in result["answers"] if each["type"] == kind]
        figures: Document = {"time": times.format_duration(taken)}
        return {**figures, "record": _record(spec["record"], values)} if values else figures

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a line with the time, and a line per record."""
        return "\n".join(
            f"{f'{label} ':.<{_LABEL_WIDTH}} {value}" for label, value in _rows(spec, result)
        )

    def html_text(self, spec: Document, result: Document) -> str:
        """Return a row with the time, and a row per record."""
        return table(_rows(spec, result))


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


def _rows(spec: Document, result: Document) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [("Time", result.get("time"))]
    kind, record = spec["record"], result.get("record", [])
    if isinstance(record, dict):
        return rows + [(name.capitalize(), record.get(name)) for name in SOA]
    for each in record if isinstance(record, list) else [record]:
        if isinstance(each, dict):
            rows.append(("Pref", f"{each.get('pref'):>3} {each.get('mx')}"))
        else:
            rows.append((kind.upper(), each))
    return rows


LANGUAGE: Language = DnsLanguage()
