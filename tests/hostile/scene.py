"""Three real nodes, those who attack them, and what these want to see or to change.

Node a has the file of limits that the guide recommends to owners, b and c one for peers alone. No
node lets programs on its host read without a token. The peers are keys that all nodes have pinned;
they are no processes, and nobody answers for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from yarl import URL

from node.cli.lab.nodes import LabNode, NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.model import times
from node.model.host_limits.document import EVERYTHING
from node.trust.keys import NodeKey
from node.trust.signatures import new_nonce, sign
from tests.hostile.messages import ROLES, SIGNING, Actor, Message
from tests.hostile.record import Received, Record

PEERS = 10
"""Number of keys that the nodes know and that nobody honest has."""

HOSTILE_LABEL = "mallory"
VICTIM_LABEL = "victim-bob"
HONEST_LABEL = "honest-alice"
INNER = "10.77.0.50"
"""The private address on the card of the last peer."""
BOUND, UNBOUND = "door", "vault"
"""Secrets of the owner: one for the victim, bound to a host, and one for no user."""
_GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
CLIENTS = "127.7.0.0/16"
"""The network of clients of pScheduler that may post tasks at node a."""
_FACADE_PORT = 8443
_ANSWER_S = 60.0
_FULL = 16


@dataclass
class Site:
    """A node of the lab, the tokens that are valid there, and what a victim has there."""

    node: LabNode
    identity: str
    pid: int
    tokens: dict[Actor, str] = field(default_factory=dict)
    victim: str = ""
    honest: str = ""
    things: dict[str, str] = field(default_factory=dict)
    """Ids and names of things of the victim and the owner, by their nouns."""

    @property
    def log(self) -> Path:
        """Return the file of the node's log."""
        return Path(self.node.state).parent / f"{self.node.name}.log"


@dataclass
class Scene:
    """The nodes, the credentials, the marks that a user without rights may never read."""

    sites: list[Site]
    peers: list[NodeKey]
    removed: NodeKey
    participant: NodeKey
    """A peer that takes part in the tasks of owners."""
    session: aiohttp.ClientSession
    record: Record
    mark: str = field(default_factory=lambda: f"mark{secrets.token_hex(8)}")
    """A word in the victim's tasks."""
    hush: str = field(default_factory=lambda: f"hush{secrets.token_hex(8)}")
    """A part of every secret of the owner and of the victim."""
    seen: list[str] = field(default_factory=list)
    lab: Lab | None = None
    facade: str = ""
    """The address at which node a answers clients of pScheduler."""

    async def send(self, message: Message) -> Received | None:
        """Send a request and judge its answer; None if the connection ended without one."""
        site = self.sites[message.node]
        url = URL(site.node.url + message.target, encoded=True)
        began = time.monotonic()
        try:
            async with self.session.request(
                message.method,
                url,
                data=io.BytesIO(message.body) if message.body else None,
                headers={**self.credentials(message), **message.headers},
                allow_redirects=False,
            ) as response:
                body = await response.read()
                received = Received(
                    response.status, response.headers, body, time.monotonic() - began
                )
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            self.record.count(message.family, message.actor)
            self.record.lost[f"{message.family}: {type(error).__name__}"] += 1
            return None
        self.record.judge(message, received)
        if message.actor is Actor.RUN:
            self._look_for_mark(message, received)
        return received

    def _look_for_mark(self, message: Message, received: Received) -> None:
        """Note it if a user who may see their own tasks only learns of the victim's."""
        for word in (self.mark, VICTIM_LABEL):
            if word.encode() in received.body and word not in message.target:
                place = received.body.find(word.encode())
                around = received.body[max(0, place - 150) : place + 100].decode(errors="replace")
                self.record.fault("other user's task shown", f"{message}: …{around}…")

    def credentials(self, message: Message) -> dict[str, str]:
        """Return the headers that the actor of a message sends."""
        if message.forged is not None:
            return dict(message.forged())
        site = self.sites[message.node]
        if message.actor in SIGNING:
            removed = message.actor is Actor.REMOVED
            key = self.removed if removed else self.peers[message.signer % len(self.peers)]
            return {**signed(key, site, message), "Content-Type": "application/json"}
        token = site.tokens.get(message.actor)
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        return {**given, "Content-Type": "application/json"}

    async def ask(
        self, site: Site, method: str, path: str, document: Any = None, token: str | None = None
    ) -> Any:
        """Send an honest request, with the owner's token unless another is given.

        :raises AssertionError: it is refused.
        """
        async with self.session.request(
            method,
            site.node.url + path,
            data=None if document is None else orjson.dumps(document),
            headers={"Authorization": f"Bearer {token or site.node.token}"},
        ) as response:
            text = await response.read()
            assert response.ok, (method, path, response.status, text)
            return orjson.loads(text) if text else None


