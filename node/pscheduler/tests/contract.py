"""The values that pass between a test's language and its callers. Pure.

A test passes through these steps, here with the words ``--dest b --count 3``::

    words ─ parse ─▶ spec ─ check ─▶ participants, duration
    spec ─ to_parley ─▶ our test, its spec and participants ─▶ a task of this node
    what its run left behind ─ result ─▶ result ─ text, html ─▶ what a person reads

Words and specs come from other programs. Whatever they are, the functions here return or raise
:class:`~node.pscheduler.refusals.Refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
"""A JSON object as pScheduler writes it."""

MAINTAINER: Mapping[str, str] = {
    "name": "Parley",
    "email": "root@localhost",
    "href": "https://www.apache.org/licenses/LICENSE-2.0",
}
"""The maintainer in all enumerations: the operator of this host answers for its plugins."""


@dataclass(frozen=True)
class Participants:
    """The hosts that take part, lead first; None is whoever is asked.

    ``null_reason`` says why the first one is None, and ``reason_member`` is the member that tells
    it, which some tests call differently.
    """

    names: tuple[str | None, ...]
    null_reason: str | None = None
    reason_member: str = "null-reason"

    def document(self) -> Document:
        """Return the answer of ``/tests/T/participants``."""
        document: Document = {"participants": list(self.names)}
        if self.null_reason is not None:
            document[self.reason_member] = self.null_reason
        return document


@dataclass(frozen=True)
class ParleyTest:
    """A test of ours: its type, its spec as on the wire, and its participants by name.

    ``addresses`` are the hosts that participants shall measure from or at, by participant, where
    the spec names another host for that than the node itself; whoever knows the node's addresses
    compares them, and refuses those it has not. ``tools`` are tools of ours to which the test is
    restricted, in order; empty is any.

    ``repeat`` (ISO 8601) is set where a run of ours is shorter than the one that the spec asks for:
    runs that follow each other at this interval, ``max_runs`` of them or without end, are one run
    there. ``notes`` are those of a language.
    """

    type: str
    spec: Document
    participants: tuple[str, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    repeat: str | None = None
    max_runs: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartOutcome:
    """One participant's part: what its program was called with, and what it printed.

    ``output`` is the stored text, standard error after standard output; of long output the
    beginning and the end are kept, with a line about the gap.
    """

    name: str
    command: tuple[str, ...] | None = None
    output: str | None = None
    result: Mapping[str, Any] | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """A run of ours that is over, or one interval of a long run.

    ``result`` is the merged result of our test, None if there is none; ``reason`` says why the run
    failed, None if it did not. A run can fail and still have a result. ``tool`` is our tool, and
    ``at`` the instant of the agreed start (µs), for tests that tell the time.
    """

    tool: str | None
    result: Mapping[str, Any] | None
    reason: str | None = None
    parts: Sequence[PartOutcome] = ()
    at: int | None = None
