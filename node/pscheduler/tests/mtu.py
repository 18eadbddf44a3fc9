"""pScheduler's mtu: the largest packet that passes to a host. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import SECOND
from node.plugins.tests.mtu import TEST
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest
from node.pscheduler.tests.language import TableLanguage, our_test, without_none
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, text


class MtuLanguage(TableLanguage):
    """The largest packet that passes to a host."""

    name = "mtu"
    description = "Find the largest packet that passes to a host"
    options = (
        text("--source", "Host or address that asks"),
        text("--source-node", "Node that asks, if it has another name than the source"),
        text("--dest", "Host at the end of the path"),
        integer("-i --ip-version", "Version of the Internet Protocol: 4 or 6"),
        integer("--port", "Port to send to"),
    )
    members = {
        "dest": Member(types.host, required=True),
        "source": Member(types.host),
        "source-node": Member(types.host_and_port),
        "port": Member(types.port),
        "ip-version": Member(types.ip_version, since=2),
    }
    highest = 2
    without_counterpart = {"port": "the tools here choose the ports that they send to"}

    def duration(self, spec: Document) -> int:  # noqa: ARG002 - contract
        """Return five seconds (µs): pScheduler's mtu books no other time."""
        return 5 * SECOND

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our mtu to the same host, from the same address."""
        members = {
            "source": hosts[0],
            "dest": spec["dest"],
            "ip_version": spec.get("ip-version"),
        }
        return our_test(TEST, members, hosts, [spec.get("source")])

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our mtu in pScheduler's words; None for other tests."""
        if test_type != TEST.name or "dest" not in spec:
            return None
        parsed = without_none(
            {
                "dest": spec["dest"],
                "source": spec.get("source"),
                "ip-version": spec.get("ip_version"),
            }
        )
        return {"schema": types.least_schema(self.members, parsed), **parsed}

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return the largest packet (bytes) that passed."""
        return {"mtu": result["mtu_bytes"]}

    def plain_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return the largest packet as one line."""
        return f"MTU: {result.get('mtu')}"

    def html_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return the largest packet as a table of one row."""
        return table([("MTU", result.get("mtu"))])


LANGUAGE: Language = MtuLanguage()
