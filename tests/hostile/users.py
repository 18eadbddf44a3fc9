"""Attempts of users with a token: others' tasks, lists, keys of idempotency, bombs."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from typing import Any

import orjson

from tests.hostile.documents import FAR, IDLE
from tests.hostile.messages import Actor, Message
from tests.hostile.odd import as_word
from tests.hostile.scene import VICTIM_LABEL, Scene, dumped, fitting

FAMILY = "users"
_BOMB = "join('',[@,@])"
_DOUBLINGS = (5, 25, 200)
_INNER = (
    "http://127.0.0.1:1/",
    "http://[::1]:8642/v1/tokens",
    "http://localhost:8642/",
    "http://0x7f000001/",
    "http://a@b:c@d/",
    "gopher://127.0.0.1/",
    "file:///etc/passwd",
    "http://127.0.0.1:1\r\nX: y/",
)


def curious(scene: Scene) -> Iterator[Message]:
    """Yield what a user with the role run asks in order to learn of the victim's tasks."""
    for node, site in enumerate(scene.sites):
        task, run = site.things["task"], site.things["run"]
        hidden = {403, 404}
        for path in (
            f"/v1/tasks/{task}",
            f"/v1/tasks/{task}?wait=1",
            f"/v1/tasks/{task}/runs",
            f"/v1/tasks/{task}/explain",
            f"/v1/tasks/{task}/seats",
            f"/v1/tasks/{task.upper()}",
            f"/v1/tasks/{uuid.UUID(task).hex}",
            f"/v1/tasks/{{{task}}}".replace("{", "%7B").replace("}", "%7D"),
            f"/v1/runs/{run}",
            f"/v1/runs/{run}/explain",
            f"/v1/runs/{run}/intervals",
            f"/v1/runs/{run}/bundle",
            f"/v1/runs?requester={VICTIM_LABEL}",
            f"/v1/tasks?requester={VICTIM_LABEL}",
            f"/v1/schedule?requester={VICTIM_LABEL}",
            f"/v1/reservations/{site.things['reservation']}",
            "/v1/archivings",
            "/v1/archivings/backlog",
            "/metrics",
            "/v1/tokens",
            "/v1/audit",
        ):
            yield _of_run("another's task", "GET", path, node=node, allowed=hidden)
        for method, path, document in (
            ("PATCH", f"/v1/tasks/{task}", {"priority": 5}),
            ("PATCH", f"/v1/tasks/{task}?dry_run=true", {"priority": 5}),
            ("DELETE", f"/v1/tasks/{task}", None),
            ("POST", f"/v1/tasks/{task}/pause", None),
            ("POST", f"/v1/tasks/{task}/resume", None),
            ("POST", f"/v1/tasks/{task}/release", None),
            ("DELETE", f"/v1/runs/{run}", None),
        ):
            body = b"" if document is None else dumped(document)
            yield _of_run("another's task", method, path, body, node=node, allowed=hidden)
        yield from _listings(node, task, run)
        for inner in ("169.254.169.254", "10.77.0.99", "127.9.9.9"):
            test = {"type": "http", "spec": {"url": f"http://{inner}/", "text": "AKIA"}}
            body = dumped({"test": test})
            yield _of_run("an inner target", "POST", "/v1/tasks", body, node, {403})
        body = dumped({"test": {"type": "dns", "spec": {"name": "inner.example"}}})
        yield _of_run("the host's resolvers", "POST", "/v1/tasks", body, node, {403})
        body = dumped({"test": IDLE, "priority": 2**31 - 1})
        yield _of_run("any priority", "POST", "/v1/tasks", body, node, {403})
        follower = {"test": IDLE, "after": {"task": task}}
        for path in ("/v1/tasks", "/v1/plans"):
            refused = {403, 404, 422}
            yield _of_run("follows another's", "POST", path, dumped(follower), node, refused)


def _listings(node: int, task: str, run: str) -> Iterator[Message]:
    """Yield lists in which the victim's tasks must not be; what they say is searched for them."""
    for path in (
        "/v1/tasks",
        "/v1/tasks?limit=500",
        f"/v1/tasks?prefix={task[:8]}",
        "/v1/runs?limit=500",
        f"/v1/runs?task={task}",
        f"/v1/runs?prefix={run[:8]}",
        "/v1/schedule",
        "/v1/meshes",
        "/v1/reservations",
        "/v1/usage",
        "/v1/campaigns",
        "/v1/pools",
        "/v1/nodes",
        "/v1/limits",
        "/v1/shares",
    ):
        yield _of_run("lists", "GET", path, node=node, allowed={200, 403})
    exclusive = {"type": "idle", "spec": {"duration": "PT50M", "class": "exclusive"}}
    for start in ("PT2H", "PT3H"):
        wanted = {"test": exclusive, "schedule": {"start": start, "slip": "PT1M"}, "priority": 9}
        plan = dumped({**wanted, "runs": 3})
        yield _of_run("a preview beside others", "POST", "/v1/plans", plan, node, {200, 403, 409})


def _of_run(
    hostile: str,
    method: str,
    path: str,
    body: bytes = b"",
    node: int = 0,
    allowed: Any = None,
) -> Message:
    return Message(FAMILY, hostile, method, path, Actor.RUN, body, node=node, allowed=allowed)


