"""Build task documents from a file and from options; the options override the file.

Durations in the spec may be short (``--spec interval=20ms``). The schema of the test, which the
node supplies, says which fields are durations, so this module needs to know no test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import file_text, unreadable_message
from node.cli.options import AnyCommand, apply_options, clear_option, given_values, options
from node.cli.output import Record, aligned_text, cell_text, printable_text
from node.cli.references import find_task, short
from node.cli.times import api_instant, local_time_text, parse_duration
from node.cli.values import MATCH_HELP, json_object, json_value, object_in, predicate, value_of
from node.model import times
from node.model.unique_json import parse_json

if TYPE_CHECKING:
    from node.cli.session import Session

_PLAIN = ("pool", "k", "min_k", "choice", "field")
_TERMS_SHOWN = 4


seat_options = options(f"""
    --pool NAME                  Nodes of this pool instead of named ones.
    -k 1..                       How many nodes of the pool.
    --min-k 1..                  How many nodes suffice.
    --match CONDITION...         {MATCH_HELP}
    --prefer NAME=A,B...         Preferred attributes of a node.
    --spread NAME=COUNT...       Maximum number of nodes with the same value: site=1; repeat for
                                 more.
    --together                   All k nodes at the same time, or none.
    --choice [sticky|rotating]   Which nodes measure again: the same, or each in turn.
    --seat-field FIELD as field  The field of the spec for the node.
""")
"""``--pool`` and the options of a request for seats."""


def seat_request(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seats part of a task document, with only the options that were given."""
    request = given_values(given, *_PLAIN)
    if given["match"]:
        request["match"] = predicate(given["match"])
    if given["prefer"]:
        pairs = (_pair(text, "--prefer") for text in given["prefer"])
        request["prefer"] = {n: [value_of(each) for each in v.split(",")] for n, v in pairs}
    if given["spread"]:
        pairs = (_pair(text, "--spread") for text in given["spread"])
        request["spread"] = {name: value_of(value) for name, value in pairs}
    if given["together"]:
        request["together"] = True
    return request


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def request_text(request: Record) -> str:
    """Describe a request: ``20 of europe, together, 1 per site``."""
    words = [f"{request['k']} of {request['pool']}"]
    if request["min_k"]:
        words.append(f"at least {request['min_k']}")
    if request["together"]:
        words.append("together")
    words += [f"{most} per {name}" for name, most in request["spread"].items()]
    return ", ".join(words)


def request_rows(request: Record | None) -> list[tuple[str, str]]:
    """Return names and values of a seat request besides number and pool, for the view of a task."""
    if request is None:
        return []
    from node.model.predicates import parse

    prefer = "; ".join(f"{name} {cell_text(values)}" for name, values in request["prefer"].items())
    spread = ", ".join(f"at most {most} alike in {n}" for n, most in request["spread"].items())
    return [
        ("match", parse(request["match"]).in_words() if request["match"] else ""),
        ("prefers", prefer),
        ("spread", spread),
        ("choice", request["choice"] or "that of the pool"),
        ("filled in as", request["field"] or ""),
    ]


def seats_view(seats: Sequence[Record], wanted: int) -> str:
    """Describe the seats term by term: the node of each, or the reason why it has none."""
    lines: list[str] = []
    terms = dict.fromkeys((seat["term"], seat["until"]) for seat in seats)
    for term, until in list(terms)[:_TERMS_SHOWN]:
        in_term = [seat for seat in seats if seat["term"] == term]
        taken = sum(seat["state"] in {"taken", "over"} for seat in in_term)
        lines.append(f"  {taken} of {wanted} seats {_term_text(term, until)}:")
        rows = [
            (str(seat["number"]), _holder_text(seat), printable_text(_seat_news(seat)))
            for seat in in_term
        ]
        lines.append(aligned_text(rows, "    "))
    if len(terms) > _TERMS_SHOWN:
        lines.append(f"  and {len(terms) - _TERMS_SHOWN} more terms")
    return "\n".join(lines)


