"""pScheduler's idle: doing nothing for a while. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.idle import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import TableLanguage, our_test
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import listed, text

_TEARDOWN = SECOND
UNLOGGED = {
    "starting-comment": "idling logs nothing here",
    "parting-comment": "idling logs nothing here",
}
"""Members of idling in any class that make no difference."""

DURATION = text("-d --duration", "How long to do nothing")
COMMENTS = (
    text("-s --starting-comment", "A text to log at the start"),
    text("-p --parting-comment", "A text to log at the end"),
)


def hosts_or_list(value: Any) -> str | None:
    """Return a complaint unless the value is a host, or a list of hosts."""
    if isinstance(value, list) and value:
        return next(filter(None, map(types.host_and_port, value)), None)
    return types.host_and_port(value)


class IdlingLanguage(TableLanguage):
    """Doing nothing for a while, in any class; ``figure`` is the member of its result."""

    figure: ClassVar[str] = "duration"
    without_difference = UNLOGGED

    def duration(self, spec: Document) -> int:
        """Return the duration and a second for what comes after."""
        return times.parse_duration(spec["duration"]) + _TEARDOWN

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:  # noqa: ARG002
        """Return how long the hosts were idle."""
        return {self.figure: idle_duration(result)}

    def plain_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return the time without activity as one line."""
        return f"Duration ... {result.get(self.figure)}"

    def html_text(self, spec: Document, result: Document) -> str:  # noqa: ARG002 - contract
        """Return the time without activity as a table of one row."""
        return table([("Duration", result.get(self.figure))])


class IdleLanguage(IdlingLanguage):
    """Doing nothing for a while, on one host or on several."""

    name = "idle"
    description = "Do nothing for a while"
    options = (DURATION, listed("-H --host", "A host; may be repeated", "host"), *COMMENTS)
    members = {
        "duration": Member(types.duration, required=True),
        "host": Member(hosts_or_list, since=lambda value: 2 if isinstance(value, list) else 1),
        "host-node": Member(types.host_and_port),
        "starting-comment": Member(types.text),
        "parting-comment": Member(types.text),
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
        reason = None if host is not None else "No source specified"
        return Participants(names, reason, reason_member="reason")

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our idle, in the background."""
        return idle_of(spec, hosts, self.scheduling_class)

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of a background idle."""
        if test_type != TEST.name or spec.get("class", "background") != self.scheduling_class:
            return None
        hosts = list(spec.get("participants") or ())
        parsed = self.completed_spec(
            {"duration": spec.get("duration", "PT1S"), **({"host": hosts} if hosts else {})}
        )
        return {"schema": types.least_schema(self.members, parsed), **parsed}


def idle_of(spec: Document, hosts: Sequence[str], scheduling_class: str) -> ParleyTest:
    """Return our idle test in this scheduling class."""
    ours_ = {"duration": spec["duration"], "class": scheduling_class}
    return our_test(TEST, {**ours_, "participants": list(hosts) or None}, hosts)


def idle_duration(result: Mapping[str, Any]) -> str:
    """Return the duration that the result of our idle tells, in ISO 8601."""
    return times.format_duration(round(result["duration_ms"] * MILLISECOND))


LANGUAGE: Language = IdleLanguage()