def cursors(rng: random.Random, number: int) -> Iterator[Message]:
    """Yield cursors, filters, and headers that no list has given."""
    lists = (
        "tasks",
        "runs",
        "schedule",
        "reservations",
        "campaigns",
        "pools",
        "archives",
        "tokens",
    )
    odd = (
        "0_0",
        f"{2**63}_{uuid.uuid4()}",
        f"-1_{uuid.uuid4()}",
        f"1_{uuid.uuid4()}_2",
        f"٣_{uuid.uuid4()}",
        "_",
        "' OR 1=1",
        "%",
        "\x00",
        "../..",
        "9" * 4000,
        "zzzz",
        "Z" * 600,
        "\ud800",
    )
    for _ in range(number):
        name = rng.choice(
            ("cursor", "limit", "from", "to", "prefix", "order", "state", "wait", "match")
        )
        word = rng.choice((*odd, '{"=":{}}', '{"name":{"in":' + "[" * 50 + "]" * 50 + "}}"))
        path = f"/v1/{rng.choice((*lists, 'nodes'))}?{name}={as_word(word)}"
        yield Message(FAMILY, f"{name} {word[:20]!r}", "GET", path, rng.choice(_READERS))


_READERS = (Actor.READ, Actor.RUN, Actor.OPERATE, Actor.OWN)


def bombs() -> Iterator[Message]:
    """Yield transforms and archives that would cost much, or reach what only the host reaches."""
    for count in _DOUBLINGS:
        doubled = "@"
        for _ in range(count):
            doubled = _BOMB.replace("@", doubled) if len(doubled) < 300 else f"{_BOMB}|{doubled}"
        for name, program in (
            ("jmespath", doubled[:4000]),
            ("jmespath", "*" * 500),
            ("jmespath", "[" * 1000),
            ("jq", "def f: f; f"),
            ("jq", "[range(1e9)]"),
            ("jq", '"a" * 1e9'),
            ("jq", 'env, input_filename, ("/etc/passwd" | input)'),
            ("jq", "until(false; .)"),
        ):
            archive = {"archiver": "http", "spec": {"url": _INNER[0]}}
            document = {**archive, "name": "bomb", "transform": {name: program}}
            yield Message(
                FAMILY, f"{name} bomb", "POST", "/v1/archives", Actor.OPERATE, dumped(document)
            )
            task = {"test": IDLE, "schedule": {"start": FAR}}
            posted = dumped({**task, "archives": [{**archive, "transform": {name: program}}]})
            yield Message(FAMILY, f"{name} bomb", "POST", "/v1/tasks", Actor.OPERATE, posted)
            yield Message(
                FAMILY,
                "archives of its own",
                "POST",
                "/v1/tasks",
                Actor.RUN,
                posted,
                allowed={403, 422},
            )
        yield Message(FAMILY, "the bomb's end", "DELETE", "/v1/archives/bomb", Actor.OPERATE)
    for url in _INNER:
        document = {"name": "inner", "archiver": "http", "spec": {"url": url}}
        for actor in (Actor.OPERATE, Actor.RUN, Actor.READ):
            for path in ("/v1/archives", "/v1/archives/inner/test"):
                body = dumped(document) if path == "/v1/archives" else b""
                yield Message(FAMILY, f"an archive at {url[:30]}", "POST", path, actor, body)
        yield Message(FAMILY, "the archive's end", "DELETE", "/v1/archives/inner", Actor.OPERATE)


async def keys(scene: Scene, number: int) -> None:
    """Send requests that share keys of idempotency: one key of a user is one task."""
    for count in range(number):
        key = f"hostile-{uuid.uuid4()}"
        document = {"test": IDLE, "schedule": {"start": FAR}, "reference": count}
        message = Message(
            FAMILY,
            "one key, many times",
            "POST",
            "/v1/tasks",
            Actor.RUN,
            dumped(document),
            {"Idempotency-Key": key},
            node=count % 3,
        )
        answers = await asyncio.gather(*(scene.send(message) for _ in range(10)))
        made = {
            orjson.loads(each.body)["id"]
            for each in answers
            if each is not None and each.status in {200, 201}
        }
        if len(made) > 1:
            scene.record.fault("one key made several tasks", f"{key}: {made}")
        other = fitting(
            message, body=dumped({**document, "priority": -3}), hostile="same key, other"
        )
        received = await scene.send(fitting(other, allowed={200, 409, 422}))
        theirs = await scene.send(fitting(message, actor=Actor.STRANGER, allowed={401}))
        assert theirs is None or theirs.status == 401 or received is not None
        for task in made:
            path = f"/v1/tasks/{task}"
            await asyncio.gather(
                *(
                    scene.send(
                        Message(FAMILY, "ends its own", "DELETE", path, Actor.RUN, node=count % 3)
                    )
                    for _ in range(3)
                )
            )


def messages(scene: Scene, rng: random.Random, number: int) -> Iterator[Message]:
    """Yield all single requests by hand."""
    every = [*curious(scene), *bombs()]
    rng.shuffle(every)
    yield from every
    yield from cursors(rng, max(0, number - len(every)))