def _holder_text(seat: Record) -> str:
    if seat["node"] is None:
        return "nobody"
    return f"{seat['node']} (lost)" if seat["state"] == "lost" else str(seat["node"])


def _seat_news(seat: Record) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in seat["runs"].items() if count)
    task = f"task {short(seat['task'])}" if seat["task"] else ""
    return "; ".join(filter(None, (task, counts, seat["reason"])))


def _term_text(term: str, until: str) -> str:
    """Describe a term: ``from … to …``, or ``at …`` if it has a single slot."""
    begin, end = times.parse_instant(term), times.parse_instant(until)
    return (
        f"at {local_time_text(begin)}"
        if end - begin < times.SECOND
        else f"from {local_time_text(begin)} to {local_time_text(end)}"
    )


Document = dict[str, Any]

CLEARABLE = (
    "start", "repeat", "cron", "timezone", "slip", "slip-random", "until", "max-runs",
    "displacement-budget", "tools",
    "priority", "campaign", "reference", "archives", "after",
)  # fmt: skip
"""The fields that ``--clear`` resets to their defaults."""


schedule_options = options("""
    --start COMING     First nominal start: now, 10m, 10:05, @1h, 2026-12-01.
    --repeat DURATION  Interval: 30s, 5m, 1h, or PT1H.
    --cron FIELDS      Five cron fields, instead of --repeat.
    --timezone ZONE    Time zone of --cron [UTC].
    --slip DURATION    How much later a run may start.
    --slip-random      Start at random within the slip.
    --until COMING     No run starts at or after this time.
    --max-runs 1..     Stop after this many runs.
    --displacement-budget RUNS/OF  How many may give way to others: 1/20 is at most one of any
                       twenty runs in a row.
""")
"""The options of the schedule."""

samples_option = options("""
    --samples 1..      So many runs until --until, spread evenly, whenever there is time.
""")
"""Add ``--samples``, which only a new task has."""


dependency_options = options("""
    --after TASK                Run after each run of TASK, instead of a schedule.
    --after-outcome [succeeded|ended]  Which runs of TASK to follow: ended includes failed ones
                                [succeeded].
    --after-within DURATION     How much later than the end of such a run to start [1h; 10m with
                                --when].
    --when CONDITION            Run only after runs of which this holds: "loss.forward > 1 %",
                                no-answer, failed, "alert loss"; joined by and, or.
    --per-hour 1..60            With --when: at most so many runs in an hour [2].
""")
"""The options of a task that follows another one."""


label_options = options("""
    --priority INTEGER          Higher displaces lower [0].
    --tool TEXT... as tools     Tool to use; repeat, the best one first.
    --campaign TEXT             Its campaign; see parley campaign list.
    --reference JSON            Your own JSON, stored with the task.
    --archive JSON... as archives  Where results go: {"archiver": "http", "spec": {"url": …}};
                                repeat for more.
""")
"""The options for priority, tools, campaign, reference, and archives."""


context_option = options("""
    --context NODE=CONTEXT... as contexts  Where NODE measures from: namespace:NAME, interface:NAME
                                or address:IP, if its owner allows it (parley node show NODE);
                                repeat for more.
    --takes RESOURCE... as takes  A counted resource that each run takes: link-x@NODE, or
                                link-x@NODE:2; repeat for more.
""")
"""Add ``--context`` and ``--takes``, which only a new task has."""


def patch_options(command: AnyCommand) -> AnyCommand:
    """Add the options of all fields of a task that can be edited."""
    command = seat_options(label_options(command))
    command = schedule_options(dependency_options(command))
    return apply_options(
        command,
        options("""
            --spec KEY=VALUE...  A field of the spec.
            --spec-json JSON     Fields of the spec; null resets one to its default.
            --file FILE|-        A JSON merge patch; options override it.
        """),
        clear_option(CLEARABLE),
    )


