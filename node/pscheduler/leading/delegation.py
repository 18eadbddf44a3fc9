"""Runs of tests with one participant, led by that host itself: each is a task of its own there.

pScheduler lets nobody else lead what one host measures alone. So a run of ours is posted to the
host like its own command line does, with our start and no slip, and its merged result is our part.
The post answers with an id that nobody knows before. A task whose answer was lost is found by what
is in its reference.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from node.client.pscheduler import JsonObject, PschedulerHost, instant_text
from node.model.errors import NotFound
from node.model.wire.fields import is_address
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.plugins import registry
from node.pscheduler.leading.results import is_readable
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES
from node.store.pscheduler_bookings import BookedThere

DELEGATED = 0
"""The place of a host that leads alone; as a participant of others it has a later one."""
_DNS = "dns"
_TASK = "task"
"""The member of a booking's data that names the task there."""
_CALLED_THERE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"curl": ("curl", "psurl"), "dnspython": ("dnspy",)}
)
"""Tools there that measure like one of ours, by their names in all releases."""
_ONLY: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "dns": {
            "port": 53,
            "protocol": "udp",
            "recurse": True,
            "dnssec": False,
            "rcode": "NOERROR",
            "ip_version": None,
        },
        "http": {
            "verify": False,
            "method": "GET",
            "headers": {},
            "redirects": None,
            "status": None,
            "bytes_max": 1_000_000,
        },
    }
)
"""The values of members that nothing in a spec of pScheduler can say; others are refused."""


def is_delegated(introduction: Introduction) -> bool:
    """Return whether the host measures alone."""
    return len(introduction.participants) == 1


def delegated_test(introduction: Introduction) -> tuple[str, Document] | None:
    """Return the test in pScheduler's words; None if it has none, or no result that we read."""
    if not is_readable(introduction.test) or _unsupported_members(introduction) is not None:
        return None
    for name, language in LANGUAGES.items():
        spec = language.from_parley(introduction.test, introduction.spec)
        if spec is not None:
            return name, _with_full_names(spec, introduction)
    return None


def _with_full_names(spec: Document, introduction: Introduction) -> Document:
    """Return a spec that means the same at the host: with our addresses, and full names."""
    own = {key: value for key, value in spec.items() if key not in {"source", "host"}}
    for member in {"dest", "nameserver"} & own.keys():
        own[member] = introduction.addresses.get(own[member], own[member])
    if introduction.test == _DNS:
        own["query"] = _absolute_name(own["query"], own["record"])
    return own


def _absolute_name(name: str, record: str) -> str:
    """Return a DNS name with a final dot, to which the host adds no search domain."""
    if record == "ptr" and is_address(name):
        name = ipaddress.ip_address(name).reverse_pointer
    return f"{name.removesuffix('.')}."


def _unsupported_members(introduction: Introduction) -> str | None:
    """Return a sentence on members of a spec without a word in pScheduler; None without such."""
    test, spec = introduction.test, introduction.spec
    needed = [
        f"without {member}" if value in (None, {}) else f"with {member} {json.dumps(value)}"
        for member, value in _ONLY.get(test, {}).items()
        if spec.get(member, value) != value
    ]
    if needed:
        return f"pScheduler measures {test} only {' and '.join(needed)}"
    if test == _DNS and spec.get("answers_min") == 0:
        return "pScheduler calls an answer without records a failure; set answers_min to 1 or more"
    return None


def booked_length(test: str, spec: Document) -> int:
    """Return how long pScheduler books for a spec, in microseconds."""
    return LANGUAGES[test].duration(spec)


async def delegation_answer(host: PschedulerHost, introduction: Introduction) -> IntroductionAnswer:
    """Return whether a host measures this alone, and by which tools of ours that it has, too.

    A task that its limits forbid is refused at once: no run of it would ever be taken.
    """
    found = delegated_test(introduction)
    if found is None:
        reason = _unsupported_members(introduction) or (
            f"pScheduler has no test like {introduction.test} with this spec whose results are "
            "read here"
        )
        return IntroductionAnswer(accepted=False, reason=reason)
    name, spec = found
    listed = await host.tools({"type": name, "spec": spec})
    own = [tool.name for tool in registry.tools_for(introduction.test)]
    wanted = introduction.tools or tuple(own)
    able = {each.name for each in listed if each.refusal is None}
    tools = tuple(each for each in wanted if able & set(names_there(each)) and each in own)
    if not tools:
        have = ", ".join(sorted(able)) or "none"
        reason = f"it has no tool that measures as one of {', '.join(wanted)} (it has: {have})"
        return IntroductionAnswer(accepted=False, reason=reason[:1000])
    proposal = {"test": {"type": name, "spec": spec}, "schedule": {}, "tools": list(tools)}
    if (why := await host.limits_refusal(proposal)) is not None:
        reason = f"its limits forbid the task: {why}"
        return IntroductionAnswer(accepted=False, reason=reason[:1000])
    return IntroductionAnswer(accepted=True, tools=tools)


def names_there(tool: str) -> tuple[str, ...]:
    """Return pScheduler's names of a tool of ours, of which a host has one."""
    return _CALLED_THERE.get(tool, (tool,))


def document_of(test: Document, row: BookedThere, tool: str) -> JsonObject:
    """Return a run of ours by a tool of ours as a task of the host, with our start and no slip."""
    return {
        "test": test,
        "schedule": {"start": instant_text(row.starts_at), "slip": "PT0S"},
        "tools": list(names_there(tool)),
        "reference": reference_of(row),
        "_key": row.key,
    }


def reference_of(row: BookedThere) -> JsonObject:
    """Return the reference by which a task is found again whose post got no answer."""
    return {"parley": {"booking": str(row.run_there)}}


def task_of(row: BookedThere) -> UUID | None:
    """Return the task of a booking there, if the host has told it."""
    written = row.data.get(_TASK)
    return None if written is None else UUID(str(written))


def data_of(task: UUID) -> JsonObject:
    """Return the data of a booking whose task is known."""
    return {_TASK: str(task)}


async def find_task(host: PschedulerHost, row: BookedThere) -> UUID:
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
    await host.end_task(await find_task(host, row), row.key)


async def run_of(host: PschedulerHost, row: BookedThere, wait_s: int = 0) -> JsonObject:
    """Return the only run of a task there; with ``wait_s`` once it is merged, or as it is then.

    It is empty while the host has not scheduled it yet.

    :raises NotFound: there is no such task.
    """
    task = await find_task(host, row)
    try:
        return await host.first_run(task, row.key, wait_s)
    except NotFound:
        await host.task(task, row.key)
        return {}
