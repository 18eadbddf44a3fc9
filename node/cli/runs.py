"""``parley run``: list, show, follow and cancel runs, and print their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import click

from node.cli import intervals
from node.cli.bundles import export, replay, verify
from node.cli.causes import follow_up_lines
from node.cli.failures import print_error_lines
from node.cli.follow import OPEN, PENDING, follow_run, follow_task
from node.cli.groups import command_group
from node.cli.listing import (
    DEFAULT_LIMIT,
    change_all,
    expected_members,
    measured_options,
    print_documents,
    print_record,
)
from node.cli.options import options
from node.cli.outcomes import NO_RESULT, exit_code, mark_of, outcome_text
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    cell_text,
    pairs_text,
    printable_text,
    readable_text,
    sanitise_text,
)
from node.cli.references import find_run, find_run_or_task, find_task_id, read_run, short
from node.cli.results import result_view, sorted_result
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import api_instant, local_time_text
from node.client.answers import Members
from node.model.errors import NotFound
from node.model.moments import Moment

if TYPE_CHECKING:
    from node.model.wire.runs import Run


def _outcome(run: Record) -> str:
    """Return the result or the reason, the verdict if it is not clean, and attempts before it."""
    text = run["summary"] or run["reason"] or _foreign_result_text(run)
    if run["verdict"] not in {None, "clean"}:
        # A verdict explains a doubtful result, but not why a run failed, so it follows a reason.
        text = f"{run['verdict']}: {text}" if run["summary"] else f"{text} ({run['verdict']})"
    before = [each for each in run.get("attempts") or () if each["attempt"] < run["attempt"]]
    return "; ".join(filter(None, (text, *map(_attempt_text, before))))


def _attempt_text(attempt: Record) -> str:
    """Return what became of an attempt: ``attempt 1 failed: b was down at the start``."""
    reason = f": {attempt['reason']}" if attempt["reason"] else ""
    return f"attempt {attempt['attempt']} {attempt['state']}{reason}"


def _foreign_result_text(run: Record) -> str:
    """Return where to read the result of a run that another node leads; empty for own runs."""
    return f"{run['lead']} has the result" if run["state"] == "finished" else ""


RUN = RecordLayout(
    "id,task,headline,test,tool,state,starts_at,ends_at,participants,summary,reason,verdict,"
    "outcome.judgement,attempt",
    Column("run", lambda run: short(run["id"]), whole=True),
    Column("state", lambda run: run["state"], whole=True),
    Column("outcome", outcome_text, whole=True, optional=True),
    Column("what", lambda run: run["headline"]),
    Column("start", lambda run: local_time_text(run["starts_at"]), whole=True),
    Column("mesh", lambda run: run["mesh"] or "", optional=True),
    Column("result or reason", _outcome),
    wide="id,task,tool,scheduling_class,priority,ends_at,attempt,participants,lead,requester,"
    "start_error_ms,verdict",
    empty="No such runs. Measure something: parley rtt HOST, "
    "or see future runs: parley run list --upcoming",
    model="node.model.wire.runs:Run",
)

run_group = command_group("run", {"causes": "node.cli.causes:causes"})


RERUN = RecordLayout("task,headline")
_OF_A_TIME = 10_000
"""Maximum number of runs that are listed if their time is given, but no limit."""


@run_group.command("list")
@options("""
    --state A,B             Only runs in these states, such as failed,missed.
    --test TEXT             Only runs of this test.
    --task TASK as written  Only runs of this task.
    --from TIME as starts   Only runs from this time on: -1h, 10:05, yesterday, 2026-12-01.
    --to TIME as ends       Only runs before this time [now, unless --from is later].
    --upcoming              Future runs, the next one first.
    --oldest-first          List the oldest first.
    --verdict A,B           Only runs with these verdicts, such as suspicious.
    --outcome A,B           Only runs with these judgements, such as bad,no-answer,failed.
    --attempts              Also runs that came to nothing and were tried again, on their own.
