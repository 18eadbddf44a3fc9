"""A language: pScheduler's words for one test, and ours. Pure.

Most of a language follows from its tables: the option parser and the checks, and our spec for one
of theirs and back, as far as a member means the same in both. A test says the rest in methods.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, ClassVar

from pydantic import ValidationError

from node.model.times import DAY
from node.model.wire.fields import FROM_OUTSIDE
from node.plugins.contracts import Test
from node.plugins.outline import INTERVALS_MAX
from node.plugins.participation import first_fault
from node.pscheduler import times
from node.pscheduler.refusals import impossible
from node.pscheduler.tests import members as types
from node.pscheduler.tests import options
from node.pscheduler.tests.contract import (
    MAINTAINER,
    Document,
    Outcome,
    ParleyTest,
    Participants,
)
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import Option

_IN_ANOTHER_FORM = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)

Rows = list[tuple[str, object]]
"""Labels and values."""

RUN_FAILED = "Run failed."
RUN_FAILED_HTML = "<p>Run failed.</p>"


class Language(ABC):
    """One test of pScheduler in its own words.

    ``ours`` is the test of ours that measures the same. ``asks`` is the member that names the first
    participant, and ``null_reason`` says why nothing does. The texts of members in ``secrets`` are
    told to whoever posted them only.

    ``without_counterpart`` are members that no tool of ours does, with a sentence each; a value in
    ``harmless`` asks for what happens anyway. ``without_difference`` are members that no tool of
    ours does either, with the reason why it is measured all the same. An ``is_open`` spec may have
    unknown members.
    """

    name: ClassVar[str]
    ours: ClassVar[Test]
    description: ClassVar[str]
    asks: ClassVar[str] = "source"
    null_reason: ClassVar[str] = "No source specified"
    scheduling_class: ClassVar[str] = "background"
    options: ClassVar[Sequence[Option]]
    members: ClassVar[Mapping[str, Member]]
    highest: ClassVar[int] = 1
    is_open: ClassVar[bool] = False
    without_counterpart: ClassVar[Mapping[str, str]] = {}
    without_difference: ClassVar[Mapping[str, str]] = {}
    harmless: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    secrets: ClassVar[frozenset[str]] = frozenset()
    tools_between_nodes: ClassVar[Mapping[str, str]] = {}
    """By a tool for hosts that are no nodes, the one that measures the same between two nodes."""
    label_width: ClassVar[int] = 0
    """The width to which dots fill the labels in :meth:`plain_text`; without dots if it is 0."""

    def enumeration(self) -> Document:
        """Return the object that describes the test, as ``GET /tests/TEST`` answers it."""
        return {
            "schema": 1,
            "name": self.name,
            "description": self.description,
            "version": "1.0",
            "maintainer": dict(MAINTAINER),
            "scheduling-class": self.scheduling_class,
        }

    def parse(self, words: Sequence[str]) -> Document:
        """Return the spec that command-line words stand for.

        :raises Refusal: 400, with the option parser's complaint; also the help, for ``--help``.
        """
        return self._with_schema(self.completed_spec(options.parse(self.name, self.options, words)))

    def _with_schema(self, spec: Document) -> Document:
        """Return a spec with the least schema that knows its members."""
        return {"schema": types.least_schema(self.members, spec), **spec}

    def completed_spec(self, spec: Document) -> Document:
        """Return the members that words set, with those that follow from them."""
        return spec

    def words(self, spec: Document) -> list[str]:
        """Return the command-line words of a valid spec, without the test's name."""
        return options.words_of(self.options, spec)

    def check(self, spec: Any) -> None:
        """Refuse what does not fit the table of members.

        :raises Refusal: 400, with a sentence that names the member.
        """
        types.check_spec(self.members, self.highest, spec, is_open=self.is_open)

    def participants(self, spec: Document) -> Participants:
        """Return the one that asks: its node if that is named, or else its address."""
        return single_participant(spec, self.asks, self.null_reason)

    @abstractmethod
    def duration(self, spec: Document) -> int:
        """Return how long pScheduler books for a valid spec, in microseconds, not yet rounded."""

    def to_parley(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test, unless the spec has members that no tool of ours does.

        :raises Refusal: 422, with the sentence of the first such member.
        """
        for member, sentence in self.without_counterpart.items():
            if member in spec and spec[member] not in self.harmless.get(member, ()):
                raise impossible(f"{self.name}: {sentence}")
        return replace(self.translated_test(spec, hosts), notes=self.notes(spec))

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test for a spec without such members, measured by the one that asks.

        :raises Refusal: 422, its values have no counterpart.
        """
        where = [spec.get(self.asks)]
        return our_test(self.ours, self.our_spec(spec, hosts), hosts, where, self.our_tools(spec))

    def test_of_target(self, spec: Document, hosts: Sequence[str]) -> ParleyTest | None:
        """Return our test for a dest that is no node; None if it has to be one.

        :raises Refusal: 422, its values have no counterpart.
        """
        return None

    def our_tools(self, spec: Document) -> tuple[str, ...]:
        """Return the tools of ours to which a spec restricts the test; empty is any.

        :raises Refusal: 422, there is none.
        """
        return ()

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our test; ``hosts`` are the participants by our names."""
        same = {each.ours: spec.get(name) for name, each in self.members.items() if each.ours}
        return {**same, "source": hosts[0]}

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec for a test of ours (its wire form); None if it has no counterpart."""
        needed = (each.ours for each in self.members.values() if each.required and each.ours)
        if test_type != self.ours.name or any(spec.get(name) is None for name in needed):
            return None
        theirs = self.their_spec(spec)
        return None if theirs is None else self._with_schema(without_none(theirs))

    def their_spec(self, spec: Document) -> Document | None:
        """Return the members for a spec of our test, without its schema; None if it has none."""
        return {
            name: spec.get(each.ours, each.default)
            for name, each in self.members.items()
            if each.ours
        }

    def notes(self, spec: Document) -> tuple[str, ...]:
        """Return a sentence for each member that makes no difference here."""
        told = self.without_difference
        return tuple(
            f"{member} makes no difference: {reason}"
            for member, reason in told.items()
            if spec.get(member)
        )

    def result(self, spec: Document, outcome: Outcome) -> Document:
        """Return the figures of a run that succeeded, or why it failed."""
        reason = self.failure(spec, outcome)
        if reason is not None or outcome.result is None:
            return failed_result(reason or "The run has no result", outcome)
        try:
            figures = self.figures(spec, outcome.result, outcome)
        except _IN_ANOTHER_FORM:
            return failed_result("The result lacks a figure that this test tells", outcome)
        return {"schema": 1, "succeeded": True, **figures}

    def failure(self, spec: Document, outcome: Outcome) -> str | None:
        """Return why the run failed in pScheduler's eyes; None if it did not."""
        return outcome.reason

    @abstractmethod
    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the members of a successful result, without ``schema`` and ``succeeded``."""

    def own_part(self, result: Document) -> Document:
        """Return a successful result as the tool of the first participant tells it."""
        return result

    def text(self, spec: Document, result: Document) -> str:
        """Return a result as plain text, without a final line break.

        A result in another form, as another node may have told it, is shown as it is.
        """
        if not result.get("succeeded"):
            return RUN_FAILED
        try:
            return self.plain_text(spec, result)
        except _IN_ANOTHER_FORM:
            return json.dumps(result, indent=2)

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a successful result as plain text: a line for each row."""
        width = self.label_width
        return "\n".join(
            f"{f'{label} ':.<{width}} {value}" if width else f"{label}: {value}"
            for label, value in self.rows(spec, result)
        )

    def rows(self, spec: Document, result: Document) -> Rows:
        """Return what a successful result tells, with a label for each value."""
        return []

    def html(self, spec: Document, result: Document) -> str | None:
        """Return a result as HTML; one in another form is shown as it is."""
        if not result.get("succeeded"):
            return RUN_FAILED_HTML
        try:
            return self.html_text(spec, result)
        except _IN_ANOTHER_FORM:
            return f"<pre>{escape(json.dumps(result, indent=2))}</pre>"

    def html_text(self, spec: Document, result: Document) -> str | None:
        """Return a successful result as HTML; None if the test has no such form."""
        return table(self.rows(spec, result))


def single_participant(spec: Document, member: str, null_reason: str) -> Participants:
    """Return the one participant of a spec: the member ``MEMBER-node``, or else ``MEMBER``."""
    host = spec.get(f"{member}-node", spec.get(member))
    return Participants((host,), None if host is not None else null_reason)


def source_and_dest(spec: Document) -> Participants:
    """Return source and dest of a spec, each by its node if that is named."""
    source = spec.get("source-node", spec.get("source"))
    dest = spec.get("dest-node", spec.get("dest"))
    return Participants((source, dest), None if source is not None else "No source specified")


def without_none(members: Mapping[str, Any]) -> Document:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def our_test(
    test: Test,
    spec: Document,
    hosts: Sequence[str],
    addresses: Sequence[str | None] = (),
    tools: tuple[str, ...] = (),
) -> ParleyTest:
    """Return a test of ours; members that are None are left to their default.

    ``addresses`` are where each of ``hosts`` shall measure, None for wherever it does.

    :raises Refusal: 422, the test takes no such values; says which.
    """
    given = without_none(spec)
    try:
        test.spec_model.model_validate(given, context=FROM_OUTSIDE)
    except ValidationError as fault:
        raise impossible(f"{test.name}: {first_fault(fault)}") from None
    others = {
        host: address
        for host, address in zip(hosts, addresses, strict=False)
        if address is not None and address != host
    }
    return ParleyTest(test.name, given, tuple(hosts), others, tools)


def failed_result(reason: str, outcome: Outcome) -> Document:
    """Return the result of a run that failed."""
    return {"schema": 1, "succeeded": False, "error": reason, "diags": diagnostics(outcome)}


def diagnostics(outcome: Outcome) -> str:
    """Return argv and output of each part's program as one text."""
    texts = []
    for part in outcome.parts:
        pieces = [" ".join(part.command or ()), part.output or "", part.reason or ""]
        texts.append("\n\n".join(piece.strip() for piece in pieces if piece.strip()))
    return "\n\n".join(text for text in texts if text)


STREAM_LONGEST = DAY
"""The longest run of a stream of ours, in microseconds."""


def runs_of_stream(asked: int | None, each: int) -> tuple[int, int | None]:
    """Return the length of the runs of a stream, and how many of them it takes.

    A stream takes ``asked`` µs, or has no end, which takes any number of runs (None). Its runs are
    of equal length, a multiple of ``each``; none is longer than a day, or has more intervals than a
    run of ours may have. The length is 0 if the stream is shorter than one interval, or that is 0.
    """
    if not each:
        return 0, 1
    longest = min(STREAM_LONGEST, INTERVALS_MAX * each)
    runs = None if asked is None else max(1, -(-asked // longest))
    length = longest if asked is None or runs is None else asked // runs
    return length - length % each, runs


def with_consecutive_runs(test: ParleyTest, length: int, runs: int | None) -> ParleyTest:
    """Return a test repeated in runs of ``length`` (µs) that follow each other (None: no end)."""
    if runs == 1:
        return test
    return replace(test, repeat=times.format_duration(length), max_runs=runs)


def fitted_to_interval(test: ParleyTest, interval: int | None) -> ParleyTest:
    """Return a test whose runs are no longer than the interval at which they are repeated.

    Only a run that stands for a part of a longer one is cut, to a multiple of its own intervals.
    """
    if test.repeat is None or interval is None:
        return test
    each = times.parse_duration(test.spec["each"])
    length = min(times.parse_duration(test.spec["duration"]), interval)
    length -= length % each
    if not length:
        return test
    spec = {**test.spec, "duration": times.format_duration(length)}
    return replace(test, spec=spec, repeat=None, max_runs=None)
