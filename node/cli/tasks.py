"""``parley task``: create tasks, show them, change them, and cancel them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from node.cli.bulk import (
    TaskChoice,
    change_chosen,
    change_options,
    choice_of,
    choice_options,
    chosen_tasks,
)
from node.cli.documents import (
    document_options,
    patch_options,
    request_rows,
    request_text,
    seats_view,
    task_document,
    task_patch,
)
from node.cli.failures import print_error_lines
from node.cli.follow import follow_task
from node.cli.giving_up import Followed
from node.cli.groups import command_group
from node.cli.listing import (
    change_all,
    limit_option,
    measured_options,
    print_documents,
    print_record,
)
from node.cli.options import options, require_change
from node.cli.outcomes import outcome_text
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    cell_text,
    pairs_text,
    printable_text,
    readable_text,
    records_of,
)
from node.cli.references import find_task, read_task, short
from node.cli.runs import RUN, show_outcome
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import local_time_text
from node.model import times
from node.model.errors import RefusedByParticipant
from node.model.outcome import BAD_RESULTS
from node.model.taskstate import OPEN, TaskState
from node.model.times import duration_text

if TYPE_CHECKING:
    from node.model.wire.tasks import Task


def schedule_text(task: Record) -> str:
    """Describe when a task runs: ``every PT5M until …``, ``after 1f2e3d4c``."""
    if after := task["after"]:
        within = duration_text(after["within"])
        which = after["outcome"]
        if condition := after.get("when"):
            which = f"when {condition}, at most {after['per_hour']} an hour"
        return f"after {short(after['task'])} {which}, within {within}"
    schedule = task["schedule"]
    words = ["once"]
    if schedule["repeat"]:
        words = [f"every {duration_text(schedule['repeat'])}"]
    elif schedule["cron"]:
        words = [f"cron {schedule['cron']} ({schedule['timezone'] or 'UTC'})"]
    if schedule["start"] and _is_later(schedule["start"], task["created_at"]):
        words.append(f"from {local_time_text(schedule['start'])}")
    return " ".join([*words, *_bounds_of(schedule)])


def _bounds_of(schedule: Record) -> Iterator[str]:
    if schedule["until"]:
        yield f"until {local_time_text(schedule['until'])}"
    if schedule["max_runs"]:
        yield f"at most {schedule['max_runs']} runs"
    if budget := schedule.get("displacement_budget"):
        yield "may lose {} of {}".format(*budget.split("/"))


def _is_later(start: str, created_at: str) -> bool:
    """Return whether the first run is not due at once; an earlier start is only an anchor."""
    return times.parse_instant(start) > times.parse_instant(created_at)


def _reference_text(task: Record) -> str:
    """Return the mesh of a task, or else its reference as JSON."""
    reference = task["reference"]
    if task["reference_left_out"]:
        return "(long)"
    if isinstance(reference, Mapping) and isinstance(reference.get("mesh"), str):
        return f"mesh {reference['mesh']}"
    text = cell_text(reference)
    return text if len(text) <= _REFERENCE_SHOWN else f"{text[: _REFERENCE_SHOWN - 1]}…"


def _counts_text(task: Record) -> str:
    """Return the numbers of runs by state, but of finished ones those that are bad on their own."""
    counts, judged = dict(task["runs"]), task.get("judgements") or {}
    for word in sorted(BAD_RESULTS & judged.keys()):
        counts["finished"] -= judged[word]
        counts[word] = judged[word]
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _state_text(task: Record) -> str:
    """Describe the state of a task for a list: counts, and why a run or a participant waits."""
    if task["reason"]:
        return str(task["reason"])
    since = f"paused since {local_time_text(task['paused_at'])}" if task["paused_at"] else ""
    waits = task["waiting"] or ("" if task["planned"] else _unanswered_text(task))
    return "; ".join(filter(None, (since, _seats_text(task), _counts_text(task), waits)))


def _unanswered_text(task: Record) -> str:
    """Return why participants have not accepted a task yet."""
    return "; ".join(
        f"{participant['name']}: {participant['reason']}"
        for participant in task["participants"]
        if participant["reason"]
    )


def _seats_text(task: Record) -> str:
    """Describe how many seats of a pool task are taken: ``19 of 20 seats (…)``."""
    seats = task["seats"]
    if not seats:
        return ""
    taken = f"{seats['taken']} of {seats['wanted']} seats"
    return f"{taken} ({seats['reason']})" if seats["reason"] else taken


_REFERENCE_SHOWN = 40

TASK = RecordLayout(
    "id,headline,state,test.type,tool,schedule.repeat,schedule.cron,priority,campaign,lead,"
    "next_run_at,created_at,reason,revision,paused_at,requester,outcome.judgement",
    Column("task", lambda task: short(task["id"]), whole=True),
    Column("state", lambda task: task["state"], whole=True),
    Column("outcome", outcome_text, whole=True, optional=True),
    Column("what", lambda task: task["headline"]),
    Column("when", schedule_text),
    Column("reference", _reference_text, optional=True),
    Column("requester", lambda task: task["requester"] or "", optional=True),
    Column("next run", lambda task: local_time_text(task["next_run_at"]), whole=True),
    Column("runs or reason", _state_text),
    wide="id,tool,scheduling_class,priority,campaign,lead,created_at,paused_at,revision",
    empty="No such tasks. Create one: parley rtt HOST --repeat 5m, "
    "or: parley task create rtt --spec dest=HOST --repeat 5m",
    model="node.model.wire.tasks:Task",
)


_LATE = {
    "export": "node.cli.transfer:export_tasks",
    "import": "node.cli.transfer:import_tasks",
}


task_group = command_group("task", _LATE)


@task_group.command("create")
@document_options
@options("""
    --wait/--no-wait  Follow the first run to its end, or do not even wait for the first planning.
                      Default: wait until planned.
    --if-time         Create it only if one of its runs finds time now; otherwise say what would
                      find time.
