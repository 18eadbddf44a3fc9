"""pScheduler's latency: one-way delays and loss. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node.model.times import SECOND
from node.plugins.tests.latency import TEST
from node.pscheduler import times
from node.pscheduler.tests import delays
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, ParleyTest
from node.pscheduler.tests.delays import DelayLanguage
from node.pscheduler.tests.language import our_test, without_none
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import on

_COUNT = 100
_OVERHEAD = 1.1
"""Sending takes this much longer than planned."""
_READ_PER_S = 50_000
_CONTROL_S = 5


class LatencyLanguage(DelayLanguage):
    """One-way delays and loss."""

    name = "latency"
    description = "Measure the one-way delay and loss of packets between two hosts"
    scheduling_class = "normal"
    options = (
        *delays.ENDS,
        *delays.PACKETS,
        on("-r --reverse", "Measure from the dest to the source"),
        on("--traverse-nat", "Let packets pass through translated addresses"),
        delays.RAW,
    )
    members = {
        **delays.MEMBERS,
        "reverse": Member(types.boolean, since=2),
        "traverse-nat": Member(types.boolean, since=3),
        "protocol": Member(types.text, since=4),
    }
    highest = 4

    def duration(self, spec: Document) -> int:
        """Return the time of all packets and a tenth of it, of reading them, and of the rest."""
        count, interval = spec.get("packet-count", _COUNT), delays.interval_of(spec) / SECOND
        sending = _OVERHEAD * interval * count + count / _READ_PER_S
        return int(sending + spec.get("packet-timeout", 0) + _CONTROL_S) * SECOND

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our latency, which counts the packets by delay; dest takes part, too."""
        ends = self.ends(spec, hosts)
        source, dest = ends.nodes
        members: dict[str, Any] = {
            "source": source,
            "dest": dest,
            "count": spec.get("packet-count", _COUNT),
            "interval": times.format_duration(delays.interval_of(spec)),
            "timeout": delays.timeout_of(spec),
            "length": delays.length_of(spec),
            "ip_version": spec.get("ip-version"),
            "histogram": True,
        }
        tools = delays.tools_of(self.name, spec)
        return our_test(TEST, members, ends.nodes, ends.addresses, tools)

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our latency, of which only the way to dest is measured then."""
        if test_type != TEST.name or spec.get("dest") is None:
            return None
        members = {
            "source": spec.get("source"),
            "dest": spec["dest"],
            "packet-count": spec.get("count", _COUNT),
            "packet-interval": delays.seconds_of(spec.get("interval", "PT0.1S")),
            "packet-timeout": delays.seconds_of(spec.get("timeout", "PT1S")),
            "packet-padding": delays.padding_of(spec.get("length")),
            "ip-version": spec.get("ip_version"),
        }
        return {"schema": 1, **without_none(members)}


LANGUAGE: Language = LatencyLanguage()
