"""The task document, put together from a file and from options; the options win.

Durations in the spec may be short (``--spec interval=20ms``): the test's own schema, asked of the
node, says which fields are durations, so no test needs a word here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from node.cli.jsontext import json_object, json_value
from node.cli.seats import seat_options, seat_request
from node.cli.times import DURATION, MOMENT, Moment, looks_like_duration, parse_duration
from node.model import times

if TYPE_CHECKING:
    from node.cli.session import Session

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])

Document = dict[str, Any]

CLEARABLE = (
    "start", "repeat", "cron", "timezone", "slip", "slip-random", "until", "max-runs", "tools",
    "priority", "campaign", "reference", "archives",
)  # fmt: skip
"""What ``--clear`` gives back to its default."""


def _apply(command: AnyCommand, *options: Callable[[AnyCommand], AnyCommand]) -> AnyCommand:
    for option in reversed(options):
        command = option(command)
    return command


def schedule_options(command: AnyCommand) -> AnyCommand:
    """When: the options that fill the schedule."""
    return _apply(
        command,
        click.option("--start", type=MOMENT, help="First nominal start: now, +10m, @1h, RFC 3339."),
        click.option("--repeat", type=DURATION, help="Interval: 30s, 5m, 1h, PT1H."),
        click.option("--cron", metavar="FIELDS", help="Five cron fields, instead of --repeat."),
        click.option("--timezone", metavar="ZONE", help="Zone of --cron; UTC unless said."),
        click.option("--slip", type=DURATION, help="How much later a run may start."),
        click.option("--slip-random", is_flag=True, help="Start at random within the slip."),
        click.option("--until", type=MOMENT, help="No run starts then or later."),
        click.option("--max-runs", type=click.IntRange(1), help="Stop after so many runs."),
    )


def label_options(command: AnyCommand) -> AnyCommand:
    """How, for whom and how urgently: the options beside test and schedule."""
    return _apply(
        command,
        click.option("--priority", type=int, help="Higher displaces lower; 0 unless said."),
        click.option(
            "--tool", "tools", multiple=True, help="Tool to use; repeat in order of choice."
        ),
        click.option("--campaign", help="Whom it is for: parley campaign list."),
        click.option("--reference", metavar="JSON", help="Anything of yours, kept with the task."),
        click.option(
            "--archive", "archives", multiple=True, metavar="JSON",
            help='Where results go: {"archiver": "http", "spec": {"url": …}}; repeat for others.',
        ),
    )  # fmt: skip


def context_option(command: AnyCommand) -> AnyCommand:
    """From where: what can be said of a new task only."""
    return _apply(
        command,
        click.option(
            "--context", "contexts", multiple=True, metavar="NODE=CONTEXT",
            help="Where NODE measures from: namespace:NAME, interface:NAME or address:IP, if its "
            "owner allows it (parley node show NODE); repeat for others.",
        ),
    )  # fmt: skip


def patch_options(command: AnyCommand) -> AnyCommand:
    """All that can be edited of a task."""
    command = seat_options(label_options(command))
    command = schedule_options(command)
    return _apply(
        command,
        click.option("--spec", multiple=True, metavar="KEY=VALUE", help="A field of the spec."),
        click.option("--spec-json", metavar="JSON", help="Fields of the spec; null for default."),
        click.option("--file", metavar="FILE|-", help="A JSON merge patch; options win over it."),
        click.option(
            "--clear", multiple=True, type=click.Choice(CLEARABLE),
            help="Give a field back to its default; repeat for others.",
        ),
    )  # fmt: skip


def document_options(command: AnyCommand) -> AnyCommand:
    """All that a whole task document takes."""
    command = context_option(seat_options(label_options(command)))
    command = schedule_options(command)
    return _apply(
        command,
        click.argument("test", required=False),
        click.option("--spec", multiple=True, metavar="KEY=VALUE", help="A field of the spec."),
        click.option("--spec-json", metavar="JSON", help="The spec as a JSON object."),
        click.option("--file", metavar="FILE|-", help="A task document; options win over it."),
        click.option(
            "--participant", "participants", multiple=True, metavar="NAME",
            help="A node that takes part; repeat in the test's order (source, dest).",
        ),
    )  # fmt: skip


async def task_document(session: Session, given: Mapping[str, Any]) -> Document:
    """The document of ``task create``'s options."""
    document = from_file(given["file"]) if given["file"] else {}
    choice = _part(document, "test")
    if given["test"]:
        choice["type"] = given["test"]
    if "type" not in choice:
        msg = "say what to measure: parley task create TEST, or --file; see: parley test list"
        raise click.UsageError(msg)
    spec = _part(choice, "spec")
    spec.update(json_object(given["spec_json"], "--spec-json"))
    spec.update(await _typed(session, choice["type"], dict(map(field_of, given["spec"]))))
    if given["participants"]:
        document["participants"] = list(given["participants"])
    return counted(with_plan(session, document, given))