def signed(key: NodeKey, site: Site, message: Message, **changes: Any) -> dict[str, str]:
    """Return the headers by which a key signs a message for a node now, or with changes."""
    fields: dict[str, Any] = {
        "created": int(time.time()),
        "nonce": new_nonce(secrets.token_bytes),
        "to": site.identity,
        **changes,
    }
    return sign(key, message.method, site.node.url + message.target, message.body, **fields)


def strict_limits() -> str:
    """Return the file of limits that the guide recommends."""
    blocks = re.findall(r"```toml\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    [text] = [block for block in blocks if 'name = "exclusive runs"' in block]
    return str(text)


def _facade(listen: str) -> str:
    """Return where a node that listens there answers clients of pScheduler."""
    return f"{listen.rpartition(':')[0]}:{_FACADE_PORT}"


def _command(plan: NodePlan) -> list[str]:
    peers_only = f'{EVERYTHING}rank = "own"\n'  # no word of users: what holds for them by default
    limits = strict_limits() if plan.name == "a" else peers_only
    (plan.state / "limits.toml").write_text(limits)
    settings = ["PARLEY_HOLD_LIFE=PT8S", "PARLEY_LEASE=PT8S"]
    if plan.name == "a":
        settings += [f"PARLEY_PSCHEDULER_LISTEN={_facade(plan.listen)}"]
        settings += [f"PARLEY_PSCHEDULER_ALLOW={CLIENTS}", "PARLEY_PSCHEDULER_ARCHIVES=syslog"]
    return ["env", *settings, *node_command(plan)]


@contextlib.asynccontextmanager
async def scene(record: Record) -> AsyncIterator[Scene]:
    """Start the nodes, give everybody their credentials, and yield the scene."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=5)
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with (
        Lab(3, command=_command) as lab,
        aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session,
    ):
        sites = []
        for node in lab.nodes:
            async with session.get(f"{node.url}/v1/nodes/self") as response:
                identity = (await response.json())["identity"]
            sites.append(Site(node, identity, lab.pid(node.name)))
        keys = [NodeKey.generate() for _ in range(PEERS)]
        removed, participant = NodeKey.generate(), NodeKey.generate()
        found = Scene(sites, keys, removed, participant, session, record, lab=lab)
        found.facade = f"https://{_facade(URL(sites[0].node.url).authority)}"
        await asyncio.gather(*(_furnish(found, site) for site in sites))
        for site, other in zip(sites, [*sites[1:], sites[0]], strict=True):
            site.tokens[Actor.FOREIGN] = other.node.token
        record.secrets |= _secrets(found)
        yield found


async def _furnish(scene: Scene, site: Site) -> None:
    """Make the tokens of a node, pin the peers, and create what is attacked there."""
    for actor, role in ROLES.items():
        site.tokens[actor] = await token(scene, site, str(role), HOSTILE_LABEL)
    site.honest = await token(scene, site, "run", HONEST_LABEL)
    site.victim = await token(scene, site, "run", VICTIM_LABEL)
    site.tokens[Actor.EXPIRED] = await token(scene, site, "own", HOSTILE_LABEL, "PT1S")
    site.tokens[Actor.REVOKED] = await token(scene, site, "own", HOSTILE_LABEL)
    listed = await scene.ask(site, "GET", "/v1/tokens")
    await scene.ask(site, "DELETE", f"/v1/tokens/{listed['items'][0]['id']}")
    site.tokens[Actor.GARBLED] = site.node.token[:-1] + "é"
    for number, key in enumerate((*scene.peers, scene.participant)):
        await scene.ask(site, "POST", "/v1/nodes", {"identity": key.identity})
        await scene.send(greeting(scene, number, key, site))
    pinned = await scene.ask(site, "POST", "/v1/nodes", {"identity": scene.removed.identity})
    await scene.ask(site, "DELETE", f"/v1/nodes/{pinned['name']}")
    await _things(scene, site)


def card_of(key: NodeKey, number: int) -> dict[str, Any]:
    """Return the card of a peer, which nobody reaches; ``number`` is its place among them."""
    address = INNER if number == PEERS - 1 else f"192.0.2.{number + 1}"
    return {
        "identity": key.identity,
        "name": f"mallory{number}",
        "url": None,
        "address": address,
    }


def greeting(scene: Scene, number: int, key: NodeKey, site: Site) -> Message:
    """Return the message by which a peer tells a node its card."""
    body = {
        "card": card_of(key, number),
        "now": int(time.time() * times.SECOND),
        "shortfall": 0,
        "busy_until": 0,
        "wait": 0,
    }
    message = Message(
        "peers",
        "its card",
        "POST",
        "/v1/participant/work",
        Actor.PEER,
        orjson.dumps(body),
        headers={"Content-Type": "application/json"},
        node=scene.sites.index(site),
        forged=lambda: signed(key, site, message),
    )
    return message


async def token(
    scene: Scene, site: Site, role: str, label: str, expires_in: str | None = None
) -> str:
    """Return a new token of a node."""
    document = {"label": label, "role": role, "expires_in": expires_in}
    return str((await scene.ask(site, "POST", "/v1/tokens", document))["token"])


async def _things(scene: Scene, site: Site) -> None:
    """Create what the hostile want to see or to change, and note its ids and names."""
    task = {
        "test": {"type": "idle", "spec": {"duration": "PT2S", "class": "background"}},
        "schedule": {"start": "PT2H", "repeat": "PT1H", "max_runs": 4},
        "reference": {"of": scene.mark},
    }
    made = await scene.ask(site, "POST", "/v1/tasks", task, site.victim)
    await scene.ask(site, "GET", f"/v1/tasks/{made['id']}?wait=20")
    runs = await scene.ask(site, "GET", f"/v1/tasks/{made['id']}/runs")
    site.things |= {"task": made["id"], "run": runs["items"][0]["id"]}
    await _hide(scene, site)
    await scene.ask(site, "POST", "/v1/campaigns", {"name": "owners"})
    pool = {"name": "owners", "match": {"name": {"=": "a"}}}
    await scene.ask(site, "POST", "/v1/pools", pool)
    reserved = {
        "kind": "demo",
        "name": "far",
        "duration": "PT1H",
        "schedule": {"start": "2098-01-01T00:00:00Z"},
    }
    reservation = await scene.ask(site, "POST", "/v1/reservations", reserved)
    site.things |= {"reservation": reservation["id"], "name": "owners", "node": "b"}
    tokens = await scene.ask(site, "GET", "/v1/tokens")
    site.things["token"] = next(
        each["id"] for each in tokens["items"] if each["label"] == HONEST_LABEL
    )


async def _hide(scene: Scene, site: Site) -> None:
    """Store secrets of the owner, and a task of the victim with one of its own."""
    bound = {"name": BOUND, "hosts": ["api.example"], "users": [VICTIM_LABEL]}
    for secret in (bound, {"name": UNBOUND}):
        document = {**secret, "value": f"Bearer {scene.hush}"}
        await scene.ask(site, "POST", "/v1/secrets", document)
    headers = {"X": scene.hush, "Y": {"secret": BOUND}}
    task = {
        "test": {"type": "http", "spec": {"url": "http://api.example/", "headers": headers}},
        "schedule": {"start": "2098-01-01T00:00:00Z"},
        "reference": {"of": scene.mark},
    }
    made = await scene.ask(site, "POST", "/v1/tasks", task, site.victim)
    site.things["hushed"] = made["id"]


def _secrets(scene: Scene) -> set[bytes]:
    """Return what may be in no answer and no log: tokens, keys, passwords, and other secrets."""
    found = {scene.hush.encode()}
    for site in scene.sites:
        given = [*site.tokens.values(), site.node.token, site.victim, site.honest]
        found |= {each.encode() for each in given if each.isascii()}
        for path in Path(site.node.state).glob("*.pem"):
            lines = path.read_bytes().splitlines()
            found |= {line for line in lines if len(line) >= _FULL and b"-----" not in line}
        password = URL(site.node.dsn).password
        found |= {password.encode()} if password else set()
    return found


def is_alive(site: Site) -> bool:
    """Return whether a node's process is there still."""
    return Path(f"/proc/{site.pid}").exists()


def memory_mb(site: Site) -> float:
    """Return the resident memory of a node's process in MB."""
    text = Path(f"/proc/{site.pid}/status").read_text()
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kilobytes) / 1024


def fitting(message: Message, **changes: Any) -> Message:
    """Return a message with changes."""
    return replace(message, **changes)


def dumped(document: Any) -> bytes:
    """Return a document as JSON that may hold what no honest JSON holds: NaN, lone surrogates."""
    return json.dumps(document).encode()