""")
@measured_options("runs")
@options("--limit 1..100000  Maximum number of entries [50, or 10000 with --from].")
@reads_node
async def list_runs(
    session: ReadingSession,
    /,
    *,
    state: str | None,
    written: str | None,
    starts: Moment | None,
    ends: Moment | None,
    upcoming: bool,
    oldest_first: bool,
    attempts: bool,
    limit: int | None,
    **filters: Any,
) -> None:
    """List the runs that have begun, newest first, each with its result or the reason why not.

    Future runs are listed with --upcoming, or if --state, a later --from, or --to include them.
    With --from, all of that time are listed, and not only the newest ones. A slot that was tried
    again is listed once, by its last attempt.
    """
    now = session.clock.now()
    task = await find_task_id(session.reader, written) if written else None
    states = tuple((state or "").replace(",", " ").split())
    if upcoming:
        states, starts, oldest_first = states or PENDING, starts or Moment(), True
    elif not states and ends is None and (starts is None or starts.at(now) <= now):
        ends = Moment()

    query = {
        **filters,
        "state": ",".join(states) or None,
        "task": task,
        "from": api_instant(starts, now),
        "to": api_instant(ends, now),
        "order": "asc" if oldest_first else None,
        "attempts": "true" if attempts else None,
    }
    most = limit or (DEFAULT_LIMIT if starts is None or upcoming else _OF_A_TIME)
    await print_documents(session, RUN, "/runs", query, most)


@run_group.command("show")
@click.argument("run")
@reads_node
async def show(session: ReadingSession, run: str) -> None:
    """Show everything about a run; with -o json also the output of each program."""
    await show_run(session, await read_run(session.reader, run, session.clock.now()))


@run_group.command("follow")
@click.argument("run", metavar="RUN|TASK")
@asks_node
async def follow(session: Session, run: str) -> int:
    """Follow a run, or the next run of a task, to its end; the exit code is its outcome."""
    client = session.client
    kind, identifier = await find_run_or_task(session.reader, run, session.clock.now())
    if kind == "runs":
        last = await follow_run(session, await client.run(UUID(identifier)))
    else:
        last = await follow_task(session, await client.task(UUID(identifier)))
    return await show_outcome(session, last)


@run_group.command("result")
@click.argument("run")
@options("""
    --raw           Print the output of each participant's program instead.
    --part NODE     With --raw, only the output of this node, unchanged.
    --interval 0..  The result of one interval, by number.
