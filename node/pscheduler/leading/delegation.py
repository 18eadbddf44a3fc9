"""Runs of tests with one participant, led by that host itself: each is a task of its own there.

pScheduler lets nobody else lead what one host measures alone. So a run of ours is posted to the
host like its own command line does, with our start and no slip, and its merged result is our part.
The post answers with an id that nobody knows before. A task whose answer was lost is found by what
is in its reference.
"""

from __future__ import annotations

from uuid import UUID

from node.client.pscheduler import JsonObject, PschedulerHost, instant_text
from node.model.errors import NotFound
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.plugins import registry
from node.pscheduler.leading.results import is_heard
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES
from node.store.pscheduler_bookings import BookedThere

DELEGATED = 0
"""The place of a host that leads alone; as a participant of others it has a later one."""
_TASK = "task"
"""The member of a booking's data that names the task there."""


def is_delegated(introduction: Introduction) -> bool:
    """Return whether the host measures alone."""
    return len(introduction.participants) == 1


def delegated_test(introduction: Introduction) -> tuple[str, Document] | None:
    """Return the test in pScheduler's words; None if it has none, or no result that we read."""
    if not is_heard(introduction.test):
        return None
    for name, language in LANGUAGES.items():
        spec = language.from_parley(introduction.test, introduction.spec)
        if spec is not None:
            own = {key: value for key, value in spec.items() if key not in {"source", "host"}}
            if (dest := introduction.spec.get("dest")) is not None:
                own["dest"] = introduction.addresses.get(dest, dest)
            return name, own
    return None


def booked_length(test: str, spec: Document) -> int:
    """Return how long pScheduler books for a spec, in microseconds."""
    return LANGUAGES[test].duration(spec)


async def offer(host: PschedulerHost, introduction: Introduction) -> IntroductionAnswer:
    """Return whether a host measures this alone, and by which tools that are called as ours are."""
    found = delegated_test(introduction)
    if found is None:
        reason = (
            f"pScheduler has no test like {introduction.test} with this spec whose results are "
            "read here"
        )
        return IntroductionAnswer(accepted=False, reason=reason)
    name, spec = found
    listed = await host.tools({"type": name, "spec": spec})
    own = [tool.name for tool in registry.tools_for(introduction.test)]
    wanted = introduction.tools or tuple(own)
    able = {each.name for each in listed if each.refusal is None}
    tools = tuple(each for each in wanted if each in able and each in own)
    if not tools:
        have = ", ".join(sorted(able)) or "none"
        reason = f"it has no tool that is called as one of {', '.join(wanted)} (it has: {have})"
        return IntroductionAnswer(accepted=False, reason=reason[:1000])
    return IntroductionAnswer(accepted=True, tools=tools)


def document_of(test: Document, row: BookedThere, tool: str) -> JsonObject:
    """Return a run of ours as a task of the host, with our start and no slip."""
    return {
        "test": test,
        "schedule": {"start": instant_text(row.starts_at), "slip": "PT0S"},
        "tools": [tool],
        "reference": reference_of(row),
        "_key": row.key,
    }


def reference_of(row: BookedThere) -> JsonObject:
    """Return the reference by which a task there is found."""
    return {"parley": {"booking": str(row.run_there)}}


def task_of(row: BookedThere) -> UUID | None:
    """Return the task of a booking there, if the host has told it."""
    written = row.data.get(_TASK)
    return None if written is None else UUID(str(written))


def data_of(task: UUID) -> JsonObject:
    """Return the data of a booking whose task is known."""
    return {_TASK: str(task)}


async def found_task(host: PschedulerHost, row: BookedThere) -> UUID:
    """Return the task of a booking there, whether or not its post was answered.

    :raises NotFound: there is none.
    """
    if (known := task_of(row)) is not None:
        return known
    for task in await host.tasks_with(reference_of(row)):
        return task
    raise NotFound("it has no such task")


async def drop(host: PschedulerHost, row: BookedThere) -> None:
    """End the task of a booking there.

    :raises NotFound: there is none.
    """
    await host.end_task(await found_task(host, row), row.key)


async def run_of(host: PschedulerHost, row: BookedThere, wait_s: int = 0) -> JsonObject:
    """Return the only run of a task there; with ``wait_s`` once it is merged, or as it is then.

    It is empty while the host has not scheduled it yet.

    :raises NotFound: there is no such task.
    """
    task = await found_task(host, row)
    try:
        return await host.first_run(task, row.key, wait_s)
    except NotFound:
        await host.task(task, row.key)
        return {}
