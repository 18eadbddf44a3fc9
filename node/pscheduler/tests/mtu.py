"""pScheduler's mtu: the largest packet that passes to a host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.model.times import SECOND
from node.plugins.tests.mtu import TEST
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language, Rows
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, text


class MtuLanguage(Language):
    """The largest packet that passes to a host."""

    name = "mtu"
    ours = TEST
    label_width = 7
    description = "Find the largest packet that passes to a host"
    options = (
        text("--source", "Host or address that asks"),
        text("--source-node", "Node that asks, if it has another name than the source"),
        text("--dest", "Host at the end of the path"),
        integer("-i --ip-version", "Version of the Internet Protocol: 4 or 6"),
        integer("--port", "Port to send to"),
    )
    members = {
        "dest": Member(types.host, required=True, ours="dest"),
        "source": Member(types.host, ours="source"),
        "source-node": Member(types.host_and_port),
        "port": Member(types.port),
        "ip-version": Member(types.ip_version, since=2, ours="ip_version"),
    }
    highest = 2
    without_counterpart = {"port": "the tools here choose the ports that they send to"}

    def duration(self, spec: Document) -> int:
        """Return five seconds (µs): pScheduler's mtu books no other time."""
        return 5 * SECOND

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the largest packet (bytes) that passed."""
        return {"mtu": result["mtu_bytes"]}

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return the largest packet."""
        return [("MTU", result.get("mtu"))]
