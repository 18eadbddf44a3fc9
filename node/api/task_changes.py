"""The route that changes many tasks at once, each as if it were changed alone."""

from __future__ import annotations

import asyncio
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, PRINCIPAL, THING, TRIAL, Route
from node.api.tasks import DRY_RUN, edit_for_user, fetch
from node.model.permissions import require_own
from node.model.taskstate import OPEN, TaskState
from node.model.wire.problems import problem_of
from node.model.wire.task_lists import TaskChange, TaskChanges, TaskVerb
from node.store import tasks

_AT_ONCE = 16
"""Number of tasks of one request that are changed at the same time."""


async def change(request: web.Request) -> web.StreamResponse:
    """Cancel, pause, resume or edit tasks; return the new state or the problem of each."""
    requests.refuse_other_parameters(request, "dry_run")
    dry_run = request[TRIAL] = requests.flag(request, "dry_run")
    changes = requests.document(request, TaskChanges)
    request[THING] = f"{len(changes.tasks)} tasks"
    places = asyncio.Semaphore(_AT_ONCE)

    async def change_one(task: UUID) -> str:
        async with places:
            return await _change_task(request, task, changes, dry_run=dry_run)

    named = list(dict.fromkeys(changes.tasks))
    outcomes = await asyncio.gather(*map(change_one, named), return_exceptions=True)
    return responses.list_response(
        [
            TaskChange(task=task, problem=problem_of(responses.error_of(outcome)))
            if isinstance(outcome, BaseException)
            else TaskChange(task=task, state=outcome)
            for task, outcome in zip(named, outcomes, strict=True)
        ]
    )


async def _change_task(
    request: web.Request, task: UUID, changes: TaskChanges, *, dry_run: bool
) -> str:
    """Change one task, or with ``dry_run`` find out what it would be; return its state then.

    :raises NotFound: there is no such task.
    :raises NotAllowed: it is another user's.
    """
    node = request.app[NODE]
    if request[PRINCIPAL].only is not None:
        async with node.database.connection() as connection:
            requester = await tasks.requester(connection, task)
        require_own(request[PRINCIPAL], requester, f"task {task}")
    if changes.change is TaskVerb.EDIT and changes.patch is not None:
        return (await edit_for_user(request, task, changes.patch, dry_run=dry_run)).state
    if dry_run:
        return _state_after(changes.change, (await fetch(node, task)).state)
    if changes.change is TaskVerb.CANCEL:
        await node.termination.cancel_task(task)
    elif changes.change is TaskVerb.PAUSE:
        await node.editing.pause(task)
    else:
        await node.editing.resume(task)
    return (await fetch(node, task)).state


def _state_after(verb: TaskVerb, state: str) -> str:
    becomes = {
        TaskVerb.CANCEL: TaskState.CANCELLED,
        TaskVerb.PAUSE: TaskState.PAUSED,
        TaskVerb.RESUME: TaskState.ACTIVE,
    }
    return becomes.get(verb, state) if state in OPEN else state


ROUTES = (
    Route(
        "POST",
        "/v1/tasks/changes",
        change,
        "Cancel, pause, resume or edit many tasks",
        TaskChanges,
        TaskChange,
        listed=True,
        query=(DRY_RUN,),
    ),
)
