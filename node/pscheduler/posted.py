"""A task as a client of pScheduler posts it: members, schedule, private values. Pure.

Clients get back what they have posted, member by member, so the document is kept beside what was
understood of it, without comments (names that begin with ``#``). Private members (``_``) are null
in what others read. The schedule becomes one of ours with every default of pScheduler written out,
as ours differ: no start is now, no repetition is one run. Faults are told in pScheduler's manner,
as a sentence with the status 400, since its command line prints them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.model.errors import InvalidDocument
from node.model.times import SECOND
from node.model.wire.tasks import PRIORITY_MAX, ScheduleTerms
from node.pscheduler import times
from node.pscheduler.refusals import Refusal, impossible, invalid
from node.pscheduler.tests.contract import Document, ParleyTest

SCHEMA_MAX = 5
SCHEDULE_SCHEMA_MAX = 2
SOONEST, SOONEST_EXACTLY = 2 * SECOND, 5 * SECOND
"""The time until the first run of a task that is to start at once; the latter if it may not slip,
so that there is time to agree with all participants."""
AT_ONCE = 30 * SECOND
"""The slip of a single run that is to start at once, if its task says nothing of slip: on a busy
host it takes a while to arrange. Whoever asks for the first run waits for longer."""

_WHOLE_MAX = 2**63 - 1

_MEMBERS: Mapping[str, type | tuple[type, ...]] = {
    "schema": int,
    "test": dict,
    "tool": str,
    "tools": list,
    "schedule": dict,
    "archives": list,
    "contexts": (dict, list),
    "reference": object,
    "participants": list,
    "lead-bind": str,
    "priority": int,
    "debug": bool,
    "keep-after-archive": str,
    "detail": dict,
    "href": str,
    "_key": str,
}
"""The members of a task, each with its type."""

_SCHEDULE: Mapping[str, type | tuple[type, ...]] = {
    "schema": int,
    "start": str,
    "until": str,
    "repeat": str,
    "repeat-cron": str,
    "slip": str,
    "sliprand": bool,
    "max-runs": int,
}
_KINDS = {
    int: "an integer",
    str: "a string",
    dict: "an object",
    list: "an array",
    bool: "a boolean",
}


@dataclass(frozen=True)
class PostedTask:
    """A posted task, checked as far as its test is not concerned.

    ``document`` is what was posted, without comments: what is given back later. ``contexts`` has
    for each participant its contexts in order, and ``until`` is the instant at which it ends, also
    if its schedule does not repeat.
    """

    document: Document
    test: str
    spec: Any
    schedule: ScheduleTerms
    slip: int
    tools: tuple[str, ...] = ()
    priority: int = 0
    reference: Any = None
    key: str | None = None
    archives: tuple[Any, ...] = ()
    contexts: tuple[tuple[str, ...], ...] = field(default=())
    until: int | None = None

    @property
    def start(self) -> str | None:
        """The start that was asked for, as an instant; None if there was none."""
        start = self.schedule.start
        if "start" not in self.document["schedule"] or not isinstance(start, int):
            return None
        return times.format_instant(start)


def read(parsed: Any, now: int) -> PostedTask:
    """Return a posted task.

    :raises Refusal: 400, with a sentence that names the member.
    """
    if not isinstance(parsed, dict):
        raise invalid("A task is a JSON object.")
    document = without_comments(parsed)
    _check_members("Task", document, _MEMBERS)
    require_schema(document, SCHEMA_MAX)
    for name in ("test", "schedule"):
        if name not in document:
            raise invalid(f"Task is missing '{name}'.")
    test = document["test"]
    if not isinstance(test.get("type"), str) or "spec" not in test:
        raise invalid("Task member 'test' needs a type, a string, and a spec.")
    terms = document["schedule"]
    _check_members("Schedule", terms, _SCHEDULE)
    require_schema(terms, SCHEDULE_SCHEMA_MAX)
    slip = _duration(terms, "slip") or 0
    return PostedTask(
        document=document,
        test=test["type"],
        spec=test["spec"],
        schedule=schedule_of(terms, slip, now),
        slip=slip,
        tools=_text_members(document, "tools"),
        priority=_priority(document),
        reference=document.get("reference"),
        key=document.get("_key"),
        archives=tuple(document.get("archives", ())),
        contexts=contexts_of(document.get("contexts")),
        until=_moment(terms, "until", now),
    )


def without_comments(value: Any) -> Any:
    """Return a document without members whose names begin with ``#``, at any depth."""
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if not name.startswith("#")}
    return _within(value, without_comments)


