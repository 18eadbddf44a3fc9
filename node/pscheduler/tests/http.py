"""pScheduler's http: how long a web server takes to answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.secrets import secret_fields
from node.model.times import SECOND
from node.plugins.tests.http import TEST
from node.pscheduler import times
from node.pscheduler.refusals import invalid
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language, Rows, without_none
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, list_option, on, text

_TIMEOUT = "PT5S"
_SLACK = 2 * SECOND
_BAD = 400
_RESULT_SCHEMA = 2
"""The schema of results that have a status."""
_LABELS = {
    "time": "Response Time",
    "status": "Status Code",
    "found": "String Found",
    "headers": "Headers",
    "content": "Content",
}


def headers(value: Any) -> str | None:
    """Return a complaint unless the value is an object of texts."""
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return None
    return "must be an object whose members are texts"


class HttpLanguage(Language):
    """The time that a web server takes to answer."""

    name = "http"
    ours = TEST
    asks = "host"
    null_reason = "No host specified"
    label_width = 17
    description = "Measure how long a web server takes to answer"
    options = (
        text("--url", "URL to fetch"),
        list_option("--header", "Header to send, as 'Name: value'; may be repeated", "headers"),
        text("--parse", "Text to look for in the answer"),
        text("--host", "Host that fetches"),
        text("--host-node", "Node on that host, if it has another name"),
        integer("--ip-version", "Version of the Internet Protocol: 4 or 6"),
        on("--always-succeed", "Count any answer as a success"),
        text("--keep-content", "Number of bytes of the answer to keep", read=types.si_value),
        text("--timeout", "How long to wait for the answer"),
    )
    members = {
        "url": Member(types.text, required=True, ours="url"),
        "parse": Member(types.text, ours="text"),
        "timeout": Member(types.duration, ours="timeout", default="PT10S"),
        "host": Member(types.host, ours="source"),
        "host-node": Member(types.host_and_port),
        "always-succeed": Member(types.boolean, since=2),
        "keep-content": Member(types.cardinal_or_zero, since=2),
        "ip-version": Member(types.ip_version, since=3, ours="ip_version"),
        "headers": Member(headers, since=4, ours="headers"),
    }
    highest = 4
    secrets = secret_fields(TEST.spec_model)
    without_counterpart = {"keep-content": "results here never keep what a server sends"}

    def completed_spec(self, spec: Document) -> Document:
        """Write headers as an object."""
        if "headers" not in spec:
            return spec
        return {**spec, "headers": dict(map(_header, spec["headers"]))}

    def words(self, spec: Document) -> list[str]:
        """Return the words, with one for each header."""
        told = [f"{name}: {value}" for name, value in spec.get("headers", {}).items()]
        return super().words({**spec, "headers": told})

    def duration(self, spec: Document) -> int:
        """Return the timeout and two seconds."""
        return times.parse_duration(spec.get("timeout", _TIMEOUT)) + _SLACK

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our http; as there, the certificate is not checked."""
        timeout = spec.get("timeout", _TIMEOUT)
        return {**super().our_spec(spec, hosts), "verify": False, "timeout": timeout}

    def their_spec(self, spec: Document) -> Document | None:
        """Return the spec of our http, if it asks for nothing that pScheduler cannot check."""
        asks_more = spec.get("verify", True) or spec.get("status") is not None
        if asks_more or spec.get("method", "GET") != "GET":
            return None
        if headers(spec.get("headers", {})) is not None:
            return None  # secrets, which would be told to whoever asks there
        return {**(super().their_spec(spec) or {}), "headers": spec.get("headers") or None}

    def failure(self, spec: Document, outcome: Outcome) -> str | None:
        """Return why there is no good answer; a text that was not found is no failure there."""
        result = outcome.result
        if result is None:
            return outcome.reason
        if spec.get("always-succeed"):
            return None
        if result["failure"] is not None or result["status"] is None:
            return result["failure"] or outcome.reason or "There was no answer"
        return outcome.reason if result["status"] >= _BAD else None

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the time, the status, and whether the text was found."""
        figures = {
            "schema": _RESULT_SCHEMA,
            "time": times.format_milliseconds(result["total_ms"]),
            "status": result["status"],
            "found": bool(result["matched"]) if "parse" in spec else None,
        }
        return without_none(figures)

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return a row per figure."""
        return [(label, result[name]) for name, label in _LABELS.items() if name in result]


def _header(told: str) -> tuple[str, str]:
    name, colon, value = told.partition(":")
    if not colon or not name.strip():
        raise invalid(f"option --header: '{told}' is not a header; write 'Name: value'")
    return name.strip(), value.strip()
