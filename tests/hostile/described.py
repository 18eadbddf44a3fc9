"""Requests that are made from the description of the API, ``/v1/openapi.json``.

For each operation: sound documents, documents of wrong types, faulty ones drawn by schemathesis,
and sound ones in which one field or parameter is odd, huge, or of another type; sent by all whom
the nodes know or do not know, with the statuses that the table of permissions demands.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator
from typing import Any

from node.api.app import ROUTES
from node.api.routing import Route
from node.model.permissions import PERMISSIONS, Access
from tests.hostile.documents import of_peers, of_users
from tests.hostile.messages import Actor, Message, permitted
from tests.hostile.odd import LARGE, SMALL, Json, as_word, brief, placed, pointers
from tests.hostile.scene import Scene, Site, dumped

USERS = tuple(actor for actor in Actor if actor not in {Actor.PEER, Actor.REMOVED})
_ABLE = (Actor.OWN, Actor.OPERATE, Actor.RUN, Actor.READ)
_PEER_PATH = "/v1/participant/"


def matrix(scene: Scene, rng: random.Random) -> Iterator[Message]:
    """Yield every route as every caller, for things that exist and for others."""
    for number, site in enumerate(scene.sites):
        documents = of_users(site) | _full(of_peers(scene, site))
        for route in PERMISSIONS:
            for actor in Actor:
                allowed = permitted(actor, route)
                if allowed is None and PERMISSIONS[route] is not Access.OPEN and number:
                    continue
                for real in (True, False) if allowed is not None else (False,):
                    yield _message("roles", scene, number, route, actor, documents, rng, real=real)


def _full(documents: dict[str, Json]) -> dict[str, Json]:
    """Return documents by route of the table."""
    split = (name.split(" ", 1) for name in documents)
    names = [f"{method} {_PEER_PATH}{path}" for method, path in split]
    return dict(zip(names, documents.values(), strict=True))


def _message(
    family: str,
    scene: Scene,
    number: int,
    route: str,
    actor: Actor,
    documents: dict[str, Json],
    rng: random.Random,
    *,
    real: bool,
) -> Message:
    method, path = route.split(" ", 1)
    site = scene.sites[number]
    target = path.format_map(_Names(site, path, real=real))
    if route == "GET /v1/events" and permitted(actor, route) is None:
        target += "?x=1"  # a stream does not end
    return Message(
        family,
        "of an existing thing" if real else "of nothing",
        method,
        target,
        actor,
        dumped(documents[route]) if route in documents else b"",
        node=number,
        allowed=permitted(actor, route),
        signer=rng.randrange(9),
    )


class _Names(dict[str, str]):
    """The words of a path: those of existing things, or of none."""

    def __init__(self, site: Site, path: str, *, real: bool) -> None:
        super().__init__()
        self._site, self._real, self._path = site, real, path

    def __missing__(self, key: str) -> str:
        if not self._real:
            return str(uuid.uuid4()) if key == "id" else "nobody"
        things = self._site.things
        if key == "name":
            return things["node"] if "/nodes/" in self._path else things["name"]
        for noun in ("reservation", "token", "run"):
            if f"/{noun}s/" in self._path:
                return things[noun]
        return things["task"]


def described(
    scene: Scene, description: Json, tests: list[Json], rng: random.Random, number: int
) -> Iterator[Message]:
    """Yield a number of requests, each with one odd part, as all callers in turn."""
    places = [*_fields(scene, description, tests), *_parameters(description)]
    for _ in range(number):
        route, pointer, document = rng.choice(places)
        method = route.split(" ", 1)[0]
        value = rng.choice(LARGE) if rng.random() < _LARGE_PART else rng.choice(SMALL)
        node = rng.choice((0, 0, 0, 1, 2))
        actor = rng.choice(USERS) if rng.random() < _ANYBODY_PART else _able(route, rng)
        target = _odd_target(scene.sites[node], route, pointer, value, rng)
        body = b"" if document is None else dumped(placed(document, pointer, value))
        yield Message(
            "described",
            f"{pointer or 'a body'} is {brief(value)}",
            method,
            target,
            actor,
            body,
            node=node,
            # No route has a brace in a parameter of its path.
            allowed=(permitted(actor, route) or _ANSWERS) | ({404} if "{" in pointer else set()),
        )


_LARGE_PART = 0.04
_ANYBODY_PART = 0.25
_ANSWERS = frozenset({200, 201, 202, 204, 400, 403, 404, 405, 409, 410, 413, 414, 422, 429})


def _able(route: str, rng: random.Random) -> Actor:
    able = [actor for actor in _ABLE if permitted(actor, route) is None]
    return rng.choice(able) if able else Actor.STRANGER


def _fields(
    scene: Scene, description: Json, tests: list[Json]
) -> Iterator[tuple[str, str, Json | None]]:
    """Yield each field of each document, with its route and a sound document."""
    documents = of_users(scene.sites[0])
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for pointer in ("", *pointers(schema, description)):
                yield route, pointer, documents.get(route, {})
    for test in tests:
        document = {**documents["POST /v1/tasks"], "test": {"type": test["name"], "spec": {}}}
        for pointer in pointers(test["spec"], test["spec"], "/test/spec"):
            yield "POST /v1/tasks", pointer, document


def _parameters(description: Json) -> Iterator[tuple[str, str, None]]:
    """Yield each parameter of each operation, with its route; ``?`` marks those of the query."""
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            for each in operation.get("parameters", []):
                mark = {"path": "{", "query": "?", "header": "#"}[each["in"]]
                yield f"{method.upper()} {path}", mark + each["name"], None


def _odd_target(site: Site, route: str, pointer: str, value: Json, rng: random.Random) -> str:
    """Return the path of a route, odd in a parameter if the pointer names one.

    What somebody may remove or pause is none of the things that others need.
    """
    method, path = route.split(" ", 1)
    harmless = method != "DELETE" and not path.endswith("/pause")
    names: dict[str, str] = _Names(site, path, real=harmless)
    if pointer.startswith("{"):
        names[pointer.removeprefix("{")] = as_word(value)[:4000]
    target = path.format_map(names)
    if pointer.startswith("?"):
        target += f"?{pointer[1:]}={as_word(value)[:4000]}"
        if rng.random() < _LARGE_PART:
            target += f"&{pointer[1:]}=1"
    elif path == "/v1/events":
        target += "?x=1"
    return target


def odd_messages_of_peers(scene: Scene, rng: random.Random, number: int) -> Iterator[Message]:
    """Yield a number of signed requests, each with one odd field."""
    routes = {f"{route.method} {route.path}": route for route in ROUTES}
    places = []
    for name, document in _full(of_peers(scene, scene.sites[0])).items():
        schema = _schema(routes[name])
        places += [(name, pointer, document) for pointer in ("", *pointers(schema, schema))]
    for _ in range(number):
        name, pointer, document = rng.choice(places)
        method, path = name.split(" ", 1)
        value = rng.choice(LARGE) if rng.random() < _LARGE_PART else rng.choice(SMALL)
        made = placed(document, pointer, value)
        task = made.get("task", "x") if isinstance(made, dict) else "x"
        target = re.sub(r"\{id\}", as_word(task)[:2000], path)
        actor = Actor.PEER if rng.random() < _PINNED_PART else Actor.REMOVED
        yield Message(
            "peers",
            f"{pointer or 'a body'} is {brief(value)}",
            method,
            target,
            actor,
            dumped(made),
            node=rng.choice((0, 0, 1, 2)),
            allowed=_ANSWERS if actor is Actor.PEER else {401} | _NOT_ROUTED,
            signer=rng.randrange(9),
        )


_PINNED_PART = 0.95
_NOT_ROUTED = {404}
"""The status of a path with a brace, which no route has."""


def _schema(route: Route) -> Any:
    assert route.body is not None, route
    return route.body.model_json_schema()
