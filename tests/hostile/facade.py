"""The façade of pScheduler: a client, known by its address alone, wants more than its owner gives.

Node a lets one network of clients post tasks, and no archive be named but the log of the host.
Whatever else a client asks for has to be refused, in words: an archive, a line of another program
in the log, a rank, the way to inner hosts, the tasks of others, a place for participants that
nobody knows.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from node.trust.tls import unchecked_options
from tests.hostile.messages import Actor
from tests.hostile.record import Received
from tests.hostile.scene import INNER, Scene

FAMILY = "facade"
ALLOWED, OTHER, STRANGER = "127.7.7.7", "127.7.8.8", "127.9.9.9"
"""Two addresses in the network that may post tasks, and one outside of it."""
TASKS_MAX = 100
"""Number of open tasks that the guide's limits let a client have."""
ROOT = "/pscheduler"
Json = Any

_IDLE: Json = {"schema": 1, "type": "idle", "spec": {"schema": 1, "duration": "PT1S"}}
_FAR = {"start": "2098-06-01T00:00:00Z", "slip": "PT1M"}
_INNER = (
    "10.77.0.66",
    "10.77.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "127.9.9.8",
    "::ffff:10.0.0.1",
)
_ODD = ("2852039166", "0xa9fea9fe", "[::ffff:10.0.0.1]", "169.254.43518", "-f", "a b", "\x00")
_REST: Mapping[str, Json] = {
    "http, with the header that opens metadata": {
        "archiver": "http",
        "data": {
            "schema": 2,
            "_url": "http://169.254.169.254/latest/api/token",
            "op": "put",
            "_headers": {"X-aws-ec2-metadata-token-ttl-seconds": "21600"},
        },
    },
    "http to an inner host": {"archiver": "http", "data": {"_url": f"http://{INNER}:8080/"}},
    "http to the node itself": {"archiver": "http", "data": {"_url": "http://127.0.0.1:8642/"}},
    "bytes to an inner port": {
        "archiver": "tcp",
        "data": {"schema": 1, "host": INNER, "port": 6379},
        "transform": {"script": '"CONFIG SET dir /var/www"', "output-raw": True},
    },
    "datagrams to an inner port": {"archiver": "udp", "data": {"host": INNER, "port": 514}},
    "a database at loopback": {
        "archiver": "postgresql",
        "data": {"_dsn": "dbname=x host=127.0.0.1 user=postgres", "table": "x", "column": "y"},
    },
    "a broker": {"archiver": "rabbitmq", "data": {"_url": f"amqp://{INNER}/", "exchange": "x"}},
    "a cluster": {"archiver": "kafka", "data": {"topic": "x", "server": f"{INNER}:9092"}},
    "the log, as sshd": {"archiver": "syslog", "data": {"ident": "sshd", "facility": "user"}},
    "the log, as one of its own": {"archiver": "syslog", "data": {"ident": "parley: x\nsshd"}},
    "the log, for logins": {"archiver": "syslog", "data": {"ident": "parley", "facility": "auth"}},
    "the log, for jobs": {"archiver": "syslog", "data": {"facility": "cron"}},
    "the log, for logins, too": {"archiver": "syslog", "data": {"facility": "authpriv"}},
}
"""Archives that no client may name."""
_NOT_PASSED = b'"passed":false'
"""The answer to the question whether a task would be taken, if it would not."""
_FORWARDED = (
    {"X-Forwarded-For": ALLOWED},
    {"X-Real-IP": ALLOWED},
    {"Forwarded": f"for={ALLOWED}"},
    {"X-Forwarded-For": f"{ALLOWED}, {STRANGER}", "X-Forwarded-Proto": "https"},
    {"Client-IP": ALLOWED, "True-Client-IP": ALLOWED, "CF-Connecting-IP": ALLOWED},
    {"Host": ALLOWED},
    {"Authorization": "Basic cm9vdDpyb290"},
    {"X-Original-URL": f"{ROOT}/", "X-Rewrite-URL": f"{ROOT}/"},
    {"X-HTTP-Method-Override": "GET"},
)


@dataclass(frozen=True)
class Attack:
    """A request that has to be refused, and what it means if it is not."""

    check: str
    what: str
    method: str
    path: str
    body: bytes = b""
    caller: str = ALLOWED
    headers: Mapping[str, str] = field(default_factory=dict)
    refused: bool = True
    """False if it may be answered, as long as it tells nothing of others."""


def task(test: Json = None, **changes: Json) -> bytes:
    """Return a task as a client posts it, of a second in a far future unless changed."""
    document = {"schema": 1, "test": test or _IDLE, "schedule": _FAR, **changes}
    return orjson.dumps(document)