""")
@asks_node
async def create(session: Session, /, wait: bool | None, if_time: bool, **given: Any) -> int:
    """Create a task that measures TEST.

    \b
      parley task create rtt --spec dest=192.0.2.7 --spec count=5
      parley task create throughput --spec source=a --spec dest=b --repeat 1h --slip 10m
      parley task create trace --spec dest=192.0.2.7 --after @-1 --after-within 10m
      parley task create trace --spec dest=192.0.2.7 --after @-1 --when "loss > 1 %"
      parley task create --file task.json
    """  # noqa: D301 - click's mark for lines to keep
    session.output.require_fields(RUN if wait else TASK)
    document = await task_document(session, given)
    task = await session.client.create_task(document, if_time=if_time)
    if wait:
        announce(session, task)
        return await show_outcome(session, await follow_task(session, task))
    if wait is None and not task.planned:
        session.followed = Followed("task", task.id)
        session.progress.status("asking the participants for a time", "planning")
        task = await session.client.until_planned(task.id)
        session.progress.clear()
    session.output.print_one(task, TASK, task_view)
    if task.state == TaskState.REFUSED:
        print_error_lines(f"✗ {readable_text(task.reason)}")
        return RefusedByParticipant.exit_code
    if task.planned and task.next_run_at is None:
        await _say_why_waiting(session, task)
    return 0


async def _say_why_waiting(session: Session, task: Task) -> None:
    waiting = await session.client.runs(task=task.id, states=("waiting",), limit=1)
    for run in waiting.items:
        session.progress.note(f"no time yet, will be retried: {readable_text(run.reason)}")


@task_group.command("list")
@options("""
    --seats           Include the tasks of the seats of pool tasks.
    --state TEXT      Only tasks in this state, such as active.
    --test TEXT       Only tasks of this test.
    --outcome A,B     Only tasks whose newest slot has these judgements, such as bad,stale.
    --requester TEXT  Only tasks that this user created: the label of their token.
