"""pScheduler's idle, idleex and idlebgm: doing nothing for a while. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from node.model.times import SECOND
from node.plugins.contracts import Test
from node.plugins.tests.idle import TEST
from node.plugins.tests.idlebg import TEST as TEST_BY_INTERVALS
from node.pscheduler import times
from node.pscheduler.refusals import impossible
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import (
    Language,
    Rows,
    our_test,
    runs_of_stream,
    with_consecutive_runs,
)
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import list_option, text

_TEARDOWN = SECOND
_MISSPELT = "host_node"
"""The member that the option ``--host-node`` of idleex sets; the spec's own is ``host-node``."""

_DURATION = text("-d --duration", "How long to do nothing")
_COMMENTS = (
    text("-s --starting-comment", "A text to log at the start"),
    text("-p --parting-comment", "A text to log at the end"),
)
_COMMENT_MEMBERS = {
    "starting-comment": Member(types.text),
    "parting-comment": Member(types.text),
}


def hosts_or_list(value: Any) -> str | None:
    """Return a complaint unless the value is a host, or a list of hosts."""
    if isinstance(value, list) and value:
        return next(filter(None, map(types.host_and_port, value)), None)
    return types.host_and_port(value)


class IdlingLanguage(Language):
    """Doing nothing for a while, in any class; ``figure`` is the member of its result."""

    ours: ClassVar[Test] = TEST
    asks = "host"
    figure: ClassVar[str] = "duration"
    label: ClassVar[str] = "Duration"
    label_width = 12
    without_difference = dict.fromkeys(_COMMENT_MEMBERS, "idling logs nothing here")

    def duration(self, spec: Document) -> int:
        """Return the duration and a second for what comes after."""
        return times.parse_duration(spec["duration"]) + _TEARDOWN

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return how long the hosts were idle."""
        return {self.figure: times.format_milliseconds(result["duration_ms"])}

    def own_part(self, result: Document) -> Document:
        """Return the result with the name that the tools have for the time."""
        return {**result, "time-slept": result.get(self.figure)}

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return the time without activity."""
        return [(self.label, result.get(self.figure))]


class ClassedIdlingLanguage(IdlingLanguage):
    """Doing nothing for a while as one whole, in the class of the language."""

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our idle, in the class of this test."""
        own = {"duration": spec["duration"], "class": self.scheduling_class}
        return our_test(TEST, {**own, "participants": list(hosts) or None}, hosts)

    def their_spec(self, spec: Document) -> Document | None:
        """Return the spec of an idle in the class of this test."""
        if spec.get("class", "background") != self.scheduling_class:
            return None
        hosts = list(spec.get("participants") or ())
        host = hosts[0] if len(hosts) == 1 else hosts or None
        return {**(super().their_spec(spec) or {}), "host": host}


class IdleLanguage(ClassedIdlingLanguage):
    """Doing nothing for a while, on one host or on several."""

    name = "idle"
    description = "Do nothing for a while"
    options = (_DURATION, list_option("-H --host", "A host; may be repeated", "host"), *_COMMENTS)
    members = {
        "duration": Member(types.duration, required=True, ours="duration", default="PT1S"),
        "host": Member(hosts_or_list, since=lambda value: 2 if isinstance(value, list) else 1),
        "host-node": Member(types.host_and_port),
        **_COMMENT_MEMBERS,
    }
    highest = 2

    def completed_spec(self, spec: Document) -> Document:
        """Write a single host as such; several are a list, which needs schema 2."""
        hosts = spec.get("host", ())
        return {**spec, "host": hosts[0]} if len(hosts) == 1 else spec

    def words(self, spec: Document) -> list[str]:
        """Return the words, with one for each host."""
        host = spec.get("host")
        listed_hosts = {"host": [host]} if isinstance(host, str) else {}
        return super().words({**spec, **listed_hosts})

    def participants(self, spec: Document) -> Participants:
        """Return all hosts; one host may be told by its node."""
        host = spec.get("host-node", spec.get("host"))
        names = tuple(host) if isinstance(host, list) else (host,)
        reason = None if host is not None else self.null_reason
        return Participants(names, reason, reason_member="reason")


class IdleExLanguage(ClassedIdlingLanguage):
    """Doing nothing for a while, with the host to itself."""

    name = "idleex"
    description = "Do nothing for a while, with the host to itself"
    scheduling_class = "exclusive"
    options = (
        _DURATION,
        text("-H --host", "The host"),
        text("--host-node", "Node on that host, if it has another name", _MISSPELT),
        *_COMMENTS,
    )
    members = {
        "duration": Member(types.duration, required=True, ours="duration", default="PT1S"),
        "host": Member(types.host),
        "host-node": Member(types.host_and_port),
        _MISSPELT: Member(types.host_and_port),
        **_COMMENT_MEMBERS,
    }
    is_open = True

    def participants(self, spec: Document) -> Participants:
        """Return the host: by its node if that is named, in whichever spelling."""
        host = spec.get("host-node", spec.get(_MISSPELT, spec.get("host")))
        return Participants((host,), None if host is not None else self.null_reason)

    def their_spec(self, spec: Document) -> Document | None:
        """Return the spec of an exclusive idle on one host."""
        theirs = super().their_spec(spec)
        return None if theirs is None or isinstance(theirs["host"], list) else theirs


class IdleBgmLanguage(IdlingLanguage):
    """Doing nothing without end, with a result per interval."""

    name = "idlebgm"
    ours = TEST_BY_INTERVALS
    figure = "time-slept"
    label = "Time Slept"
    label_width = 14
    description = "Do nothing for a while, with a result for each interval"
    scheduling_class = "background-multi"
    options = (
        _DURATION,
        text("-H --host", "The host"),
        text("-i --interval", "How long after one result the next one is told"),
        *_COMMENTS,
    )
    members = {
        "duration": Member(types.duration, required=True, ours="duration", default="PT1H"),
        "host": Member(types.host, ours="source"),
        "host-node": Member(types.host_and_port),
        "interval": Member(types.duration, ours="each", default="PT10S"),
        **_COMMENT_MEMBERS,
    }
    is_open = True

    def participants(self, spec: Document) -> Participants:
        """Return the host; why there is none has another name than for most tests."""
        return replace(super().participants(spec), reason_member="reason")

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our idle with intervals; runs of a day follow each other for longer ones.

        :raises Refusal: 422, the duration is shorter than an interval.
        """
        asked = times.parse_duration(spec["duration"])
        each = times.parse_duration(spec["interval"]) if "interval" in spec else asked
        length, runs = runs_of_stream(asked, each)
        if not length:
            raise impossible(f"{self.name}: the interval is longer than the duration")
        members = {
            "source": hosts[0],
            "duration": times.format_duration(length),
            "each": times.format_duration(each),
        }
        test = our_test(self.ours, members, hosts, [spec.get("host")])
        return with_consecutive_runs(test, length, runs)

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return how long the host was idle."""
        return {self.figure: times.format_milliseconds(result["slept_ms"])}