def attacks(victim: str) -> Iterator[Attack]:
    """Yield everything that has to be refused; ``victim`` is another client's task."""
    yield from _archives()
    yield from _targets()
    yield from _of_strangers(victim)
    yield from _others_tasks(victim)
    yield from _participants()


def _posted(check: str, what: str, test: Json = None, **changes: Json) -> Iterator[Attack]:
    """Yield a task that is posted, and the question whether it would be taken."""
    body = task(test, **changes)
    yield Attack(check, what, "POST", "/tasks", body)
    proposal = urlencode({"proposal": body.decode()})
    yield Attack(check, f"limits: {what}", "GET", f"/limits?{proposal}")


def _archives() -> Iterator[Attack]:
    for what, archive in _REST.items():
        for schema in (1, 3):
            yield from _posted("a client names an archive", what, schema=schema, archives=[archive])


def _targets() -> Iterator[Attack]:
    check = "a client measures an inner host"
    for host in (*_INNER, *_ODD):
        yield Attack(check, f"mtu-safe {host}", "GET", f"/mtu-safe?{urlencode({'dest': host})}")
        url = f"http://{f'[{host}]' if ':' in host else host}/"
        tests: tuple[tuple[str, Json], ...] = (
            ("rtt", {"schema": 1, "dest": host}),
            ("trace", {"schema": 1, "dest": host}),
            ("mtu", {"schema": 1, "dest": host}),
            ("http", {"schema": 1, "url": url}),
            ("dns", {"schema": 1, "query": "a.example", "record": "a", "nameserver": host}),
        )
        for name, spec in tests:
            yield from _posted(check, f"{name} to {host}", {**_IDLE, "type": name, "spec": spec})


def _of_strangers(victim: str) -> Iterator[Attack]:
    """Yield what is forbidden to an address that the owner does not name, whatever it says."""
    for headers in ({}, *_FORWARDED):
        for method, path, body in (
            ("POST", "/tasks", task()),
            ("GET", "/tasks?expanded=true", b""),
            ("GET", f"/tasks/{victim}", b""),
            ("DELETE", f"/tasks/{victim}", b""),
            ("GET", "/schedule", b""),
            ("GET", "/status", b""),
            ("GET", f"/limits?{urlencode({'proposal': task().decode()})}", b""),
            ("GET", "/mtu-safe?dest=192.0.2.9", b""),
        ):
            what = f"{method} {path[:30]} with {dict(headers)}"
            check = "a stranger is served"
            yield Attack(check, what, method, path, body, STRANGER, headers)


def _others_tasks(victim: str) -> Iterator[Attack]:
    check = "a client reaches another one's task"
    for key in ("", "?key=", "?key=k", "?key=null", "?key=%00"):
        yield Attack(check, key, "DELETE", f"/tasks/{victim}{key}", caller=OTHER)
        path = f"/tasks/{victim}/runs/first{key}"
        yield Attack(check, key, "GET", path, caller=OTHER)
        yield Attack(check, key, "PUT", path, b'{"part-data-full": []}', OTHER)
    own = f"/tasks/{victim}"
    listing = ("/tasks?expanded=true", "/schedule", "/monitor")
    for path in (*listing, own, f"{own}?detail=true", f"{own}/cli", f"{own}/runs"):
        yield Attack(check, path, "GET", path, caller=OTHER, refused=False)


def _participants() -> Iterator[Attack]:
    """Yield tasks with participants that nobody knows: posted, and led from outside.

    A lead from outside may have this node listen for it, and not send to anybody.
    """
    check = "a participant that nobody knows"
    for host in ("10.77.0.66", "10.77.0.1", "169.254.169.254", "203.0.113.77", "unknown.example"):
        for name, tool in (("throughput", "iperf3"), ("simplestream", "simplestreamer")):
            listens: Json = {"schema": 1, "source": host, "dest": "a"}
            sends: Json = {"schema": 1, "source": "a", "dest": host}
            for spec in (listens, sends):
                what = f"{name} posted with {host}"
                yield from _posted(check, what, {**_IDLE, "type": name, "spec": spec})
            for place, names in ((0, ["a", host]), (2, ["b", host, "a"]), (-1, [host, "a"])):
                document = {
                    "test": {"type": name, "spec": sends},
                    "tool": tool,
                    "schedule": {},
                    "participants": names,
                    "_key": "k",
                }
                path = f"/tasks/{uuid.uuid4()}?participant={place}"
                what = f"{name} to {host} as participant {place}"
                yield Attack(check, what, "POST", path, orjson.dumps(document))


