"""``parley alert``: what was raised by what was measured, and what would have been."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from node.cli.groups import command_group
from node.cli.listing import collect, expected_members, limit_option, print_documents
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout
from node.cli.references import find_task_id, short
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import api_instant, local_time_text
from node.model import times
from node.model.alerts import (
    AlertMemory,
    AlertRule,
    RunEvidence,
    UsualValues,
    evaluated,
    hour_of_day,
    path_of,
    rules_of,
    watched_figures,
    with_value,
)
from node.model.errors import NotFound
from node.model.moments import Moment
from node.model.outcome import Judgement

if TYPE_CHECKING:
    from node.client.answers import Members, Page

_READ_MAX = 20_000
_KNOWN_MAX = 500
_LEARNING = 7 * times.DAY
"""Time before the span from which a rule about what is usual learns."""
_DAY_AGO = Moment(offset=-times.DAY)
_FIELDS = "id,task,headline,starts_at,ends_at,outcome,metrics,result"


def _state_text(alert: Record) -> str:
    if alert["over_at"] is not None:
        return f"over {local_time_text(alert['over_at'])}"
    words = ["raised"]
    if alert["acknowledged_at"] is not None:
        words = [f"seen by {alert['acknowledged_by'] or 'somebody'}"]
    if alert["silent_until"] is not None:
        words.append(f"silent until {local_time_text(alert['silent_until'])}")
    return ", ".join(words)


ALERT = RecordLayout(
    "id,rule,headline,mesh,task,state,raised_at,over_at,sentence,value,run,acknowledged_at,"
    "acknowledged_by,silent_until",
    Column("alert", lambda alert: short(alert["id"]), whole=True),
    Column("since", lambda alert: local_time_text(alert["raised_at"]), whole=True),
    Column("what", lambda alert: alert["headline"]),
    Column("why", lambda alert: alert["sentence"]),
    Column("state", _state_text),
    empty="No alerts. What yesterday would have raised: parley alert test",
    key="id",
)

CHANGE = RecordLayout(
    "at,headline,task,rule,state,sentence,value,run",
    Column("at", lambda each: local_time_text(each["at"]), whole=True),
    Column("", lambda each: each["state"], whole=True),
    Column("what", lambda each: each["headline"]),
    Column("why", lambda each: each["sentence"]),
    Column("run", lambda each: short(each["run"]), whole=True),
    empty="Nothing would have been raised.",
    key="run",
)

alert_group = command_group("alert")


@alert_group.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are over.")
@options("--mesh TEXT  Only alerts of this mesh.")
@options("--task TASK as written  Only alerts of this task.")
@limit_option
@reads_node
async def list_(
    session: ReadingSession,
    /,
    *,
    every: bool,
    mesh: str | None,
    written: str | None,
    limit: int,
) -> None:
    """List the alerts that are raised, the latest first."""
    task = None if written is None else await find_task_id(session.reader, written)
    query = {"state": "raised,over" if every else "raised", "mesh": mesh, "task": task}
    await print_documents(session, ALERT, "/alerts", query, limit)


@alert_group.command("acknowledge")
@click.argument("written", nargs=-1, required=True, metavar="ALERT...")
@click.option("--undo", is_flag=True, help="Take it back.")
@asks_node
async def acknowledge(session: Session, /, *, written: tuple[str, ...], undo: bool) -> None:
    """Note that you look after alerts, so that others need not."""
    for each in await _find_alerts(session, written):
        alert = await session.client.change_alert(each, {"acknowledged": not undo})
        done = "nobody looks after it" if undo else "acknowledged"
        session.progress.note(f"{alert.rule}: {alert.headline}: {done}")


@alert_group.command("silence")
@click.argument("written", nargs=-1, required=True, metavar="ALERT...")
@options("""
    --for DURATION as length  How long webhooks are told nothing of it, nor of it again [1h].
    --until TIME as until     Until when, instead.
