"""The name, level and clock of this server."""

from __future__ import annotations

from aiohttp import web

from node.model.nodekinds import GREETING
from node.operation.status import clock_of
from node.pscheduler import times
from node.pscheduler.facade import API_LEVEL
from node.pscheduler.routing import Call, Route
from node.runtime.version import program_version


async def alive(call: Call) -> web.StreamResponse:
    """A sentence that names server and host; clients take it for a sign of life."""
    sentence = f"{GREETING} {program_version()} server on {call.facade.name}."
    return call.json(sentence)


async def api_level(call: Call) -> web.StreamResponse:
    """The level of the API."""
    return call.json(API_LEVEL)


async def hostname(call: Call) -> web.StreamResponse:
    """A name that no other node has."""
    return call.json(call.facade.name)


async def horizon(call: Call) -> web.StreamResponse:
    """Return how far ahead runs are booked."""
    return call.json(times.format_duration(call.facade.node.settings.horizon))


async def clock(call: Call) -> web.StreamResponse:
    """The time, and whether the clock is synchronised."""
    state = clock_of(call.facade.node)
    told: dict[str, object] = {
        "time": times.format_precisely(state.now),
        "synchronized": bool(state.synchronised),
    }
    if state.synchronised:
        told["source"] = "kernel"
        if state.error_bound_ms is not None:
            told["reference"] = f"the kernel tells an error of at most {state.error_bound_ms:g} ms"
    return call.json(told)


ROUTES = (
    Route("GET", "/", alive),
    Route("GET", "/api", api_level),
    Route("GET", "/hostname", hostname),
    Route("GET", "/schedule-horizon", horizon),
    Route("GET", "/clock", clock),
)