def document_options(command: AnyCommand) -> AnyCommand:
    """Add the options of a whole task document."""
    command = context_option(seat_options(label_options(command)))
    command = schedule_options(samples_option(dependency_options(command)))
    return apply_options(
        command,
        click.argument("test", required=False),
        options("""
            --spec KEY=VALUE...         A field of the spec.
            --spec-json JSON            The spec as a JSON object.
            --file FILE|-               A task document; options override it.
            --participant NAME... as participants  A node that takes part; repeat in the test's
                                        order (source, dest).
        """),
    )  # fmt: skip


async def task_document(session: Session, given: Mapping[str, Any]) -> Document:
    """Return the task document that the options of ``task create`` describe."""
    document = document_from_file(given["file"]) if given["file"] else {}
    choice = _inner_object(document, "test")
    if given["test"]:
        choice["type"] = given["test"]
    if "type" not in choice:
        msg = "name the test: parley task create TEST, or --file; see: parley test list"
        raise click.UsageError(msg)
    spec = _inner_object(choice, "spec")
    spec.update(json_object(given["spec_json"], "--spec-json"))
    spec.update(
        await _with_iso_durations(session, choice["type"], dict(map(field_of, given["spec"])))
    )
    if given["participants"]:
        document["participants"] = list(given["participants"])
    return require_seat_count(await with_plan(session, document, given))


async def with_plan(session: Session, document: Document, given: Mapping[str, Any]) -> Document:
    """Add schedule, dependency, labels, contexts, and seat request of the options to a document."""
    schedule = schedule_document(given, session.clock.now())
    if schedule:
        _inner_object(document, "schedule").update(schedule)
    if after := await _dependency(session, given):
        _inner_object(document, "after").update(after)
    if given["tools"]:
        document["tools"] = list(given["tools"])
    document.update(_labels(given))
    _add_contexts_and_seats(document, given)
    return document


async def _dependency(session: Session, given: Mapping[str, Any]) -> Document:
    after: Document = {}
    if given["after"] is not None:
        after["task"] = str((await find_task(session, given["after"])).id)
    if given["after_outcome"] is not None:
        after["outcome"] = given["after_outcome"]
    if given["after_within"] is not None:
        after["within"] = times.format_duration(given["after_within"])
    return after | given_values(given, "when", "per_hour")


def _add_contexts_and_seats(document: Document, given: Mapping[str, Any]) -> None:
    if given.get("contexts"):
        _inner_object(document, "contexts").update(map(_context, given["contexts"]))
    if given.get("takes"):
        document["takes"] = list(given["takes"])
    if request := seat_request(given):
        if given.get("participants"):
            msg = "--participant names nodes, and --pool has them chosen; remove one of the two"
            raise click.UsageError(msg)
        before = document.get("participants")
        document["participants"] = {**before, **request} if isinstance(before, dict) else request


def require_seat_count(document: Document) -> Document:
    """Return the document of a new task unchanged.

    :raises click.UsageError: it asks for nodes of a pool, and does not say how many.
    """
    participants = document.get("participants")
    if isinstance(participants, dict) and "pool" in participants and "k" not in participants:
        raise click.UsageError("the number of nodes of the pool is missing: add -k 3")
    return document


def _labels(given: Mapping[str, Any]) -> Document:
    labels = given_values(given, "priority", "campaign")
    if given["reference"] is not None:
        labels["reference"] = json_value(given["reference"], "--reference")
    if given["archives"]:
        labels["archives"] = [json_object(text, "--archive") for text in given["archives"]]
    return labels


_EXCLUSIVE = {"cron": ("repeat",), "repeat": ("cron", "timezone")}
IN_SCHEDULE = frozenset(CLEARABLE[:8])


