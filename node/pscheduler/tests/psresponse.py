"""pScheduler's psresponse: how long a node of pScheduler takes to answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND
from node.plugins.tests.http import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest
from node.pscheduler.tests.language import TableLanguage, our_test
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_TIMEOUT = "PT10S"
_FINE = 200


class PsResponseLanguage(TableLanguage):
    """The time that a node of pScheduler takes to answer."""

    name = "psresponse"
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

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our http, with the address that tells whether pScheduler answers."""
        dest = spec["dest"]
        members = {
            "source": hosts[0],
            "url": f"https://{f'[{dest}]' if ':' in dest else dest}/pscheduler/",
            "verify": False,
            "timeout": spec.get("timeout", _TIMEOUT),
        }
        return our_test(TEST, members, hosts, [spec.get("source")])

    def from_parley(self, test_type: str, spec: Document) -> Document | None:  # noqa: ARG002
        """Return None: a http of ours becomes one of theirs."""
        return None

    def failure(self, spec: Document, outcome: Outcome) -> str | None:  # noqa: ARG002 - contract
        """Return why nothing was measured; a node that does not answer is a result."""
        return None if outcome.result is not None else outcome.reason

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return the time, or null and why there was no answer."""
        if result["failure"] is None and result["status"] == _FINE:
            return {"time": times.format_duration(round(result["total_ms"] * MILLISECOND))}
        reason = result["failure"] or outcome.reason or f"The answer has status {result['status']}"
        return {"time": None, "reason": reason}

    def plain_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return a line with the time, and one with the reason."""
        return "\n".join(f"{label}: {value}" for label, value in _rows(result))

    def html_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return a row with the time, and one with the reason."""
        return table(_rows(result))


def _rows(result: Document) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [("Response Time", result.get("time") or "Not Measured")]
    return rows + ([("Reason", result["reason"])] if "reason" in result else [])


LANGUAGE: Language = PsResponseLanguage()
