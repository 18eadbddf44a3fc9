"""Change many tasks at once: those that a filter chooses, after a look at them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import can_ask, print_error_lines
from node.cli.listing import collect_all
from node.cli.options import options
from node.cli.output import Column, RecordLayout, cell_text, plural, printable_text
from node.cli.references import find_task, short
from node.model.taskstate import OPEN

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.tasks import Task

_LIST = 200
"""Number of tasks in one request: its answer does not take long."""

_SHOWN = 10
"""Number of tasks to name before a person is asked."""

CHANGE = RecordLayout(
    "id,headline,state,problem",
    Column("task", lambda change: short(change["id"]), whole=True),
    Column("state", lambda change: change["state"], whole=True),
    Column("what", lambda change: change["headline"]),
    Column("problem", lambda change: change["problem"] or ""),
    empty="No such tasks.",
)


@dataclass(frozen=True)
class TaskChoice:
    """The conditions of a filter: a task meets all that are given."""

    mesh: str | None = None
    campaign: str | None = None
    reference: str | None = None
    participant: str | None = None
    test: str | None = None
    requester: str | None = None

    @property
    def is_given(self) -> bool:
        """Return whether there is a condition."""
        return any(value is not None for value in vars(self).values())


def _matches_reference(reference: Any, written: str) -> bool:
    """Return whether a task's reference equals ``written``, or has the member ``KEY=VALUE``."""
    name, given, value = written.partition("=")
    if given and isinstance(reference, Mapping):
        return name in reference and value in {str(reference[name]), cell_text(reference[name])}
    return written in {str(reference), cell_text(reference), json.dumps(reference)}


change_options = options("""
    --yes      Do not ask.
    --dry-run  Only show what would change.
""")
"""The options of a change of many tasks."""

choice_options = options("""
    --yes               Do not ask.
    --dry-run           Only show what would change.
    --mesh TEXT         Tasks of this mesh.
    --campaign TEXT     Tasks of this campaign.
    --reference TEXT    Tasks with this reference, or this member of it: KEY=VALUE.
    --participant TEXT  Tasks in which this node takes part.
    --test TEXT         Tasks of this test.
    --requester TEXT    Tasks that this user created: the label of their token.
""")
"""The same, and an option for each condition of a filter."""


def choice_of(conditions: Sequence[str]) -> TaskChoice:
    """Parse conditions written as ``NAME=VALUE``.

    :raises click.BadParameter: one is not of this form, or has an unknown name.
    """
    choice = TaskChoice()
    for written in conditions:
        name, given, value = written.partition("=")
        if not given or name not in vars(choice):
            names = ", ".join(vars(choice))
            msg = f"{written!r} is not NAME=VALUE with one of the names {names}"
            raise click.BadParameter(msg, param_hint="--where")
        choice = replace(choice, **{name: value})
    return choice


async def chosen_tasks(
    session: Session,
    written: Sequence[str],
    choice: TaskChoice,
    states: Collection[str] = OPEN,
) -> list[Task]:
    """Return the tasks that were typed, or else those in these states that a filter chooses.

    :raises click.UsageError: neither is given, or both are.
    """
    if bool(written) is choice.is_given:
        raise click.UsageError("give TASK…, or a filter such as --mesh NAME, and not both")
    if written:
        return [await find_task(session, each) for each in written]
    listed = await listed_tasks(session, choice, states)
    if choice.reference is None:
        return listed
    # No list has long references.
    whole = [
        await session.client.task(task.id) if task.reference_left_out else task for task in listed
    ]
    return [task for task in whole if _matches_reference(task.reference, choice.reference)]


async def listed_tasks(
    session: Session, choice: TaskChoice, states: Collection[str] = OPEN
) -> list[Task]:
    """Return all tasks in these states that meet the conditions, regardless of their reference."""
    fetch = partial(
        session.client.tasks,
        state=",".join(sorted(states)),
        test=choice.test,
        requester=choice.requester,
        participant=choice.participant,
        campaign=choice.campaign,
        mesh=choice.mesh,
        limit=500,
    )

    return await collect_all(session, fetch, "reading tasks")


async def change_chosen(
    session: Session,
    verb: str,
    tasks: Sequence[Task],
    patch: Mapping[str, Any] | None = None,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Change tasks in as few requests as possible, once a person has agreed; print the outcome.

    Returns the exit code: that of the first problem.
    """
    from node.model.wire.problems import error_of  # loads pydantic

    if tasks and not dry_run and not yes and not _is_confirmed(verb, tasks):
        session.progress.note("nothing was changed")
        return 0
    by_id = {task.id: task for task in tasks}
    ids, records, code = list(by_id), list[dict[str, Any]](), 0
    change = partial(session.client.change_tasks, verb, patch=patch, dry_run=dry_run)
    for first in range(0, len(ids), _LIST):
        for answer in await change(ids[first : first + _LIST]):
            task = by_id[answer.task]
            detail = None
            if answer.problem is not None:
                detail, code = answer.problem.detail, code or error_of(answer.problem).exit_code
            records.append(
                {
                    "id": str(task.id),
                    "headline": task.headline,
                    "state": str(answer.state or task.state),
                    "problem": detail,
                }
            )
        session.progress.status(f"{verb}: {len(records)} of {len(ids)} tasks", verb)
    session.progress.clear()
    session.output.print_list(records, CHANGE)
    failed = sum(record["problem"] is not None for record in records)
    done = "would change" if dry_run else "changed"
    more = f", {failed} have a problem" if failed else ""
    session.progress.note(f"{plural(len(records) - failed, 'task')} {done}{more}")
    return code


def _is_confirmed(verb: str, tasks: Sequence[Task]) -> bool:
    """Return whether a person agrees to a change of these tasks; True if nobody can be asked."""
    if not can_ask():
        return True
    lines = [f"  {short(task.id)}  {printable_text(task.headline)}" for task in tasks[:_SHOWN]]
    if len(tasks) > _SHOWN:
        lines.append(f"  and {len(tasks) - _SHOWN} more (--dry-run shows all)")
    print_error_lines("\n".join([f"{plural(len(tasks), 'task')} to {verb}:", *lines]))
    return click.confirm(f"{verb.capitalize()} them?", err=True)
