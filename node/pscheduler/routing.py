"""Routes of the façade: a table of methods and paths, matched without regard to doubled slashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from node.pscheduler import answers
from node.pscheduler.facade import Facade
from node.pscheduler.parameters import Parameters
from node.pscheduler.refusals import Refusal
from node.pscheduler.requesters import Need, Requester

ROOT = "pscheduler"
"""The first word of every path."""


@dataclass(frozen=True)
class Call:
    """One request: its caller, the words of its path, its parameters, and its body."""

    facade: Facade
    request: web.Request
    requester: Requester
    words: Mapping[str, str]
    query: Parameters
    body: bytes

    @property
    def base(self) -> str:
        """The URL of this façade as the caller wrote it, without a final slash."""
        return f"https://{self.host}/{ROOT}"

    @property
    def host(self) -> str:
        """The host, with its port if it is not 443, as the caller wrote it."""
        return self.request.headers.get("Host") or self.facade.host

    def json(self, value: Any) -> web.Response:
        """Answer with JSON, in the way that the caller wants it written."""
        return answers.json_response(value, pretty=self.query.flag("pretty"))


class Handler(Protocol):
    """Answers a request; its name is the verb in the audit."""

    __name__: str

    async def __call__(self, call: Call) -> web.StreamResponse:
        """Answer.

        :raises Refusal: it cannot be done.
        """
        ...


@dataclass(frozen=True)
class Route:
    """A method and a path, such as ``/tasks/{task}/runs/{run}``, below ``/pscheduler``."""

    method: str
    path: str
    handler: Handler
    need: Need = Need.NONE

    @property
    def changes(self) -> bool:
        """Return whether it is to change something."""
        return self.method != "GET"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the path; those in braces match any word."""
        return tuple(word for word in self.path.split("/") if word)


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """The first of two routes that match is taken."""
        self._by_length: dict[int, list[Route]] = {}
        for route in routes:
            self._by_length.setdefault(len(route.words), []).append(route)

    def find(self, method: str, path: Sequence[str]) -> tuple[Route, dict[str, str]]:
        """Return the route for these words of a path, and the words that stand for braces.

        :raises Refusal: there is none, or none for this method.
        """
        others: list[str] = []
        for route in self._by_length.get(len(path), ()):
            words = _path_parameters(route.words, path)
            if words is None:
                continue
            if route.method == method:
                return route, words
            others.append(route.method)
        if others:
            allowed = ", ".join(sorted(set(others)))
            raise Refusal(405, f"Method not allowed; allowed here: {allowed}")
        raise Refusal(404, "There is no such resource on this server.")


def _path_parameters(pattern: Sequence[str], path: Sequence[str]) -> dict[str, str] | None:
    words: dict[str, str] = {}
    for expected, word in zip(pattern, path, strict=True):
        if expected.startswith("{"):
            words[expected[1:-1]] = word
        elif expected != word:
            return None
    return words
