"""The state of this node in the words of pScheduler: services, runs, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from node.execution import path_mtu
from node.model.errors import HostError, ParleyError
from node.model.host_limits.rules import User
from node.model.leads import LeadState
from node.model.wire.campaigns import DEFAULT
from node.model.wire.fields import is_host
from node.model.wire.plans import Outcome, PlanRequest
from node.operation.readiness import leads_of
from node.pscheduler import answers, documents, times
from node.pscheduler.admission import refusal_of
from node.pscheduler.refusals import Refusal, invalid
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.tests.contract import Document
from node.store import archives, outbox, pscheduler

_SEARCH_S = 10.0
_LOOK_UP_S = 5.0
_SEARCHES = asyncio.Semaphore(2)
"""Taken by searches for a path's MTU: each of them sends packets."""

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "pending": ("scheduled", "set-aside"),
    "on-deck": (),
    "running": ("running",),
    "cleanup": ("merging",),
    "finished": ("finished",),
    "overdue": (),
    "missed": ("missed",),
    "failed": ("failed",),
    "preempted": ("displaced",),
    "nonstart": ("unplaced", "waiting", "gap"),
}
"""By state of a run in pScheduler's words, our states of which it consists."""


async def status(call: Call) -> web.StreamResponse:
    """The services of this node, with how long they have been there, and its latest runs."""
    node = call.facade.node
    now = node.clock.now()
    async with node.database.connection() as connection:
        finished, scheduled = await pscheduler.last_run_times(connection)
    itself = _service(now, now - node.started, None)
    fault = (await node.limits.for_people()).fault
    told: Document = {
        "time": times.format_zulu(now),
        "limits": {"ok": True} if fault is None else {"ok": False, "error": fault},
        "services": {
            "ticker": itself,
            "scheduler": await _scheduler(call, now),
            "runner": itself,
            "archiver": itself,
        },
        "runs": {
            "last-finished": None if finished is None else times.format_zulu(finished),
            "last-scheduled": None if scheduled is None else times.format_zulu(scheduled),
        },
    }
    return call.json(told)


async def _scheduler(call: Call, now: int) -> Document:
    """Return what is known of the lead: overdue since it was last heard of, if none plans."""
    leads = await leads_of(call.facade.node)
    planning = [lead for lead, state in leads if state is LeadState.PLANNING]
    if planning:
        lead = max(planning, key=lambda each: each.seen_at)
        return _service(lead.seen_at, now - (lead.started_at or now), None)
    seen = max((lead.seen_at for lead, _ in leads), default=call.facade.node.started)
    return _service(seen, 0, now - seen)


def _service(seen_at: int, uptime: int, overdue: int | None) -> Document:
    return {
        "time": times.format_zulu(seen_at),
        "uptime": times.format_duration(times.rounded_up(uptime)),
        "overdue": None if overdue is None else times.format_duration(times.rounded_up(overdue)),
    }


async def runs(call: Call) -> web.StreamResponse:
    """The number of runs in a state."""
    state = call.words["state"]
    if state not in _COUNTED:
        raise Refusal(404, f"There is no state '{state[:60]}'.")
    since, before = call.query.instant("start"), call.query.instant("end")
    now = call.facade.node.clock.now()
    async with call.facade.node.database.connection() as connection:
        counts = await pscheduler.count_by_state(connection, since, before)
        soon = await pscheduler.count_by_state(connection, now, now + documents.ON_DECK)
    near = min(soon.get("scheduled", 0), counts.get("scheduled", 0))
    number = sum(counts.get(each, 0) for each in _COUNTED[state])
    if state in {"pending", "on-deck"}:
        number = near if state == "on-deck" else number - near
    return answers.text_response(str(number), answers.HTML)


async def archiving(call: Call) -> web.StreamResponse:
    """The number of deliveries that wait."""
    async with call.facade.node.database.connection() as connection:
        rows = await archives.backlog(connection)
    return answers.text_response(str(sum(row["waiting"] for row in rows)), answers.HTML)


async def http_queue(call: Call) -> web.StreamResponse:
    """The number of messages to other nodes that wait."""
    async with call.facade.node.database.connection() as connection:
        waiting = await outbox.count_waiting(connection)
    return answers.text_response(str(waiting), answers.HTML)


async def pause(call: Call) -> web.StreamResponse:
    """Return whether this node is paused, which it cannot be as a whole."""
    return call.json({"is_paused": False})


async def mtu_safe(call: Call) -> web.StreamResponse:
    """Return whether packets of the size that this host sends get to another one."""
    dest = call.query.text("dest")
    if dest is None or not is_host(dest):
        raise invalid("Argument 'dest' must be the name or address of a host.")
    try:
        address = await call.facade.node.foreign_targets.probed_address(dest, _LOOK_UP_S)
    except HostError as error:
        raise Refusal(403, f"{error.detail}.") from error
    async with _SEARCHES:
        found = await path_mtu.find(address, call.facade.node.tool_runner, _SEARCH_S)
    if found.mtu is None:
        return call.json({"safe": False, "message": found.fault or "No answer"})
    if found.vanished is not None:
        message = f"packets of {found.vanished} bytes are lost without a report"
        return call.json({"safe": False, "message": message})
    return call.json({"safe": True, "message": f"{found.mtu} bytes"})


async def limits(call: Call) -> web.StreamResponse:
    """Return whether a task would be admitted, with what would become of it."""
    proposal = call.query.json("proposal")
    node = call.facade.node
    try:
        document = await call.facade.poster.propose(proposal, call.requester, call.host)
        user = User(
            call.requester.label, document.campaign or DEFAULT, call.requester.address, bound=True
        )
        posted = document.model_dump(mode="json", exclude_unset=True)
        plan = await node.preview.plan(PlanRequest.model_validate(posted), user)
    except ParleyError as error:
        return call.json({"passed": False, "diags": refusal_of(error).text})
    passed = plan.outcome is not Outcome.REFUSED
    return call.json({"passed": passed, "diags": f"{documents.NO_LIMITS}\n{plan.sentence}"})


async def debug(call: Call) -> web.StreamResponse:  # noqa: ARG001 - all handlers have one form
    """A sign that nothing is to be switched here."""
    return answers.text_response("This server logs what its PARLEY_LOG_LEVEL says.")


ROUTES = (
    Route("GET", "/status", status, Need.READ),
    Route("GET", "/stat/runs/{state}", runs, Need.READ),
    Route("GET", "/stat/archiving/backlog", archiving, Need.READ),
    Route("GET", "/stat/archiving/upcoming", archiving, Need.READ),
    Route("GET", "/stat/http-queue/backlog", http_queue, Need.READ),
    Route("GET", "/stat/http-queue/length", http_queue, Need.READ),
    Route("GET", "/stat/control/pause", pause),
    Route("GET", "/mtu-safe", mtu_safe, Need.WRITE),
    Route("GET", "/limits", limits, Need.WRITE),
    Route("GET", "/debug", debug),
)
