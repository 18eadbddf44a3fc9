"""pScheduler's psresponse: how long a node of pScheduler takes to answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.plugins.tests.http import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language, Rows
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_TIMEOUT = "PT10S"
_FINE = 200


class PsResponseLanguage(Language):
    """The time that a node of pScheduler takes to answer."""

    name = "psresponse"
    ours = TEST
    label_width = 10
    description = "Measure how long a node of pScheduler takes to answer"
    options = (
        text("--source", "Host that asks"),
        text("--source-node", "Node that asks, if it has another name than the source"),
        text("--dest", "Host that answers"),
        text("--timeout", "How long to wait for the answer"),
    )
    members = {
        "dest": Member(types.host, required=True),
        "source": Member(types.host),
        "source-node": Member(types.host),
        "timeout": Member(types.duration),
    }

    def duration(self, spec: Document) -> int:
        """Return the timeout (µs)."""
        return times.parse_duration(spec.get("timeout", _TIMEOUT))

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our http, with the address that tells whether pScheduler answers."""
        dest = spec["dest"]
        return {
            **super().our_spec(spec, hosts),
            "url": f"https://{f'[{dest}]' if ':' in dest else dest}/pscheduler/",
            "verify": False,
            "timeout": spec.get("timeout", _TIMEOUT),
        }

    def their_spec(self, spec: Document) -> None:
        """Return None: a http of ours becomes one of theirs."""
        return

    def failure(self, spec: Document, outcome: Outcome) -> str | None:
        """Return why nothing was measured; a node that does not answer is a result."""
        return None if outcome.result is not None else outcome.reason

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the time, or null and why there was no answer."""
        if result["failure"] is None and result["status"] == _FINE:
            return {"time": times.format_milliseconds(result["total_ms"])}
        reason = result["failure"] or outcome.reason or f"The answer has status {result['status']}"
        return {"time": None, "reason": reason}

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return a row with the time, and one with the reason."""
        rows: Rows = [("Time", result.get("time") or "Not Specified")]
        return rows + ([("Reason", result["reason"])] if "reason" in result else [])