async def task_patch(session: Session, test: str, given: Mapping[str, Any]) -> Document:
    """Return the merge patch of the options of ``task edit``; null resets a field to its default.

    ``--repeat`` replaces ``--cron`` fields, and the other way round; ``--after`` replaces both.
    """
    patch = document_from_file(given["file"]) if given["file"] else {}
    spec = json_object(given["spec_json"], "--spec-json")
    spec.update(await _with_iso_durations(session, test, dict(map(field_of, given["spec"]))))
    if spec:
        _inner_object(_inner_object(patch, "test"), "spec").update(spec)
    await with_plan(session, patch, given)
    for name in given["clear"]:
        place = _inner_object(patch, "schedule") if name in IN_SCHEDULE else patch
        place[name.replace("-", "_")] = None
    clear_other_rhythm(patch, given)
    if given["after"] is not None:
        # The task has no times of its own any more.
        fields = (name.replace("-", "_") for name in CLEARABLE if name in IN_SCHEDULE)
        patch["schedule"] = {**dict.fromkeys(fields), **patch.get("schedule", {})}
    return patch


def clear_other_rhythm(patch: Document, given: Mapping[str, Any]) -> None:
    """Clear the cron fields where an interval is given, and the other way round."""
    for name, others in _EXCLUSIVE.items():
        if given[name] is not None:
            patch["schedule"].update({other: None for other in others if given[other] is None})


def schedule_document(options: Mapping[str, Any], now: int) -> Document:
    """Return the schedule that the options describe; it has only the fields that were given."""
    given = given_values(options)
    words: dict[str, Callable[[Any], Any]] = {
        "repeat": times.format_duration,
        "slip": times.format_duration,
        "start": partial(api_instant, now=now),
        "until": partial(api_instant, now=now),
    }
    schedule = {name: write(given[name]) for name, write in words.items() if name in given}
    plain = ("cron", "timezone", "max_runs", "samples", "displacement_budget")
    schedule |= {name: given[name] for name in plain if name in given}
    return schedule | ({"slip_random": True} if given.get("slip_random") else {})


def document_from_file(name: str) -> Document:
    """Return the object in a file of JSON or YAML, or on standard input for ``-``.

    :raises click.BadParameter: it cannot be read, or has no object.
    """
    try:
        text = sys.stdin.read() if name == "-" else file_text(name, "--file")
    except UnicodeDecodeError as error:
        raise click.BadParameter(unreadable_message(name, error), param_hint="--file") from error
    return object_in(text, "--file")


def _inner_object(document: Document, name: str) -> Document:
    """Return the object under this name inside a document; add an empty one if there is none."""
    part = document.setdefault(name, {})
    if not isinstance(part, dict):
        raise click.BadParameter(f"{name!r} is not a JSON object", param_hint="--file")
    return part


def field_of(written: str) -> tuple[str, Any]:
    """Split ``count=10`` into a name and a value: JSON if it can be parsed, otherwise text."""
    name, equals, text = written.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{written!r} is not KEY=VALUE", param_hint="--spec")
    try:
        return name, parse_json(text)
    except ValueError:
        return name, text


def _context(written: str) -> tuple[str, str]:
    """Split ``b=interface:eth1`` into a node and a context."""
    name, equals, context = written.partition("=")
    if not equals or not name or not context:
        msg = f"{written!r} is not NODE=CONTEXT, such as b=interface:eth1"
        raise click.BadParameter(msg, param_hint="--context")
    return name, context


async def _with_iso_durations(session: Session, test: str, spec: Document) -> Document:
    """Return a spec with ISO 8601 durations; the test's schema says which fields are durations."""
    short = {
        name: value
        for name, value in spec.items()
        if isinstance(value, str) and times.is_short_duration(value.strip())
    }
    if not short:
        return spec
    schema = (await session.client.test(test)).spec
    durations = {
        name: times.format_duration(parse_duration(value))
        for name, value in short.items()
        if times.describes_duration(schema.get("properties", {}).get(name, {}))
    }
    return {**spec, **durations}
