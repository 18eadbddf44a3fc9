"""Targets that no peer may have measured, in all the forms that an address can be written in."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import orjson

from node.model.classes import SchedulingClass
from node.model.targets import IpAddress, literal, reached_addresses
from node.plugins import registry
from node.runtime.settings import Settings
from tests.hostile.documents import introduction
from tests.hostile.messages import Actor, Message
from tests.hostile.scene import INNER, Scene, Site, dumped
from tests.support.target_spellings import IN_URLS, spellings

FAMILY = "targets"
PUBLIC = "198.51.100.7"
_TESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rtt": ("dest", {"count": 3}),
    "tcp": ("dest", {"port": 22}),
    "tls": ("dest", {}),
    "trace": ("dest", {}),
    "mtu": ("dest", {}),
    "ntp": ("dest", {}),
    "dns": ("server", {"name": "x.example"}),
    "http": ("url", {}),
}
"""By test, the field of the target, and what else the spec needs."""
_BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("http", {"url": "http://192.168.7.7/", "text": "items"}),
    ("tcp", {"dest": "192.168.7.7", "port": 22, "banner": True}),
    ("http", {"url": "http://10.0.0.1/", "headers": {"Metadata-Flavor": "Google"}}),
)
"""Specs that would tell a peer what only this host may read."""

_INWARD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dns", {"name": "inner.example"}),
    ("dns", {"name": "7.7.168.192.in-addr.arpa", "type": "PTR"}),
    ("trace", {"dest": PUBLIC, "names": True}),
    ("interface", {}),
)
"""Specs whose results tell a peer what only this host sees."""
_TOOL_PORT: int = Settings.model_fields["port_first"].default
_PORTS = (22, 25, 443, 6379, 8642)
"""Ports of a private address that a peer has on its card, none of them for tools."""


def measured(scene: Scene, site: Site, test: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the sound introduction of a task of one node, with the tool and the time it takes."""
    found = registry.tests()[test]
    parsed = found.spec_model.model_validate(spec)
    tool = next(each for each in registry.tools_for(test) if each.can(parsed) is None)
    return introduction(
        scene,
        site,
        test=test,
        spec=spec,
        tool=tool.name,
        scheduling_class=str(SchedulingClass(found.scheduling_class(parsed))),
        duration=tool.duration(parsed),
    )


def _reached(host: str) -> tuple[IpAddress, ...]:
    """Return the addresses that a host is written as: those of the lab's nodes may be measured."""
    address = literal(host.partition("%")[0])
    return () if address is None else reached_addresses(address)


def _spec(test: str, host: str) -> dict[str, Any]:
    field, others = _TESTS[test]
    bracketed = f"[{host}]" if ":" in host else host
    return {field: f"http://{bracketed}/" if field == "url" else host, **others}


async def run(scene: Scene, rng: random.Random, number: int) -> None:
    """Ask node a, as several leads, for measurements of targets that it must refuse."""
    site = scene.sites[0]
    for test in _TESTS:
        control = measured(scene, site, test, _spec(test, PUBLIC))
        if not await _accepted(scene, test, "a public address", control):
            scene.record.fault("sound task refused", f"{test} of {PUBLIC}")
    for test, spec in _INWARD:
        refusal = await _answer(scene, test, str(spec), measured(scene, site, test, spec))
        if refusal is not None and "would tell another node" not in str(refusal["reason"]):
            scene.record.fault("told of the host", f"{test} {spec}: {refusal}")
    known = measured(scene, site, "tcp", {"dest": INNER, "port": _TOOL_PORT})
    if not await _accepted(scene, "tcp", "a private address of a peer", known):
        scene.record.fault("sound task refused", f"tcp of {INNER} port {_TOOL_PORT}")
    cases = list(_cases(scene, site))
    rng.shuffle(cases)
    for test, host, document in cases[:number]:
        if await _accepted(scene, test, host, document):
            scene.record.fault("forbidden target accepted", f"{test} of {host!r}")


def _cases(scene: Scene, site: Site) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield test, target, and introduction of what is to be refused."""
    sound = {test: measured(scene, site, test, _spec(test, PUBLIC)) for test in _TESTS}
    lab = {site.node.address for site in scene.sites}
    forms = [host for host in spellings() if not lab & {str(each) for each in _reached(host)}]
    for host in [*forms, site.node.address, f"{site.node.address}."]:
        for test, document in sound.items():
            yield test, host, {**document, "spec": {**document["spec"], **_spec(test, host)}}
    for host in IN_URLS:
        document = sound["http"]
        yield "http", host, {**document, "spec": {**document["spec"], "url": f"http://{host}/"}}
    for test, spec in _BODIES:
        yield test, str(spec), {**sound[test], "spec": spec}
    for port in _PORTS:
        for test, spec in (
            ("tcp", {"dest": INNER, "port": port}),
            ("http", {"url": f"http://{INNER}:{port}/"}),
        ):
            yield test, str(spec), {**sound[test], "spec": {**sound[test]["spec"], **spec}}
    yield from _invented(scene, site)


def _invented(scene: Scene, site: Site) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield tests that send to a participant that nobody knows, at whatever port."""
    mine = introduction(scene, site)["participants"][0]
    for address in (PUBLIC, "10.77.0.99", "192.168.7.7", "fd00::99"):
        other = {**mine, "node": scene.removed.identity, "name": "x", "address": address}
        for test, spec in (
            ("simplestream", {"text": "CONFIG SET dir /var/www", "port": 6379}),
            ("throughput", {"duration": "PT5S"}),
            ("latency", {"count": 10}),
        ):
            aimed = {"source": site.node.name, "dest": "x", **spec}
            document = measured(scene, site, test, aimed)
            document |= {"participants": [mine, other], "participant": 0}
            yield test, address, document | {"addresses": {site.node.name: mine["address"]}}


async def _accepted(scene: Scene, test: str, host: str, document: dict[str, Any]) -> bool:
    """Return whether node a would measure this for another node."""
    answer = await _answer(scene, test, host, document)
    return answer is not None and bool(answer["accepted"])


async def _answer(
    scene: Scene, test: str, host: str, document: dict[str, Any]
) -> dict[str, Any] | None:
    """Return what node a answers to this task of another node; None if it answers nothing."""
    message = Message(
        FAMILY,
        f"{test} of {host!r}"[:80],
        "POST",
        "/v1/participant/considerations",
        Actor.PEER,
        dumped({**document, "task": str(uuid.uuid4())}),
        allowed={200, 400, 422},
        signer=hash(host) % 9,
    )
    received = await scene.send(message)
    if received is None or received.status != 200:
        return None
    answer: dict[str, Any] = orjson.loads(received.body)
    return answer
