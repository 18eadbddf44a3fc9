"""A task of ours in the words of a host that runs pScheduler. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from node.model import times
from node.model.errors import NotAllowed
from node.model.wire.participants import Introduction
from node.pscheduler.dialects.contract import Dialect
from node.pscheduler.dialects.registry import DIALECTS, dialects_of
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES

_THROUGHPUT = "throughput"
_PAIRS = frozenset({_THROUGHPUT, "simplestream"})
_LEAST_MEASURED = 3 * times.SECOND
_PRIORITY_SCHEMA = 3
"""The first schema of a task that has a priority."""


@dataclass(frozen=True)
class TranslatedTask:
    """A test in the words of pScheduler, and the tools by which it is spoken, best first."""

    test: str
    spec: Document
    dialects: tuple[Dialect, ...]

    @property
    def document(self) -> Document:
        """The test as hosts are asked about it."""
        return {"type": self.test, "spec": self.spec}


def translated_task(introduction: Introduction, place_there: str) -> TranslatedTask:
    """Return the test of a task for a participant at ``place_there``, its HOST[:PORT].

    :raises NotAllowed: pScheduler has no such test, or cannot take this part in it; says why.
    """
    if introduction.participant == 0:
        msg = (
            "a host that runs pScheduler takes part only behind a node of Parley, because the "
            "first participant is the one that leads there; exchange the two, and set reverse if "
            "the data shall flow the other way"
        )
        raise NotAllowed(msg)
    if introduction.participants[introduction.place].context is not None:
        raise NotAllowed("a host that runs pScheduler measures in no context of Parley's")
    for name, language in LANGUAGES.items():
        spec = language.from_parley(introduction.test, introduction.spec)
        if spec is not None:
            return _task_in_dialect(
                introduction, name, _with_addresses(introduction, spec), place_there
            )
    raise NotAllowed(
        f"pScheduler has no test like {introduction.test} with this spec in which two hosts take "
        "part"
    )


def _task_in_dialect(
    introduction: Introduction, test: str, spec: Document, place_there: str
) -> TranslatedTask:
    wanted = introduction.tools
    spoken = [each for each in dialects_of(test) if not wanted or each.own in wanted]
    able = tuple(each for each in spoken if each.obstacle(spec) is None)
    if not able:
        reasons = "; ".join(filter(None, (each.obstacle(spec) for each in spoken)))
        choice = f" among {', '.join(wanted)}" if wanted else ""
        raise NotAllowed(
            reasons or f"no tool{choice} for {introduction.test} works together with pScheduler's"
        )
    if test == _THROUGHPUT and times.parse_duration(str(spec["duration"])) < _LEAST_MEASURED:
        raise NotAllowed(
            "pScheduler's server of iperf3 waits for its client no longer than it measures; "
            f"measure for {times.duration_text(_LEAST_MEASURED)} or longer"
        )
    address = introduction.participants[introduction.place].address
    if test in _PAIRS and place_there != address:
        spec = {**spec, "dest-node": place_there}
    return TranslatedTask(test, spec, able)


def _with_addresses(introduction: Introduction, spec: Document) -> Document:
    """Return a spec with addresses in place of our names, which mean nothing there."""
    located = dict(spec)
    if "dest" in spec:
        located["source"] = introduction.participants[0].address
        located["dest"] = introduction.participants[-1].address
    if "host" in spec:
        located["host"] = [each.address for each in introduction.participants]
    return located


def posted_document(
    introduction: Introduction, test: Document, tool: str, key: str, place_there: str
) -> Document:
    """Return the task as it is posted to a host: one participant of it at ``place_there``."""
    participants = [each.address for each in introduction.participants]
    participants[introduction.place] = place_there
    document: Document = {
        "test": test,
        "schedule": {},
        "tool": tool,
        "participants": participants,
        "reference": {"parley": {"task": str(introduction.task)}},
        "_key": key,
    }
    if introduction.priority:
        document |= {"schema": _PRIORITY_SCHEMA, "priority": introduction.priority}
    return document


def data_of_all(
    tool: str, place: int, own: Document, held: Mapping[str, Mapping[str, int]]
) -> list[Document]:
    """Return what all participants say before a run, by their places.

    ``own`` is the data of the host itself, ``held`` what everybody's hold has assigned.
    """
    dialect = DIALECTS[tool]
    return [
        own if at == place else dialect.data(at, held.get(str(at), {}), None)
        for at in range(max(place, *map(int, held)) + 1)
    ]