""")
@measured_options("tasks")
@limit_option
@reads_node
async def list_tasks(session: ReadingSession, /, *, seats: bool, limit: int, **given: Any) -> None:
    """List tasks, newest first."""
    query = {**given, "seats": "true" if seats else None}
    await print_documents(session, TASK, "/tasks", query, limit)


@task_group.command("show")
@click.argument("task")
@reads_node
async def show(session: ReadingSession, task: str) -> None:
    """Show everything about a task."""
    record = await read_task(session.reader, task)
    if record["pool"] is not None:
        seats = await session.reader.listed(f"/tasks/{record['id']}/seats", {})
        record["seat_list"] = list(seats.items)
    print_record(session, TASK, record, task_view)


async def _change_tasks(
    session: Session, verb: str, given: Mapping[str, Any], states: set[str]
) -> int:
    """Change the tasks that are named, or those in these states that a filter chooses."""
    given = dict(given)
    written, dry_run, yes = given.pop("tasks"), given.pop("dry_run"), given.pop("yes")
    choice = TaskChoice(**given)
    tasks = await chosen_tasks(session, written, choice, states)
    if written and not dry_run:
        client = session.client
        changes = {
            "cancel": client.cancel_task,
            "pause": client.pause_task,
            "resume": client.resume_task,
        }
        session.output.print_list(
            records_of([await changes[verb](task.id) for task in tasks]), TASK
        )
        return 0
    return await change_chosen(session, verb, tasks, dry_run=dry_run, yes=yes)


@task_group.command("pause")
@click.argument("tasks", nargs=-1, metavar="TASK...")
@choice_options
@asks_node
async def pause(session: Session, /, **given: Any) -> int:
    """Free the future runs of tasks on all nodes; runs in progress continue.

    \b
      parley task pause @-1
      parley task pause --mesh backbone --participant b --dry-run
    """  # noqa: D301 - click's mark for lines to keep
    return await _change_tasks(session, "pause", given, {TaskState.ACTIVE})


@task_group.command("resume")
@click.argument("tasks", nargs=-1, metavar="TASK...")
@choice_options
@asks_node
async def resume(session: Session, /, **given: Any) -> int:
    """Plan paused tasks again from now on; runs they missed meanwhile are not made up.

    \b
      parley task resume @-1
      parley task resume --campaign sc26 --test rtt
    """  # noqa: D301 - click's mark for lines to keep
    return await _change_tasks(session, "resume", given, {TaskState.PAUSED})


@task_group.command("release")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@asks_node
async def release(session: Session, tasks: tuple[str, ...]) -> None:
    """Try now what tasks wait for; a hold after many tries without time ends."""
    await change_all(session, TASK, find_task, tasks, session.client.release_task)


@task_group.command("edit")
@click.argument("task", required=False)
@patch_options
@options("""
    --where NAME=VALUE...  Instead of TASK, all open tasks with this mesh, campaign, reference,
                           participant, test, or requester.
""")
@change_options
@asks_node
async def edit(
    session: Session,
    /,
    task: str | None,
    where: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> int:
    """Change a task, or many; future runs that no longer fit are planned again.

    \b
      parley task edit @-1 --repeat 30m --priority 10
      parley task edit 7c1e --spec count=20 --clear until --dry-run
      parley task edit --where mesh=backbone --where test=rtt --priority 5
      echo '{"schedule": {"slip": "2m"}}' | parley task edit 7c1e --file -
    """  # noqa: D301 - click's mark for lines to keep
    if task is None or where:
        return await _edit_many(session, task, where, given, dry_run=dry_run, yes=yes)
    from node.model.changes import differences

    before = await find_task(session, task)
    patch = await task_patch(session, before.test.type, given)
    require_change(patch, "task", "--repeat 30m")
    patch.setdefault("revision", before.revision)
    after = await session.client.edit_task(before.id, patch, dry_run=dry_run)
    changes = differences(_editable_fields(before), _editable_fields(after))
    verb = "would change" if dry_run else "changed"
    text = f"{verb}: {'; '.join(map(readable_text, changes))}" if changes else "no change"
    session.progress.note(text)
    session.output.print_one(after, TASK, task_view)
    return 0


async def _edit_many(
    session: Session,
    task: str | None,
    where: tuple[str, ...],
    given: Mapping[str, Any],
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Edit the tasks that a filter chooses, all with the same patch."""
    tasks = await chosen_tasks(session, [] if task is None else [task], choice_of(where))
    tests = {each.test.type for each in tasks}
    if (given["spec"] or given["spec_json"]) and len(tests) > 1:
        names = ", ".join(sorted(tests))
        raise click.UsageError(f"the tests {names} have no spec in common; add --where test=TEST")
    patch = await task_patch(session, min(tests, default=""), given)
    require_change(patch, "task", "--repeat 30m")
    return await change_chosen(session, "edit", tasks, patch, dry_run=dry_run, yes=yes)


