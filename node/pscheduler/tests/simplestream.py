"""pScheduler's simplestream: one text over TCP. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND
from node.plugins.tests.simplestream import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import TableLanguage, our_test, source_and_dest, without_none
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, number, text

_TIMEOUT = "PT5S"
_LABELS = {
    "dawdled": "Dawdled",
    "sent": "Text Sent",
    "received": "Text Received",
    "elapsed-time": "Elapsed Time",
}
_WIDTH = 17


class SimplestreamLanguage(TableLanguage):
    """One text over TCP."""

    name = "simplestream"
    description = "Send a text from one host to another over TCP"
    options = (
        text("-e --dest", "Host or address that receives"),
        text("--dest-node", "Node that receives, if it has another name than the dest"),
        text("-d --dawdle", "Send only after a random time up to this"),
        integer("-i --ip-version", "Version of the Internet Protocol: 4 or 6"),
        text("-m --test-material", "Text to send"),
        text("-s --source", "Host or address that sends"),
        text("--source-node", "Node that sends, if it has another name than the source"),
        text("-t --timeout", "How long to try to connect"),
        number("-f --fail", "Probability of a failure on purpose, 0 to 1"),
        integer("-p --port", "Port at which the text is received"),
    )
    members = {
        "dest": Member(types.host, required=True),
        "dest-node": Member(types.host_and_port),
        "source": Member(types.host),
        "source-node": Member(types.host_and_port),
        "dawdle": Member(types.duration),
        "fail": Member(types.probability),
        "test-material": Member(types.text),
        "timeout": Member(types.duration),
        "ip-version": Member(types.ip_version, since=2),
        "port": Member(types.port, since=3),
    }
    highest = 3
    is_open = True
    without_counterpart = {"fail": "no test here fails on purpose"}
    harmless = {"fail": (0,)}

    def participants(self, spec: Document) -> Participants:
        """Return source and dest, each by its node if that is named."""
        return source_and_dest(spec)

    def duration(self, spec: Document) -> int:
        """Return the timeout, or else twice the time to dawdle, or else five seconds."""
        if "timeout" in spec:
            return times.parse_duration(spec["timeout"])
        if "dawdle" in spec:
            return 2 * times.parse_duration(spec["dawdle"])
        return times.parse_duration(_TIMEOUT)

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our simplestream with the same text and times."""
        members = {
            "source": hosts[0],
            "dest": hosts[1],
            "text": spec.get("test-material"),
            "dawdle": spec.get("dawdle"),
            "timeout": spec.get("timeout", _TIMEOUT),
            "ip_version": spec.get("ip-version"),
            "port": spec.get("port"),
        }
        return our_test(TEST, members, hosts, [spec.get("source"), spec["dest"]])

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our simplestream in pScheduler's words; None for other tests."""
        if test_type != TEST.name or spec.get("dest") is None:
            return None
        parsed = without_none(
            {
                "source": spec.get("source"),
                "dest": spec["dest"],
                "test-material": spec.get("text"),
                "dawdle": spec.get("dawdle"),
                "timeout": spec.get("timeout", _TIMEOUT),
                "ip-version": spec.get("ip_version"),
                "port": spec.get("port"),
            }
        )
        return {"schema": types.least_schema(self.members, parsed), **parsed}

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return both texts, and the times."""
        return {
            "dawdled": times.format_duration(round(result["dawdled_ms"] * MILLISECOND)),
            "sent": result["sent"],
            "received": result["received"],
            "elapsed-time": times.format_duration(round(result["elapsed_ms"] * MILLISECOND)),
        }

    def plain_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return what was sent and received, and both times, in four lines."""
        return "\n".join(
            f"{f'{label} '.ljust(_WIDTH, '.')} {result.get(member)}"
            for member, label in _LABELS.items()
        )

    def html_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return what was sent and received, and both times, in four rows."""
        return table((label, result.get(member)) for member, label in _LABELS.items())


LANGUAGE: Language = SimplestreamLanguage()
