"""Tests, tools, archivers and contexts, and what the server works out for clients without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from aiohttp import web

from node.pscheduler import archives, tools
from node.pscheduler.admission import language_of
from node.pscheduler.posted import contexts_of
from node.pscheduler.refusals import Refusal, invalid
from node.pscheduler.routing import Call, Route
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES

_WORD = (str, int, float)
"""The types of words of a command line; programs write numbers as they are."""

Enumerate = Callable[[str, str], Document]


def _answer_list(
    call: Call, kind: str, names: Collection[str], describe: Enumerate
) -> web.Response:
    if call.query.flag("expanded"):
        return call.json([describe(name, call.base) for name in names])
    return call.json([f"{call.base}/{kind}/{name}" for name in names])


def _answer_one(call: Call, kind: str, names: Collection[str], describe: Enumerate) -> web.Response:
    name = call.words["name"]
    if name not in names:
        raise Refusal(404, f'No {kind} "{name[:100]}" is available.')
    return call.json(describe(name, call.base))


def _test_description(name: str, base: str) -> Document:
    return {**LANGUAGES[name].enumeration(), "href": f"{base}/tests/{name}"}


def installed_tools(call: Call) -> Mapping[str, Any]:
    """Return the tools of this host that measure a test of pScheduler, by name."""
    capabilities = call.facade.node.capabilities
    return {
        name: tool
        for name, tool in sorted(capabilities.tools.items())
        if tools.measured_tests(tool) and capabilities.missing(tool) is None
    }


async def tests(call: Call) -> web.StreamResponse:
    """GET: all tests."""
    return _answer_list(call, "tests", LANGUAGES, _test_description)


async def test(call: Call) -> web.StreamResponse:
    """GET: one test."""
    return _answer_one(call, "test", LANGUAGES, _test_description)


async def spec(call: Call) -> web.StreamResponse:
    """GET: the spec that the words of a command line stand for."""
    language = language_of(call.words["name"])
    words = call.query.json("args")
    if not isinstance(words, list) or not all(isinstance(word, _WORD) for word in words):
        raise invalid("Argument 'args' must be an array of strings.")
    return call.json(language.parse([str(word) for word in words]))


async def spec_is_valid(call: Call) -> web.StreamResponse:
    """GET: whether a spec is valid, and if not, why."""
    language = language_of(call.words["name"])
    try:
        language.check(call.query.json("spec"))
    except Refusal as refusal:
        return call.json({"valid": False, "error": refusal.text})
    return call.json({"valid": True})


async def participants(call: Call) -> web.StreamResponse:
    """GET: the hosts that take part in a test with a spec, the leading one first."""
    language = language_of(call.words["name"])
    given = call.query.json("spec")
    language.check(given)
    return call.json(language.participants(given).document())


async def tools_of_test(call: Call) -> web.StreamResponse:
    """GET: the tools here that measure a test."""
    name = call.words["name"]
    language_of(name)
    able = [tool for tool, it in installed_tools(call).items() if name in tools.measured_tests(it)]
    return _answer_list(call, "tools", able, tools.tool_enumeration)


async def all_tools(call: Call) -> web.StreamResponse:
    """GET: all tools of this host."""
    return _answer_list(call, "tools", installed_tools(call), tools.tool_enumeration)


async def tool(call: Call) -> web.StreamResponse:
    """GET: one tool."""
    return _answer_one(call, "tool", installed_tools(call), tools.tool_enumeration)


async def archivers(call: Call) -> web.StreamResponse:
    """GET: all archivers."""
    return _answer_list(call, "archivers", tools.ARCHIVERS, tools.archiver_enumeration)


async def archiver(call: Call) -> web.StreamResponse:
    """GET: one archiver."""
    return _answer_one(call, "archiver", tools.ARCHIVERS, tools.archiver_enumeration)


async def contexts(call: Call) -> web.StreamResponse:
    """GET: all contexts."""
    return _answer_list(call, "contexts", tools.CONTEXTS, tools.context_enumeration)


async def context(call: Call) -> web.StreamResponse:
    """GET: one context."""
    return _answer_one(call, "context", tools.CONTEXTS, tools.context_enumeration)


async def archiver_data_is_valid(call: Call) -> web.StreamResponse:
    """GET: whether an archiver takes some data, and if not, why."""
    name = call.words["name"]
    if name not in tools.ARCHIVERS:
        raise Refusal(404, f'No archiver "{name[:100]}" is available.')
    try:
        archives.to_parley({"archiver": name, "data": call.query.json("data")})
    except Refusal as refusal:
        return call.json({"valid": False, "error": refusal.text})
    return call.json({"valid": True})


async def context_data_is_valid(call: Call) -> web.StreamResponse:
    """GET: whether a context takes some data, and if not, why."""
    name = call.words["name"]
    if name not in tools.CONTEXTS:
        raise Refusal(404, f'No context "{name[:100]}" is available.')
    try:
        contexts_of([[{"context": name, "data": call.query.json("data")}]])
    except Refusal as refusal:
        return call.json({"valid": False, "error": refusal.text})
    return call.json({"valid": True})


ROUTES = (
    Route("GET", "/tests", tests),
    Route("GET", "/tests/{name}", test),
    Route("GET", "/tests/{name}/spec", spec),
    Route("GET", "/tests/{name}/spec/is-valid", spec_is_valid),
    Route("GET", "/tests/{name}/participants", participants),
    Route("GET", "/tests/{name}/tools", tools_of_test),
    Route("GET", "/tools", all_tools),
    Route("GET", "/tools/{name}", tool),
    Route("GET", "/archivers", archivers),
    Route("GET", "/archivers/{name}", archiver),
    Route("GET", "/archivers/{name}/data-is-valid", archiver_data_is_valid),
    Route("GET", "/contexts", contexts),
    Route("GET", "/contexts/{name}", context),
    Route("GET", "/contexts/{name}/data-is-valid", context_data_is_valid),
)
