"""The half of a language that follows from its tables. Pure."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, ClassVar

from pydantic import ValidationError

from node.model.wire.fields import FROM_OUTSIDE
from node.plugins.contracts import Test
from node.plugins.participation import first_fault
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
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import Option

_IN_ANOTHER_FORM = (AttributeError, IndexError, KeyError, TypeError, ValueError)

RUN_FAILED = "Run failed."
RUN_FAILED_HTML = "<p>Run failed.</p>"


class TableLanguage(ABC):
    """A language whose options and members are tables.

    ``without_counterpart`` are members that no tool of ours does, with a sentence each; a value in
    ``harmless`` asks for what happens anyway. ``without_difference`` are members that no tool of
    ours does either, with the reason why it is measured all the same. An ``is_open`` spec may have
    unknown members.
    """

    name: str
    description: ClassVar[str]
    scheduling_class: ClassVar[str] = "background"
    options: ClassVar[Sequence[Option]]
    members: ClassVar[Mapping[str, Member]]
    highest: ClassVar[int] = 1
    is_open: ClassVar[bool] = False
    without_counterpart: ClassVar[Mapping[str, str]] = {}
    without_difference: ClassVar[Mapping[str, str]] = {}
    harmless: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    secrets: frozenset[str] = frozenset()

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
        """Return the spec of the words, with the least schema that knows its members."""
        spec = self.completed_spec(options.parse(self.name, self.options, words))
        return {"schema": types.least_schema(self.members, spec), **spec}

    def completed_spec(self, spec: Document) -> Document:
        """Return the members that words set, with those that follow from them."""
        return spec

    def words(self, spec: Document) -> list[str]:
        """Return the words of a spec."""
        return options.words_of(self.options, spec)

    def check(self, spec: Any) -> None:
        """Refuse what does not fit the table of members."""
        types.check_spec(self.members, self.highest, spec, is_open=self.is_open)

    def participants(self, spec: Document) -> Participants:
        """Return the source alone: its node if that is named, or else its address."""
        return single_participant(spec, "source", "No source specified")

    def to_parley(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test, unless the spec has members that no tool of ours does.

        :raises Refusal: 422, with the sentence of the first such member.
        """
        for member, sentence in self.without_counterpart.items():
            if member in spec and spec[member] not in self.harmless.get(member, ()):
                raise impossible(f"{self.name}: {sentence}")
        return replace(self.translated_test(spec, hosts), notes=self.notes(spec))

    @abstractmethod
    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test for a spec without such members.

        :raises Refusal: 422, its values have no counterpart.
        """

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

    def failure(self, spec: Document, outcome: Outcome) -> str | None:  # noqa: ARG002 - contract
        """Return why the run failed in pScheduler's eyes; None if it did not."""
        return outcome.reason

    @abstractmethod
    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the members of a successful result, without ``schema`` and ``succeeded``."""

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

    @abstractmethod
    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a successful result as plain text."""

    def html(self, spec: Document, result: Document) -> str | None:
        """Return a result as HTML; one in another form is shown as it is."""
        if not result.get("succeeded"):
            return RUN_FAILED_HTML
        try:
            return self.html_text(spec, result)
        except _IN_ANOTHER_FORM:
            return f"<pre>{escape(json.dumps(result, indent=2))}</pre>"

    @abstractmethod
    def html_text(self, spec: Document, result: Document) -> str | None:
        """Return a successful result as HTML; None if the test has no such form."""


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