""")
@click.option("--undo", is_flag=True, help="End the silence.")
@asks_node
async def silence(
    session: Session,
    /,
    *,
    written: tuple[str, ...],
    length: int | None,
    until: Moment | None,
    undo: bool,
) -> None:
    """Have no webhook told of alerts for some time, nor of the same rules again."""
    if (length is not None) + (until is not None) + undo > 1:
        raise click.UsageError("choose one of --for, --until, and --undo")
    now = session.clock.now()
    end = now if undo else now + (times.HOUR if length is None else length)
    instant = times.format_instant(end) if until is None else api_instant(until, now)
    for each in await _find_alerts(session, written):
        alert = await session.client.change_alert(each, {"silent_until": instant})
        done = "webhooks are told again" if undo else f"silent until {local_time_text(instant)}"
        session.progress.note(f"{alert.rule}: {alert.headline}: {done}")


async def _find_alerts(session: Session, written: Sequence[str]) -> list[Any]:
    """Return the ids that these words are, or begin.

    :raises NotFound: there is no such alert, or several.
    """
    known = (await session.client.alerts(state="raised,over", limit=_KNOWN_MAX)).items
    found = []
    for word in written:
        fitting = [alert.id for alert in known if str(alert.id).startswith(word.lower())]
        if len(fitting) != 1:
            msg = f"{'no alert' if not fitting else 'more than one alert'} begins with {word}"
            raise NotFound(f"{msg}; see: parley alert list --all")
        found += fitting
    return found


@alert_group.command("test")
@options("--mesh TEXT  Only tasks of this mesh.")
@options("--task TASK as written  Only this task.")
@options("--from TIME as starts  Only what was measured from this time on [-1d].", default=_DAY_AGO)
@reads_node
async def test(
    session: ReadingSession, /, *, mesh: str | None, written: str | None, starts: Moment
) -> None:
    """Show what the rules as they are now would have raised since yesterday.

    \b
      parley alert test
      parley alert test --mesh backbone --from -7d
    """  # noqa: D301 - click's mark for lines to keep
    task = None if written is None else await find_task_id(session.reader, written)
    now = session.clock.now()
    since = times.parse_instant(str(api_instant(starts, now)))

    def tasks(*, limit: int, cursor: str | None) -> Awaitable[Page[Members]]:
        asked = {"mesh": mesh, "fields": "id,reference", "limit": limit, "cursor": cursor}
        return session.reader.listed("/tasks", asked)

    with expected_members():
        if task is None:
            listed, _ = await collect(tasks, _READ_MAX)
        else:
            listed = [await session.reader.document(f"/tasks/{task}")]
        rules = {each["id"]: found for each in listed if (found := rules_of(each["reference"]))}
        learning = any(rule.terms.change is not None for of in rules.values() for rule in of)
        begin = since - (_LEARNING if learning else 0)
        query = {
            "mesh": mesh,
            "task": task,
            "from": times.format_instant(begin),
            "to": times.format_instant(now),
            "fields": _FIELDS,
        }

        def fetch(*, limit: int, cursor: str | None) -> Awaitable[Page[Members]]:
            return session.reader.listed("/runs", {**query, "limit": limit, "cursor": cursor})

        runs, more = await collect(fetch, _READ_MAX) if rules else ([], False)
        every = replayed(rules, reversed(runs))
        changes = [each for each in every if times.parse_instant(each["at"]) >= since]
    if more:
        session.progress.note(f"Only the newest {_READ_MAX} runs were read.")
    session.output.print_list(changes, CHANGE)


@dataclass(frozen=True)
class _Figure:
    name: str
    value: float
    labels: Mapping[str, str]


def replayed(
    rules: Mapping[str, Sequence[AlertRule]], runs: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what would have been raised, and over, by these runs (the earliest first)."""
    memories: dict[str, AlertMemory] = {}
    usual: dict[tuple[str, str, int], UsualValues] = {}
    told: list[dict[str, Any]] = []
    for run in runs:
        task, outcome = run["task"], run["outcome"]
        if outcome is None or task not in rules:
            continue
        at = times.parse_instant(run["ends_at"])
        figures = [_Figure(it["name"], it["value"], it["labels"]) for it in run["metrics"]]
        judgement = Judgement(outcome["judgement"])
        path = path_of(run["result"])
        evidence = RunEvidence(judgement, outcome["reason"], figures, path)
        watched = watched_figures(rules[task], figures)
        keys = {name: (task, name, hour_of_day(at)) for name in watched}
        values = {name: usual.get(key, UsualValues()).values for name, key in keys.items()}
        memory = memories.get(task, AlertMemory())
        memories[task], changes = evaluated(rules[task], memory, evidence, values)
        for name, value in watched.items():
            usual[keys[name]] = (
                with_value(known := usual.get(keys[name], UsualValues()), value, at) or known
            )
        told += [
            {
                "at": run["ends_at"],
                "headline": run["headline"],
                "task": task,
                "rule": each.name,
                "state": each.became,
                "sentence": each.sentence,
                "value": each.value,
                "run": run["id"],
            }
            for each in changes
        ]
    return told
