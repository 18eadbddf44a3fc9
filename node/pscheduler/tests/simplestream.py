"""pScheduler's simplestream: one text over TCP. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.plugins.tests.simplestream import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import Language, Rows, our_test, source_and_dest
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, number, text

_TIMEOUT = "PT5S"
_LABELS = {
    "dawdled": "Dawdled",
    "sent": "Text Sent",
    "received": "Text Received",
    "elapsed-time": "Elapsed Time",
}


class SimplestreamLanguage(Language):
    """One text over TCP."""

    name = "simplestream"
    ours = TEST
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
        "dest": Member(types.host, required=True, ours="dest"),
        "dest-node": Member(types.host_and_port),
        "source": Member(types.host, ours="source"),
        "source-node": Member(types.host_and_port),
        "dawdle": Member(types.duration, ours="dawdle"),
        "fail": Member(types.probability),
        "test-material": Member(types.text, ours="text"),
        "timeout": Member(types.duration, ours="timeout", default=_TIMEOUT),
        "ip-version": Member(types.ip_version, since=2, ours="ip_version"),
        "port": Member(types.port, since=3, ours="port"),
    }
    highest = 3
    is_open = True
    label_width = 17
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
        own = self.our_spec(spec, hosts)
        members = {**own, "dest": hosts[1], "timeout": spec.get("timeout", _TIMEOUT)}
        return our_test(TEST, members, hosts, [spec.get("source"), spec["dest"]])

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return both texts, and the times."""
        return {
            "dawdled": times.format_milliseconds(result["dawdled_ms"]),
            "sent": result["sent"],
            "received": result["received"],
            "elapsed-time": times.format_milliseconds(result["elapsed_ms"]),
        }

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return what was sent and received, and both times."""
        return [(label, result.get(member)) for member, label in _LABELS.items()]