""")
@click.option("--last", type=click.IntRange(1), metavar="N", help="The last N intervals.")
@options("--since TIME  The intervals since then: -1h, 10:05.")
@reads_node
async def result(
    session: ReadingSession,
    run: str,
    *,
    raw: bool,
    part: str | None,
    interval: int | None,
    last: int | None,
    since: Moment | None,
) -> int:
    """Print only the result: JSON in a pipe, a table of its values on a terminal.

    A run that lasts long has results of intervals, during the run and afterwards: the table ends
    with the last of them; --last and --since print only intervals.

    With --raw, print the output of each participant's program; of a long one the beginning and the
    end. A participant has only its own output, the lead has all.
    """
    if part is not None and not raw:
        raise click.UsageError("--part needs --raw")
    reader, now = session.reader, session.clock.now()
    target = await read_run(reader, run, now)
    if raw:
        return _print_raw(session, target, part)
    if interval is not None:
        measured = await intervals.find_interval(reader, target["id"], interval)
        return await _result_of(session, target, measured)
    if last is not None or since is not None:
        begin = since.at(now) if since else None
        intervals.print_intervals(
            session, await intervals.latest_intervals(reader, target["id"], last, begin)
        )
        return 0
    streamed = target["scheduling_class"] == intervals.STREAMED and session.output.format == "table"
    so_far = await intervals.latest_intervals(reader, target["id"], None, None) if streamed else []
    unfinished = so_far and target["state"] in OPEN
    exit_code = 0 if unfinished else await _result_of(session, target, target)
    if so_far:
        intervals.print_intervals(session, so_far)
    return exit_code


async def _result_of(session: ReadingSession, run: Record, measured: Record) -> int:
    if measured["result"] is None:
        because = f": {measured['reason']}" if measured["reason"] else ""
        whole = measured is run
        what = f"run {short(run['id'])} is {run['state']}" if whole else "the interval is a gap"
        print_error_lines(f"✗ {what} and has no result{because}")
        return exit_code(run) if whole else NO_RESULT
    if session.output.format == "table":
        with expected_members():
            session.output.print_text(
                result_view(await _sorted_result(session, run, measured), indent="")
            )
            for line in _doubts(run):
                print_error_lines(line)
    else:
        session.output.print_document(measured["result"])
    return 0


@run_group.command("rerun")
@click.argument("run")
@click.option("--wait/--no-wait", default=True, help="Follow it to its end, or only create it.")
@asks_node
async def rerun(session: Session, /, run: str, wait: bool) -> int:
    """Measure once more what a run measured, now, as a task of its own.

    \b
      parley run rerun @-1
      parley run rerun 7c1e --no-wait

    The new task has the test, tools, campaign, priority and reference of the task of RUN, as they
    are now, and runs once, with the same nodes.
    """  # noqa: D301 - click's mark for lines to keep
    from node.cli.transfer import one_off_document

    before = await find_run(session, run)
    task = await session.client.create_task(
        one_off_document(await session.client.task(before.task))
    )
    session.progress.note(f"task {short(task.id)}: {printable_text(task.headline)}, once")
    if not wait:
        session.output.print_one(
            {"task": str(task.id), "headline": task.headline}, RERUN, _rerun_view
        )
        return 0
    return await show_outcome(session, await follow_task(session, task))


def _rerun_view(record: Record) -> str:
    return f"task {record['task']}: {printable_text(record['headline'])}"


@run_group.command("cancel")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@asks_node
async def cancel(session: Session, runs: tuple[str, ...]) -> None:
    """Cancel runs; a run in progress is stopped on all its participants."""
    await change_all(session, RUN, find_run, runs, session.client.cancel_run)


run_group.add_command(export)
run_group.add_command(verify)
run_group.add_command(replay)


async def show_outcome(session: Session, run: Run) -> int:
    """Show a run that was followed to its end, and return the exit code."""
    record = run.model_dump(mode="json")
    await show_run(session, record)
    return exit_code(record)


async def show_run(session: ReadingSession, run: Record) -> None:
    """Show one run; to a person, with the result in the order of the schema."""
    if session.output.format == "table" and run["result"] is not None:
        run = Members({**run, "result": await _sorted_result(session, run, run)})
    print_record(session, RUN, run, run_view)


async def _sorted_result(session: ReadingSession, run: Record, measured: Record) -> Record:
    result: Record = measured["result"]
    try:
        test = await session.reader.document(f"/tests/{quote(run['test'], safe='')}")
    except NotFound:  # a test that this node lacks, led by a node with a newer version
        return result
    return sorted_result(result, test["result" if measured is run else "interval"] or {})


def run_view(run: Record) -> str:
    """Describe a run for a person: outcome, state, time and tool, figures, then the rest."""
    head = readable_text(run["summary"] or run["reason"] or run["state"])
    lines = [f"{mark_of(run)} {printable_text(run['headline'])}: {head}"]
    if run["summary"] and run["reason"]:
        lines.append(f"  {readable_text(run['reason'])}")
    lines += [f"  {line}" for line in _doubts(run)]
    first = (
        ("state", run["state"]),
        ("outcome", _outcome_line(run)),
        ("started", local_time_text(run["started_at"])),
        ("planned", f"{local_time_text(run['starts_at'])} to {local_time_text(run['ends_at'])}"),
        ("tool", _tool_text(run)),
    )
    lines.append(pairs_text(first, indent="  "))
    if run["result"]:
        lines += ["", result_view(run["result"])]
    if run.get("followed_by"):
        lines += ["", *follow_up_lines(run["followed_by"], "  ")]
    particulars = (
        ("run", run["id"]),
        ("task", run["task"]),
        ("mesh", run["mesh"]),
        ("asked by", run.get("asked_by") and f"run {run['asked_by']}"),
        ("class", _class_and_priority(run)),
        *(
            ("attempt" if number == 0 else "", text)
            for number, text in enumerate(_attempt_lines(run))
        ),
        (
            "slots",
            f"{run['slots']} to {local_time_text(run['last_slot'])}" if run["last_slot"] else "",
        ),
        ("lead", run["lead"]),
        ("displaced by", run["displaced_by"]),
    )
    lines += ["", pairs_text(particulars, indent="  "), *_parts(run)]
    return "\n".join(lines)


def _attempt_lines(run: Record) -> list[str]:
    """Return a line for each attempt of a slot that was tried again, this run among them."""
    others = run.get("attempts") or ()
    told = [
        (
            each["attempt"],
            f"{_attempt_text(each).removeprefix('attempt ')}, run {short(each['run'])}",
        )
        for each in others
    ]
    own = (run["attempt"], f"{run['attempt']} {run['state']}: this run")
    return [text for _, text in sorted([*told, own])] if told else []


def _outcome_line(run: Record) -> str:
    """Return the judgement with its reason; empty if the state and reason of the run say both."""
    outcome = run["outcome"]
    if outcome is None or outcome["reason"] in {None, run["reason"]}:
        return ""
    return f"{outcome['judgement']}: {readable_text(outcome['reason'])}"


def _tool_text(run: Record) -> str:
    """Return the tool with its version: ``iperf3 3.12``, or ``ping a 1, b 2`` if they differ."""
    circumstances = {part["name"]: part["circumstances"] for part in run["parts"] or ()}
    versions = {
        name: host["tool_version"]
        for name, host in circumstances.items()
        if host and host["tool_version"]
    }
    if len(set(versions.values())) > 1:
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
    else:
        text = next(iter(versions.values()), "")
    return f"{run['tool'] or ''} {printable_text(text)}".strip()


def _doubts(run: Record) -> list[str]:
    if run["verdict"] in {None, "clean"}:
        return []
    return [f"{run['verdict']}: {readable_text(reason)}" for reason in run["verdict_reasons"]]


def _print_raw(session: ReadingSession, run: Record, only: str | None) -> int:
    """Print what the programs of a run printed, each after its argv; or only that of one node.

    :raises NotFound: ``only`` has no part in the run.
    """
    parts = run["parts"] or ()
    printed = [{name: part[name] for name in ("name", "command", "output")} for part in parts]
    if only is not None:
        outputs = [part["output"] or "" for part in printed if part["name"] == only]
        if not outputs:
            names = ", ".join(printable_text(part["name"]) for part in printed) or "nobody yet"
            raise NotFound(f"run {short(run['id'])} has no part of {only}, only of {names}")
        session.output.print_verbatim(outputs[0])
        return 0
    if session.output.format != "table":
        session.output.print_document(printed)
    elif printed:
        session.output.print_text("\n".join(line for part in printed for line in _raw_lines(part)))
    else:
        print_error_lines(
            f"✗ run {short(run['id'])} is {run['state']} and no participant has reported yet"
        )
    return 0 if printed else exit_code(run)


def _raw_lines(part: Record) -> list[str]:
    command = cell_text(part["command"]) if part["command"] else "started no program"
    output = part["output"] or ""
    return [
        f"{printable_text(part['name'])}: {printable_text(command)}",
        *(f"  {sanitise_text(line)}" for line in output.splitlines()),
    ]


def _class_and_priority(run: Record) -> str:
    priority = f", priority {run['priority']}" if run["priority"] else ""
    return f"{run['scheduling_class']}{priority}"


def _parts(run: Record) -> list[str]:
    lines = []
    for part in run["parts"] or ():
        outcome = "delivered its part" if part["reason"] is None else part["reason"]
        lines.append(f"  {printable_text(part['name'])}: {readable_text(outcome)}")
        if part["command"]:
            lines.append(f"    {printable_text(cell_text(part['command']))}")
        if part["circumstances"]:
            lines.append(f"    {printable_text(_circumstances(part['circumstances']))}")
    return ["", *lines] if lines else []


def _circumstances(host: Record) -> str:
    clock, load, wire = host["clock"], host["processors"], host["interface"]
    words = [f"from {host['context']}"] if host["context"] else []
    if load["busy"] is not None:
        words.append(f"processors {100 * load['busy']:.0f} % busy")
    if wire:
        seconds = max(host["observed_ms"], 1) / 1000
        sent, received = (8 * wire[f"{way}_bytes"] / seconds / 1e6 for way in ("sent", "received"))
        words.append(f"{wire['name']} {sent:.3g} Mb/s out, {received:.3g} Mb/s in")
    bound = clock["error_bound_ms"]
    by = f" by {clock['source']}" if clock["source"] else ""
    words.append(
        f"clock synchronised{by} to {bound:.3g} ms"
        if clock["synchronised"] and bound is not None
        else "clock not synchronised"
    )
    if host["neighbours_count"]:
        words.append(f"{host['neighbours_count']} other runs here")
    return ", ".join(words)