def without_private_members(value: Any) -> Any:
    """Return a document with null for members whose names begin with ``_``, at any depth."""
    if isinstance(value, dict):
        value = {name: None if name[:1] == "_" else each for name, each in value.items()}
    return _within(value, without_private_members)


def storable_document(value: Any) -> Any:
    """Return a document in which whole numbers of more than 64 bits are texts."""
    if isinstance(value, int) and not -_WHOLE_MAX <= value <= _WHOLE_MAX:
        return str(value)
    return _within(value, storable_document)


def _within(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an object or array with its values changed; anything else as it is."""
    if isinstance(value, dict):
        return {name: change(each) for name, each in value.items()}
    return [change(each) for each in value] if isinstance(value, list) else value


def require_schema(document: Document, highest: int) -> None:
    """Check that a document's schema is known here.

    :raises Refusal: 400, it is not.
    """
    schema = document.get("schema", 1)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise invalid("Schema version must be an integer from 1.")
    if schema > highest:
        raise invalid(f"Schema version {schema} is not supported (highest is {highest})")


def schedule_of(terms: Document, slip: int, now: int) -> ScheduleTerms:
    """Return our schedule for one of pScheduler, with nothing left to our defaults.

    A task without a start starts at once. One without repetition has a single run, and starts it
    before ``until``.

    :raises Refusal: 400, a member has no valid value.
    """
    start = _moment(terms, "start", now)
    until = _moment(terms, "until", now)
    repeat, cron = _duration(terms, "repeat"), terms.get("repeat-cron")
    repeats = repeat is not None or cron is not None
    random = slip > 0 and terms.get("sliprand", False)
    if start is None and not repeats and "slip" not in terms:
        slip = AT_ONCE
    ahead = SOONEST if slip >= SOONEST_EXACTLY else SOONEST_EXACTLY
    soonest = times.rounded_up(now + ahead)
    if repeat is not None and cron is not None:
        raise invalid("Schedule has both repeat and repeat-cron; use one of them.")
    if repeat is not None and repeat < SECOND:
        raise invalid("Schedule member 'repeat' must be at least a second.")
    begins = soonest if start is None else start
    if until is not None and until <= max(begins, now):
        raise invalid("Schedule member 'until' is over before the first run could start.")
    runs = terms.get("max-runs")
    if runs is not None and runs < 1:
        raise invalid("Schedule member 'max-runs' must be at least 1.")
    if not repeats and until is not None:
        slip = min(slip, until - begins)
    try:
        return ScheduleTerms(
            start=begins if cron is None else start,
            repeat=repeat,
            cron=cron,
            until=until if repeats else None,
            max_runs=runs if repeats else None,
            slip=slip,
            slip_random=random,
        )
    except (ValueError, InvalidDocument) as error:
        raise invalid(f"Schedule is not valid: {error}") from None


def schedule_of_runs(task: PostedTask, test: ParleyTest) -> ScheduleTerms:
    """Return the schedule of our runs, which follow each other where several are one run there.

    There, ``until`` bounds the instants at which runs start, and the last one may outlast it. An
    agent computes it before it posts the task, so that the last of our runs would often be over a
    few seconds later.
    """
    schedule = task.schedule
    if test.repeat is None or schedule.repeat is not None or schedule.cron is not None:
        return schedule
    repeat, runs = times.parse_duration(test.repeat), test.max_runs
    if task.until is not None and isinstance(schedule.start, int):
        before = -(-(task.until - schedule.start) // repeat)
        runs = before if runs is None else min(runs, before)
    return schedule.model_copy(update={"repeat": repeat, "max_runs": runs})


def _check_members(
    what: str, document: Document, members: Mapping[str, type | tuple[type, ...]]
) -> None:
    for name, value in document.items():
        expected = members.get(name)
        if expected is None and name.startswith("_"):
            continue
        if expected is None:
            raise invalid(f"{what} has an unknown member '{name[:100]}'.")
        wrong = isinstance(value, bool) and expected is int
        if wrong or not isinstance(value, expected):
            kind = _KINDS.get(expected, "of another type") if isinstance(expected, type) else ""
            raise invalid(f"{what} member '{name}' must be {kind or 'an object'}.")


def _text_members(document: Document, name: str) -> tuple[str, ...]:
    words = document.get(name, [])
    if not all(isinstance(word, str) for word in words):
        raise invalid(f"Task member '{name}' must be an array of strings.")
    return tuple(words)


def _priority(document: Document) -> int:
    priority = int(document.get("priority", 0))
    if not -PRIORITY_MAX - 1 <= priority <= PRIORITY_MAX:
        raise invalid(f"Task member 'priority' must be within ±{PRIORITY_MAX}.")
    return priority


def _duration(terms: Document, name: str) -> int | None:
    if name not in terms:
        return None
    try:
        return times.parse_duration(terms[name])
    except ValueError as error:
        raise invalid(f"Schedule member '{name}': {error}") from None


def _moment(terms: Document, name: str, now: int) -> int | None:
    """Return an instant: as written, so much later than now, or the next multiple of ``@`` it."""
    text = terms.get(name)
    if text is None:
        return None
    try:
        if text.startswith("@"):
            step = times.parse_duration(text[1:])
            if step < SECOND:
                msg = f"'{text}' repeats more than once a second."
                raise ValueError(msg)  # noqa: TRY301 - told like the faults of a parser
            return (now // step + 1) * step
        if text.startswith("P"):
            return times.rounded_up(now + times.parse_duration(text))
        return times.parse_instant(text)
    except ValueError as error:
        raise invalid(f"Schedule member '{name}': {error}") from None


def contexts_of(given: Any) -> tuple[tuple[str, ...], ...]:
    """Return for each participant its contexts in our words.

    :raises Refusal: 400 for what is no list of contexts, 422 for one that does not exist here.
    """
    if given is None:
        return ()
    lists = given.get("contexts", []) if isinstance(given, dict) else given
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        raise invalid("Task member 'contexts' must have an array of contexts for each participant.")
    return tuple(tuple(_context(each) for each in several) for several in lists)


def _context(given: Any) -> str:
    data = given.get("data") if isinstance(given, dict) else None
    if not isinstance(data, dict) or not isinstance(given.get("context"), str):
        raise invalid("A context is an object with the members context, a string, and data.")
    if given["context"] != "linuxnns":
        raise impossible(f"There is no context '{given['context'][:60]}' here; there is: linuxnns")
    if not isinstance(data.get("namespace"), str):
        raise invalid("The context linuxnns needs the name of a namespace.")
    return f"namespace:{data['namespace']}"


def contexts_by_participant(posted: PostedTask, names: Sequence[str]) -> dict[str, str]:
    """Return the context of each participant that has one.

    :raises Refusal: a participant has several, or there are more lists than participants.
    """
    if len(posted.contexts) > len(names):
        raise invalid("Task member 'contexts' has more arrays than there are participants.")
    if any(len(several) > 1 for several in posted.contexts):
        raise Refusal(422, "A participant can measure from one context only here.")
    pairs = zip(names, posted.contexts, strict=False)
    return {name: several[0] for name, several in pairs if several}


def as_text(document: Document) -> str:
    """Return a document as JSON text that says exactly the same."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def texts_of(document: Document) -> tuple[str, str | None]:
    """Return a document as anybody may read it, and with its private members if it has any."""
    shown = without_private_members(document)
    return as_text(shown), None if shown == document else as_text(document)