@contextlib.asynccontextmanager
async def _callers(scene: Scene) -> AsyncIterator[Mapping[str, aiohttp.ClientSession]]:
    """Yield sessions by the address from which they call."""
    async with contextlib.AsyncExitStack() as stack:
        sessions = {}
        for address in (ALLOWED, OTHER, STRANGER):
            connector = aiohttp.TCPConnector(
                ssl=unchecked_options()["ssl"], local_addr=(address, 0), force_close=True
            )
            session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=60)
            )
            sessions[address] = await stack.enter_async_context(session)
        yield sessions


async def run(scene: Scene, rng: random.Random, number: int) -> None:
    """Send so many of the attacks, some of each kind, then more tasks than a client may have."""
    async with _callers(scene) as callers:
        posted = Attack("", "", "POST", "/tasks", task(reference={"of": scene.mark}))
        victim = _id_of(await send(scene, callers, posted))
        if victim is None:
            scene.record.fault("a client is not served", "its sound task is refused")
            victim = str(uuid.uuid4())
        every = list(attacks(victim))
        rng.shuffle(every)
        kinds: dict[str, list[Attack]] = {}
        for attack in every:
            kinds.setdefault(attack.check, []).append(attack)
        share = max(2, number // len(kinds))
        for some in kinds.values():
            for attack in some[:share]:
                judge(scene, attack, await send(scene, callers, attack))
        await _rank(scene, callers)
        await _many(scene, callers, min(number // 4, 3 * TASKS_MAX // 2))


async def send(
    scene: Scene, callers: Mapping[str, aiohttp.ClientSession], attack: Attack
) -> Received | None:
    """Send a request to the façade; None if there was no answer."""
    scene.record.count(FAMILY, Actor.STRANGER)
    url = URL(f"{scene.facade}{ROOT}{attack.path}", encoded=True)
    began = time.monotonic()
    try:
        async with callers[attack.caller].request(
            attack.method,
            url,
            data=attack.body or None,
            headers={"Content-Type": "application/json", **attack.headers},
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            seconds = time.monotonic() - began
            return Received(answer.status, answer.headers, body, seconds)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        scene.record.lost[f"{FAMILY}: {type(error).__name__}"] += 1
        return None


def judge(scene: Scene, attack: Attack, received: Received | None) -> None:
    """Note what is wrong about an answer of the façade, whose errors are lines of text."""
    if received is None:
        return
    record, status, body = scene.record, received.status, received.body
    record.statuses[status] += 1
    said = f"{attack.what} from {attack.caller} → {status} {body[:200].decode(errors='replace')}"
    if status >= 500 and status != 501:
        record.fault("5xx", said)
    if b"Traceback" in body or b'File "/' in body:
        record.fault("traceback in an answer", said)
    if attack.refused and status < 400 and _NOT_PASSED not in body.replace(b" ", b""):
        record.fault(attack.check, said)
    if status >= 400 and not body.strip():
        record.fault("a refusal without words", said)
    if attack.caller != ALLOWED and scene.mark.encode() in body:
        record.fault("a client reaches another one's task", said)
    record.look_for_secrets(said, [body])


def _id_of(received: Received | None) -> str | None:
    """Return the id of a task that was posted."""
    if received is None or received.status != 200:
        return None
    with contextlib.suppress(ValueError):
        return str(uuid.UUID(str(json.loads(received.body)).rpartition("/")[2]))
    return None


async def _rank(scene: Scene, callers: Mapping[str, aiohttp.ClientSession]) -> None:
    """Post tasks of a high priority: they are refused, or have none above 0."""
    for priority in (1, 2**31 - 1):
        attack = Attack("", f"priority {priority}", "POST", "/tasks", task(priority=priority))
        made = _id_of(await send(scene, callers, attack))
        if made is None:
            continue
        found = (await scene.ask(scene.sites[0], "GET", f"/v1/tasks/{made}"))["priority"]
        if found > 0:
            scene.record.fault("a client has a rank", f"{priority} asked for, {found} given")


async def _many(scene: Scene, callers: Mapping[str, aiohttp.ClientSession], number: int) -> None:
    """Post more tasks than a client may have, and documents that are too large."""
    large = Attack(
        "a large document of a client is taken",
        "900 kB",
        "POST",
        "/tasks",
        task(reference="x" * 900_000),
    )
    judge(scene, large, await send(scene, callers, large))
    taken = 0
    for count in range(number):
        attack = Attack("", f"task {count}", "POST", "/tasks", task(), OTHER)
        received = await send(scene, callers, attack)
        taken += _id_of(received) is not None
    if taken > TASKS_MAX:
        scene.record.fault("a client has any number of tasks", f"{taken} of {number}")
