"""pScheduler's latencybg: one-way delays and loss without end, interval by interval. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node.plugins.tests.latencybg import TEST
from node.pscheduler import times
from node.pscheduler.refusals import impossible
from node.pscheduler.tests import delays
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, ParleyTest
from node.pscheduler.tests.delays import DelayLanguage
from node.pscheduler.tests.language import our_test, without_none
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text
from node.pscheduler.tests.readers import seconds_duration
from node.pscheduler.tests.streams import STREAM_LONGEST, with_consecutive_runs

_COUNT = 600


class LatencyBgLanguage(DelayLanguage):
    """One-way delays and loss without end."""

    name = "latencybg"
    description = "Measure the one-way delay and loss of packets between two hosts without end"
    scheduling_class = "background-multi"
    options = (
        *delays.ENDS,
        text("-t --duration", "How long to measure", read=seconds_duration),
        *delays.PACKETS,
        delays.RAW,
    )
    members = {
        **delays.MEMBERS,
        "duration": Member(types.duration),
        "protocol": Member(types.text, since=2),
    }
    highest = 2
    is_open = True

    def duration(self, spec: Document) -> int:
        """Return the length of a run; without one, and beyond a day, a day."""
        return min(STREAM_LONGEST, _duration_of(spec) or STREAM_LONGEST)

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our latencybg; runs of a day follow each other for longer ones.

        :raises Refusal: 422, the duration is shorter than an interval.
        """
        ends = self.ends(spec, hosts)
        source, dest = ends.nodes
        each = spec.get("packet-count", _COUNT) * delays.interval_of(spec)
        length = self.duration(spec)
        length -= length % each if each else 0
        if not length:
            told = times.format_duration(each)
            raise impossible(f"{self.name}: an interval of {told} is longer than the duration")
        members: dict[str, Any] = {
            "source": source,
            "dest": dest,
            "duration": times.format_duration(length),
            "each": times.format_duration(each),
            "interval": times.format_duration(delays.interval_of(spec)),
            "timeout": delays.timeout_of(spec),
            "length": delays.length_of(spec),
            "ip_version": spec.get("ip-version"),
        }
        tools = tuple({"stamp": "stampbg"}.get(tool, tool) for tool in self._tools(spec))
        test = our_test(TEST, members, ends.nodes, ends.addresses, tools)
        return with_consecutive_runs(test, _duration_of(spec), length)

    def _tools(self, spec: Document) -> tuple[str, ...]:
        tools = delays.tools_of(self.name, spec)
        if "owping" in tools:
            raise impossible(f"{self.name}: no tool here speaks owamp without end; use stamp")
        return tools

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our latencybg, of which only the way to dest is measured then."""
        if test_type != TEST.name or spec.get("dest") is None:
            return None
        interval = times.parse_duration(spec.get("interval", "PT0.1S"))
        each = times.parse_duration(spec.get("each", "PT1M"))
        members = {
            "source": spec.get("source"),
            "dest": spec["dest"],
            "duration": spec.get("duration", "PT1H"),
            "packet-count": each // interval,
            "packet-interval": delays.seconds_of(spec.get("interval", "PT0.1S")),
            "packet-timeout": delays.seconds_of(spec.get("timeout", "PT1S")),
            "packet-padding": delays.padding_of(spec.get("length")),
            "ip-version": spec.get("ip_version"),
        }
        return {"schema": 1, **without_none(members)}


def _duration_of(spec: Document) -> int | None:
    """Return the length of the measurement in microseconds; None if it has no end."""
    return times.parse_duration(spec["duration"]) if "duration" in spec else None


LANGUAGE: Language = LatencyBgLanguage()