def _editable_fields(task: Task) -> dict[str, Any]:
    fields = {"test", "tools", "schedule", "after", "priority", "campaign", "reference", "pool"}
    return task.model_dump(mode="json", include=fields)


@task_group.command("cancel")
@click.argument("tasks", nargs=-1, metavar="TASK...")
@choice_options
@asks_node
async def cancel(session: Session, /, **given: Any) -> int:
    """Cancel tasks with all their runs; runs in progress are stopped on all nodes.

    \b
      parley task cancel @-1
      parley task cancel --requester ada --test throughput --dry-run
      parley task cancel --reference ticket=4711 --yes
    """  # noqa: D301 - click's mark for lines to keep
    return await _change_tasks(session, "cancel", given, set(OPEN))


def announce(session: Session, task: Task) -> None:
    """Note the id of a new task, before its run is followed."""
    when = schedule_text(task.model_dump(mode="json"))
    session.progress.note(f"task {short(task.id)}: {task.headline}, {when}")


def task_view(task: Record) -> str:
    """Describe a task for a person."""
    head = f"{printable_text(task['headline'])}: {task['state']}"
    reason = f", {readable_text(task['reason'])}" if task["reason"] else ""
    spec = [(f"  {name}", value) for name, value in task["test"]["spec"].items()]
    particulars = (
        ("task", task["id"]),
        ("when", schedule_text(task)),
        ("after", task["after"] and task["after"]["task"]),
        ("nodes", request_text(task["pool"]) if task["pool"] else ""),
        *((name, printable_text(value)) for name, value in request_rows(task["pool"])),
        ("seats", _seats_text(task)),
        ("seat of", task["parent"]),
        ("slip", _slip_text(task["schedule"])),
        ("paused since", local_time_text(task["paused_at"])),
        ("next run", local_time_text(task["next_run_at"])),
        ("planned next", "" if task["next_run_at"] else local_time_text(task["plan_at"])),
        ("runs", _counts_text(task)),
        ("waits", task["waiting"]),
        ("tool", _tool_text(task)),
        ("class", task["scheduling_class"]),
        ("takes", task["duration"]),
        ("resources", ", ".join(task["takes"] or ())),
        ("priority", task["priority"] or ""),
        ("campaign", task["campaign"]),
        ("requester", task["requester"]),
        ("reference", task["reference"]),
        ("lead", task["lead"]),
        ("revision", task["revision"] if (task["revision"] or 1) > 1 else ""),
        ("created", local_time_text(task["created_at"])),
        ("ended", local_time_text(task["ended_at"])),
        *(("archive", _archive_text(each)) for each in task["archives"] or ()),
        *spec,
    )
    lines = [head + reason, pairs_text(particulars, indent="  ")]
    lines += [
        f"  {printable_text(participant['name'])}: {readable_text(participant['reason'])}"
        for participant in task["participants"]
        if participant["reason"]
    ]
    lines += [
        f"  {each['name']}: from {each['context']}, where its address is {each['address']}"
        for each in task["participants"]
        if each.get("context")
    ]
    if task.get("seat_list"):
        lines.append(seats_view(task["seat_list"], task["pool"]["k"]))
    return "\n".join(lines)


def _tool_text(task: Record) -> str:
    reason = task.get("tool_reason")
    return f"{task['tool'] or ''}{f': {reason}' if reason else ''}"


def _archive_text(archive: Record) -> str:
    """Return archiver, fields of the spec that are set, and which runs it receives."""
    fields = {name: v for name, v in archive["spec"].items() if v not in (None, {}, [])}
    spec = ", ".join(f"{name} {cell_text(value)}" for name, value in fields.items())
    return printable_text(f"{archive['archiver']} ({spec}), {archive['runs']}")


def _slip_text(schedule: Record) -> str:
    if not schedule["slip"]:
        return ""
    return f"{duration_text(schedule['slip'])}{', at random' if schedule['slip_random'] else ''}"
