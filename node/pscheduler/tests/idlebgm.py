"""pScheduler's idlebgm: doing nothing without end, with a result per interval. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND
from node.plugins.tests.idlebg import TEST
from node.pscheduler import times
from node.pscheduler.refusals import impossible
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest, Participants
from node.pscheduler.tests.idle import COMMENTS, DURATION, IdlingLanguage
from node.pscheduler.tests.language import our_test, single_participant, without_none
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text
from node.pscheduler.tests.streams import STREAM_LONGEST, with_consecutive_runs


class IdleBgmLanguage(IdlingLanguage):
    """Doing nothing without end, with a result per interval."""

    name = "idlebgm"
    figure = "time-slept"
    description = "Do nothing for a while, with a result for each interval"
    scheduling_class = "background-multi"
    options = (
        DURATION,
        text("-H --host", "The host"),
        text("-i --interval", "How long after one result the next one is told"),
        *COMMENTS,
    )
    members = {
        "duration": Member(types.duration, required=True),
        "host": Member(types.host),
        "host-node": Member(types.host_and_port),
        "interval": Member(types.duration),
        "starting-comment": Member(types.text),
        "parting-comment": Member(types.text),
    }
    is_open = True

    def participants(self, spec: Document) -> Participants:
        """Return the host: by its node if that is named."""
        return single_participant(spec, "host", "No source specified")

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our idle with intervals; runs of a day follow each other for longer ones.

        :raises Refusal: 422, the duration is shorter than an interval.
        """
        asked = times.parse_duration(spec["duration"])
        each = times.parse_duration(spec["interval"]) if "interval" in spec else asked
        length = min(asked, STREAM_LONGEST)
        length -= length % each if each else 0
        if not length:
            raise impossible(f"{self.name}: the interval is longer than the duration")
        members = {
            "source": hosts[0],
            "duration": times.format_duration(length),
            "each": times.format_duration(each),
        }
        return with_consecutive_runs(
            our_test(TEST, members, hosts, [spec.get("host")]), asked, length
        )

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of our idle with intervals."""
        if test_type != TEST.name:
            return None
        members = {
            "duration": spec.get("duration", "PT1H"),
            "interval": spec.get("each", "PT10S"),
            "host": spec.get("source"),
        }
        return {"schema": 1, **without_none(members)}

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return how long the host was idle."""
        slept = times.format_duration(round(result["slept_ms"] * MILLISECOND))
        return {self.figure: slept}


LANGUAGE: Language = IdleBgmLanguage()
