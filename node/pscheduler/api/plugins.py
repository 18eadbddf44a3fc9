"""Tests, tools, archivers and contexts, and what the server works out for clients without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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


def installed_tools(call: Call) -> Mapping[str, Any]:
    """Return the tools of this host that measure a test of pScheduler, by name."""
    capabilities = call.facade.node.capabilities
    return {
        name: tool
        for name, tool in sorted(capabilities.tools.items())
        if tools.measured_tests(tool) and capabilities.missing_program(tool) is None
    }


def _test_description(name: str, base: str) -> Document:
    return {**LANGUAGES[name].enumeration(), "href": f"{base}/tests/{name}"}


@dataclass(frozen=True)
class _Kind:
    """One kind of plugin: the names that are listed under its plural, and what describes one."""

    plural: str
    singular: str
    names: Callable[[Call], Collection[str]]
    describe: Callable[[str, str], Document]

    def answer_list(self, call: Call, names: Collection[str]) -> web.StreamResponse:
        """Return a list of these names: described if the query wants that, or else as URLs."""
        if call.query.flag("expanded"):
            return call.json([self.describe(name, call.base) for name in names])
        return call.json([f"{call.base}/{self.plural}/{name}" for name in names])

    def name(self, call: Call) -> str:
        """Return the name in the path.

        :raises Refusal: 404, there is none of this kind.
        """
        name = call.words["name"]
        if name not in self.names(call):
            raise Refusal(404, f'No {self.singular} "{name[:100]}" is available.')
        return name

    def routes(self) -> tuple[Route, Route]:
        """Return the routes of the list and of one; the audit calls them by plural and singular."""

        async def listed(call: Call) -> web.StreamResponse:
            return self.answer_list(call, self.names(call))

        async def one(call: Call) -> web.StreamResponse:
            return call.json(self.describe(self.name(call), call.base))

        listed.__name__, one.__name__ = self.plural, self.singular
        return Route("GET", f"/{self.plural}", listed), Route(
            "GET", f"/{self.plural}/{{name}}", one
        )


TESTS = _Kind("tests", "test", lambda _: LANGUAGES, _test_description)
TOOLS = _Kind("tools", "tool", installed_tools, tools.tool_enumeration)
ARCHIVERS = _Kind("archivers", "archiver", lambda _: tools.ARCHIVERS, tools.archiver_enumeration)
CONTEXTS = _Kind("contexts", "context", lambda _: tools.CONTEXTS, tools.context_enumeration)


async def spec(call: Call) -> web.StreamResponse:
    """The spec that the words of a command line stand for."""
    language = language_of(call.words["name"])
    words = call.query.json("args")
    if not isinstance(words, list) or not all(isinstance(word, _WORD) for word in words):
        raise invalid("Argument 'args' must be an array of strings.")
    return call.json(language.parse([str(word) for word in words]))


def _answer_validity(call: Call, check: Callable[[], object]) -> web.StreamResponse:
    """Answer whether a check refuses something, and if it does, why."""
    try:
        check()
    except Refusal as refusal:
        return call.json({"valid": False, "error": refusal.text})
    return call.json({"valid": True})


async def spec_is_valid(call: Call) -> web.StreamResponse:
    """Return whether a spec is valid, and if not, why."""
    language = language_of(call.words["name"])
    return _answer_validity(call, lambda: language.check(call.query.json("spec")))


async def participants(call: Call) -> web.StreamResponse:
    """The hosts that take part in a test with a spec, the leading one first."""
    language = language_of(call.words["name"])
    given = call.query.json("spec")
    language.check(given)
    return call.json(language.participants(given).document())


async def tools_of_test(call: Call) -> web.StreamResponse:
    """The tools here that measure a test."""
    name = call.words["name"]
    language_of(name)
    able = [tool for tool, it in installed_tools(call).items() if name in tools.measured_tests(it)]
    return TOOLS.answer_list(call, able)


async def all_tools(call: Call) -> web.StreamResponse:
    """All tools of this host."""
    return TOOLS.answer_list(call, installed_tools(call))


async def archiver_data_is_valid(call: Call) -> web.StreamResponse:
    """Return whether an archiver takes some data, and if not, why."""
    name = ARCHIVERS.name(call)
    return _answer_validity(
        call, lambda: archives.to_parley({"archiver": name, "data": call.query.json("data")})
    )


async def context_data_is_valid(call: Call) -> web.StreamResponse:
    """Return whether a context takes some data, and if not, why."""
    name = CONTEXTS.name(call)
    return _answer_validity(
        call, lambda: contexts_of([[{"context": name, "data": call.query.json("data")}]])
    )


ROUTES = (
    *TESTS.routes(),
    Route("GET", "/tests/{name}/spec", spec),
    Route("GET", "/tests/{name}/spec/is-valid", spec_is_valid),
    Route("GET", "/tests/{name}/participants", participants),
    Route("GET", "/tests/{name}/tools", tools_of_test),
    *TOOLS.routes(),
    *ARCHIVERS.routes(),
    Route("GET", "/archivers/{name}/data-is-valid", archiver_data_is_valid),
    *CONTEXTS.routes(),
    Route("GET", "/contexts/{name}/data-is-valid", context_data_is_valid),
)