def with_plan(session: Session, document: Document, given: Mapping[str, Any]) -> Document:
    """The document with the schedule options and the labels that were given."""
    schedule = scheduled(given, session.clock.now())
    if schedule:
        _part(document, "schedule").update(schedule)
    if given["tools"]:
        document["tools"] = list(given["tools"])
    document.update(_labels(given))
    _with_whom(document, given)
    return document


def _with_whom(document: Document, given: Mapping[str, Any]) -> None:
    """Where participants measure from, and whose seats are asked for."""
    if given.get("contexts"):
        _part(document, "contexts").update(map(_context, given["contexts"]))
    if request := seat_request(given):
        if given.get("participants"):
            msg = "--participant names nodes, and --pool has them chosen; leave one of them out"
            raise click.UsageError(msg)
        there = document.get("participants")
        document["participants"] = {**there, **request} if isinstance(there, dict) else request


def counted(document: Document) -> Document:
    """A new task's document, which says how many nodes it wants of a pool, if of one."""
    wanted = document.get("participants")
    if isinstance(wanted, dict) and "pool" in wanted and "k" not in wanted:
        msg = "say how many nodes of the pool: -k 3"
        raise click.UsageError(msg)
    return document


def _labels(given: Mapping[str, Any]) -> Document:
    """For whom it is and where results go, as far as it was given."""
    labels = {name: given[name] for name in ("priority", "campaign") if given[name] is not None}
    if given["reference"] is not None:
        labels["reference"] = json_value(given["reference"], "--reference")
    if given["archives"]:
        labels["archives"] = [json_object(text, "--archive") for text in given["archives"]]
    return labels


_EXCLUSIVE = {"cron": ("repeat",), "repeat": ("cron", "timezone")}
_IN_SCHEDULE = frozenset(CLEARABLE[:8])


async def task_patch(session: Session, test: str, given: Mapping[str, Any]) -> Document:
    """The merge patch of ``task edit``'s options; null is what goes back to its default.

    An interval takes the place of cron fields and the other way round.
    """
    patch = from_file(given["file"]) if given["file"] else {}
    spec = json_object(given["spec_json"], "--spec-json")
    spec.update(await _typed(session, test, dict(map(field_of, given["spec"]))))
    if spec:
        _part(_part(patch, "test"), "spec").update(spec)
    with_plan(session, patch, given)
    for name in given["clear"]:
        place = _part(patch, "schedule") if name in _IN_SCHEDULE else patch
        place[name.replace("-", "_")] = None
    for name, others in _EXCLUSIVE.items():
        if given[name] is not None:
            patch["schedule"].update({other: None for other in others if given[other] is None})
    return patch


def scheduled(given: Mapping[str, Any], now: int) -> Document:
    """The schedule as the options have it; what was not given is not in it."""
    schedule: Document = {}
    for name in ("repeat", "slip"):
        if given[name] is not None:
            schedule[name] = times.format_duration(given[name])
    for name in ("start", "until"):
        moment: Moment | None = given[name]
        if moment is not None:
            schedule[name] = times.format_instant(moment.at(now))
    for name in ("cron", "timezone", "max_runs"):
        if given[name] is not None:
            schedule[name] = given[name]
    if given["slip_random"]:
        schedule["slip_random"] = True
    return schedule


def from_file(name: str) -> Document:
    """The JSON object in a file, or (``-``) on standard input."""
    try:
        text = sys.stdin.read() if name == "-" else _read(name)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{name} cannot be read: {error}"
        raise click.BadParameter(msg, param_hint="--file") from error
    return json_object(text, "--file")


def _read(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def _part(document: Document, name: str) -> Document:
    """The object inside a document under this name, made if it is not there."""
    part = document.setdefault(name, {})
    if not isinstance(part, dict):
        msg = f"{name!r} is not a JSON object"
        raise click.BadParameter(msg, param_hint="--file")
    return part


def field_of(written: str) -> tuple[str, Any]:
    """``count=10`` as a name and a value: JSON where it is JSON, else text."""
    name, equals, text = written.partition("=")
    if not equals or not name:
        msg = f"{written!r} is not KEY=VALUE"
        raise click.BadParameter(msg, param_hint="--spec")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def _context(written: str) -> tuple[str, str]:
    """``b=interface:eth1`` as a name and a context."""
    name, equals, context = written.partition("=")
    if not equals or not name or not context:
        msg = f"{written!r} is not NODE=CONTEXT, such as b=interface:eth1"
        raise click.BadParameter(msg, param_hint="--context")
    return name, context


async def _typed(session: Session, test: str, spec: Document) -> Document:
    """The fields with short durations written as ISO 8601 where the test has durations."""
    brief = {
        name: value
        for name, value in spec.items()
        if isinstance(value, str) and looks_like_duration(value)
    }
    if not brief:
        return spec
    schema = (await session.client.test(test)).spec
    durations = {
        name: times.format_duration(parse_duration(value))
        for name, value in brief.items()
        if _is_duration(schema.get("properties", {}).get(name, {}))
    }
    return {**spec, **durations}


def _is_duration(schema: Mapping[str, Any]) -> bool:
    choices = (schema, *schema.get("anyOf", ()))
    return any(choice.get("format") == "duration" for choice in choices)
