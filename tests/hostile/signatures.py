"""Signed requests that are forged, replayed, altered, stale, or garbled: none is served."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from node.trust.keys import NodeKey
from node.trust.signatures import content_digest
from tests.hostile.documents import introduction
from tests.hostile.messages import Actor, Message
from tests.hostile.scene import Scene, Site, dumped, fitting, signed

FAMILY = "signatures"
HEADERS = ("Parley-To", "Content-Digest", "Signature-Input", "Signature")
REFUSED = frozenset({400, 401})
_TARGETS = (
    ("GET", "/v1/participant/limits"),
    ("POST", "/v1/participant/tasks/confirmations"),
    ("POST", "/v1/participant/comparisons"),
    ("GET", "/v1/participant/exchanges/00000000-0000-4000-8000-000000000000"),
)
_GARBAGE = (
    "",
    "x",
    "parley=()",
    "parley=:AAAA:",
    "=" * 3000,
    'parley=("@method");keyid="',
    "parley=:" + "A" * 86 + "==:",
    '"',
    "\\",
    "parley=\t",
    "%00",
    "sig1=();",
    "sha-256=::",
    "sha-512=:AAAA:",
    "ed25519:",
    "ed25519:" + "_" * 43,
)
Headers = dict[str, str]


def forgeries(scene: Scene, rng: random.Random, number: int) -> Iterator[Message]:
    """Yield a number of requests with a wrong signature each."""
    stranger = NodeKey.generate()
    for _ in range(number):
        node = rng.randrange(len(scene.sites))
        message = _sound(scene, rng, node)
        what, forged = _forgery(scene, scene.sites[node], message, stranger, rng)
        yield fitting(message, hostile=what, forged=forged, allowed=REFUSED)


def _sound(scene: Scene, rng: random.Random, node: int) -> Message:
    """Return a request that would be served if a peer signed it."""
    method, target = rng.choice(_TARGETS)
    body = dumped({"tasks": []}) if target.endswith("confirmations") else b""
    if rng.random() < 0.3:
        document = introduction(scene, scene.sites[node])
        method, target = "PUT", f"/v1/participant/tasks/{document['task']}"
        body = dumped(document)
    return Message(FAMILY, "", method, target, Actor.PEER, body, node=node)


def _forgery(
    scene: Scene, site: Site, message: Message, stranger: NodeKey, rng: random.Random
) -> tuple[str, Callable[[], Headers]]:
    """Return what is wrong with the signature of a message, and what makes its headers."""
    key = scene.peers[0]
    now = int(time.time())

    def sign(by: NodeKey = key, of: Message = message, **changes: Any) -> Callable[[], Headers]:
        return lambda: signed(by, site, of, **changes)

    other_node = rng.choice([each for each in scene.sites if each is not site])
    another = fitting(message, body=message.body + b" ")
    cases: list[tuple[str, Callable[[], Headers]]] = [
        ("nobody's key", sign(stranger)),
        ("a removed node's key", sign(scene.removed)),
        ("meant for another node", sign(to=other_node.identity)),
        ("meant for its sender", sign(to=key.identity)),
        ("stale", sign(created=now - rng.choice((75, 300, 86_400, 5 * 10**8)))),
        ("of the future", sign(created=now + rng.choice((45, 300, 86_400, 5 * 10**8)))),
        ("of another body", sign(of=another)),
        ("of another path", sign(of=fitting(message, target=message.target + "/x"))),
        ("of another query", sign(of=fitting(message, target=message.target + "?x=1"))),
        ("of another method", sign(of=fitting(message, method="PATCH"))),
        ("the node's own key named", lambda: _renamed(signed(key, site, message), site)),
        (
            "a digest that fits, unsigned",
            lambda: _other_digest(signed(key, site, another), message),
        ),
    ]
    cases += [(f"garbled {name}", _garbled(sign(), name, rng)) for name in HEADERS for _ in (1, 2)]
    return rng.choice(cases)


def _renamed(headers: Headers, site: Site) -> Headers:
    """Return the headers with the node itself as the signer."""
    words = headers["Signature-Input"].split('keyid="', 1)
    rest = words[1].split('"', 1)[1]
    return {**headers, "Signature-Input": f'{words[0]}keyid="{site.identity}"{rest}'}


def _other_digest(headers: Headers, message: Message) -> Headers:
    return {**headers, "Content-Digest": content_digest(message.body)}


def _garbled(make: Callable[[], Headers], name: str, rng: random.Random) -> Callable[[], Headers]:
    """Return what makes headers of which one is missing, cut off, changed, or garbage."""
    way, place, garbage = rng.randrange(6), rng.random(), rng.choice(_GARBAGE)
    letter = rng.choice("AZaz09_+/=:;\"'(), ~")

    def made() -> Headers:
        headers = make()
        value = headers.pop(name)
        at = int(place * len(value))
        changed = letter if value[at] != letter else "!"
        ways = (
            None,
            value[:at],
            value[:at] + changed + value[at + 1 :],
            garbage,
            f"{value}, {value}",
            value.upper() if value.upper() != value else value.lower(),
        )
        given = ways[way]
        return headers if given is None else {**headers, name: given}

    return made


async def replays(scene: Scene, rng: random.Random, number: int) -> None:
    """Send signed requests twice, one after the other and ten at once: each is served once."""
    for count in range(number):
        node = count % len(scene.sites)
        message = _sound(scene, rng, node)
        headers = signed(scene.peers[0], scene.sites[node], message)
        once = fitting(message, hostile="the first of several", forged=lambda h=headers: h)
        times_sent = rng.choice((2, 3, 10))
        answers = await asyncio.gather(*(scene.send(once) for _ in range(times_sent)))
        served = [each for each in answers if each is not None and each.status != 401]
        if len(served) > 1:
            scene.record.fault("replay served", f"{len(served)} times: {once}")


async def late_replays(scene: Scene, pause: Callable[[float], Any]) -> None:
    """Send a request again when its signature is about to be stale, and after that."""
    message = Message(FAMILY, "sent again later", *_TARGETS[0], Actor.PEER)
    headers = signed(scene.peers[1], scene.sites[0], message)
    first = fitting(message, forged=lambda: headers, allowed={200})
    await scene.send(first)
    for _ in range(4):
        await pause(25)
        await scene.send(fitting(first, allowed=REFUSED))
