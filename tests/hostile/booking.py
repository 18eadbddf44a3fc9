"""Attempts of known nodes at more than they may have: time, others' runs, ids, and addresses."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from node.model import times
from node.model.ids import TaskId, exchange_id, repeated_exchange_id, run_id
from tests.hostile.documents import hold_item, introduction, now
from tests.hostile.messages import Actor, Message
from tests.hostile.record import Received
from tests.hostile.scene import Scene, Site, dumped

FAMILY = "booking"
LENGTH = 3 * times.SECOND
_EPOCHS = 20
_HOURS = 20
_EXCLUSIVE = {"scheduling_class": "exclusive"}
_COLLUDING_TASKS = 50
_ATTEMPTS = 12


@dataclass(frozen=True)
class Lead:
    """A peer that leads tasks at a node; ``number`` says which key signs."""

    scene: Scene
    number: int
    node: int = 0
    said: list[str] = field(default_factory=list)
    """The answers to its holds."""

    @property
    def site(self) -> Site:
        """Return the node at which it books."""
        return self.scene.sites[self.node]

    async def say(self, method: str, path: str, document: Any, hostile: str) -> Received | None:
        """Send a signed request."""
        message = Message(
            FAMILY,
            hostile,
            method,
            f"/v1/participant/{path}",
            Actor.PEER,
            b"" if document is None else dumped(document),
            node=self.node,
            allowed={200, 204, 403, 404, 409, 413, 422, 429},
            signer=self.number,
        )
        return await self.scene.send(message)

    async def introduce(self, hostile: str, **changes: Any) -> dict[str, Any] | None:
        """Introduce an exclusive task of three seconds; None if it is refused."""
        spec = {"duration": "PT3S", "class": "exclusive", "participants": [self.site.node.name]}
        start = now() // times.SECOND * times.SECOND + times.HOUR
        schedule = {"start": times.format_instant(start), "repeat": "PT1H", "slip": "PT5M"}
        fields: dict[str, Any] = {"spec": spec, "schedule": schedule, **_EXCLUSIVE, **changes}
        document = introduction(self.scene, self.site, **fields)
        received = await self.say("PUT", f"tasks/{document['task']}", document, hostile)
        answer = _answer(received)
        return document if answer.get("accepted") else None

    async def hold(self, item: dict[str, Any], hostile: str) -> list[str]:
        """Ask for runs; return the ids of those that are held."""
        received = await self.say("POST", "holds", {"items": [item]}, hostile)
        replies = _answer(received).get("items", [{}])
        self.said.append(str(replies)[:500])
        return list((replies[0].get("answer") or {}).get("held", []))


def _answer(received: Received | None) -> dict[str, Any]:
    if received is None or received.status != 200:
        return {}
    found = orjson.loads(received.body)
    return found if isinstance(found, dict) else {}


def sound_hold(task: str, start: int, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a hold whose ids follow from the task, of one run of three seconds."""
    item: dict[str, Any] = hold_item(task, start, lease_epoch=epoch)
    item["exchange"] = str(exchange_id(TaskId(uuid.UUID(task)), epoch))
    [run] = item["hold"]["runs"]
    run["run"] = str(run_id(TaskId(uuid.UUID(task)), start, 1))
    item["hold"] |= changes
    return item


async def run(scene: Scene, rng: random.Random, rounds: int) -> None:
    """Try all of it at nodes a and b."""
    for number in range(rounds):
        lead = Lead(scene, number % len(scene.peers), number % 2)
        await _more_than_introduced(lead, rng)
        await _one_slot_often(lead)
        await _ids_of_others(lead, Lead(scene, (number + 1) % len(scene.peers), number % 2), rng)
        await _things_of_others(lead)
        await _addresses(lead)
    await _collude(scene)


def _slot(document: dict[str, Any], hours: int = 0) -> int:
    """Return a nominal start of a task that repeats each hour."""
    return times.parse_instant(document["schedule"]["start"]) + hours * times.HOUR


async def _more_than_introduced(lead: Lead, rng: random.Random) -> None:
    """Hold longer, later, more, of another class or priority than what was introduced (C1)."""
    task = await lead.introduce("a small task")
    if task is None:
        return
    name, start = task["task"], _slot(task)
    sound = sound_hold(name, start)
    day = {**sound["hold"]["runs"][0], "ends_at": start + times.DAY}
    odd = {**sound["hold"]["runs"][0], "slot": start + 1}
    many: list[dict[str, Any]] = [
        {**day, "run": str(run_id(TaskId(uuid.UUID(name)), start, attempt)), "attempt": attempt}
        for attempt in range(1, 500)
    ]
    cases: dict[str, dict[str, Any]] = {
        "a day for three seconds": {"runs": [day]},
        "any priority": {"priority": 2**31 - 1},
        "ten years of life": {"life": 3650 * times.DAY},
        "a slot that is none": {"runs": [odd]},
        "500 attempts": {"runs": many},
        "another tool": {"tool": "iperf3"},
    }
    for epoch, (what, changes) in enumerate(cases.items(), 2):
        held = await lead.hold(sound_hold(name, start, epoch, **changes), what)
        if held and what != "another tool":
            lead.scene.record.fault("more booked than introduced", f"{what}: {len(held)} runs")
    held = await lead.hold(sound_hold(name, start + times.HOUR, _EPOCHS), "what was introduced")
    if not held and lead.node:  # node a has quotas, which others may have used up
        lead.scene.record.fault("sound hold refused", lead.said[-1])
    await _end(lead, name)


async def _one_slot_often(lead: Lead) -> None:
    """Hold a slot again and again, at other times of its window: in one hold, and in many."""
    task = await lead.introduce("a task whose slot is wanted often")
    if task is None:
        return
    start = _slot(task)
    runs = [_attempt(task, start, attempt) for attempt in range(1, _ATTEMPTS + 1)]
    same = {"generation": task["task"]}  # what another one booked before is forgotten here
    together = sound_hold(task["task"], start, 1, runs=runs, **same)
    held = await lead.hold(together, "all attempts in one hold")
    for epoch, run in enumerate(reversed(runs), 2):
        again = sound_hold(task["task"], start, epoch, runs=[run], **same)
        held += await lead.hold(again, "attempts counting down")
    if len(held) > 1:
        lead.scene.record.fault("a slot booked often", f"{task['task']}: {len(held)} runs")
    await _end(lead, task["task"])


def _attempt(task: dict[str, Any], slot: int, attempt: int) -> dict[str, Any]:
    """Return the run of an attempt, which ends as the one before it begins."""
    [run] = sound_hold(task["task"], slot)["hold"]["runs"]
    starts_at = slot + (_ATTEMPTS - attempt) * LENGTH
    name = str(run_id(TaskId(uuid.UUID(task["task"])), slot, attempt))
    changes = {"run": name, "attempt": attempt, "starts_at": starts_at}
    return {**run, **changes, "ends_at": starts_at + LENGTH}


async def _ids_of_others(lead: Lead, other: Lead, rng: random.Random) -> None:
    """Use up the exchanges and runs of another lead's task; that one must still be booked (H5)."""
    victim = await other.introduce("the victim's task")
    mine = await lead.introduce("a task to book in its name")
    if victim is None or mine is None:
        return
    name = uuid.UUID(victim["task"])
    start = _slot(victim)
    for epoch in range(1, _EPOCHS):
        first = exchange_id(TaskId(name), epoch)
        for exchange in (first, repeated_exchange_id(first)):
            release = {"task": rng.choice((mine["task"], victim["task"])), "lease_epoch": epoch}
            ruling = {"exchange": str(exchange), "release": release}
            await lead.say("POST", "rulings", {"items": [ruling]}, "another's exchange released")
        item = sound_hold(victim["task"], start, epoch)
        item["hold"]["task"] = rng.choice((mine["task"], victim["task"]))
        if await lead.hold(item, "another's exchange held"):
            lead.scene.record.fault("another's exchange held", str(item)[:300])
    held = await other.hold(sound_hold(victim["task"], start, epoch=3), "the victim books")
    if not held and other.node:  # node a has quotas, which others may have used up
        lead.scene.record.fault("a peer blocked another one", f"{victim['task']}: {other.said[-1]}")
    for each, task in ((other, victim), (lead, mine)):
        await _end(each, task["task"])


async def _things_of_others(lead: Lead) -> None:
    """Read, end, and report on what others lead."""
    things = lead.site.things
    run_end = {"run": things["run"], "state": "cancelled", "reason": "because I say so"}
    task_end = {"task": things["task"], "state": "cancelled", "reason": "because I say so"}
    part: dict[str, Any] = {"run": things["run"], "result": {}, "reason": None, "started_at": now()}
    part |= {"finished_at": now(), "command": None}
    for path, document in (
        ("runs/ends", run_end),
        ("tasks/ends", task_end),
        ("parts", part),
        ("tasks/confirmations", {"tasks": [things["task"]]}),
        ("tasks/freed", {"tasks": [things["task"]]}),
    ):
        await lead.say("POST", path, document, "about another's task")
    for path in (f"runs/{things['run']}", f"exchanges/{things['run']}"):
        received = await lead.say("GET", path, None, "another's run")
        if received is not None and things["task"].encode() in received.body:
            lead.scene.record.fault("a peer learned of another's task", f"GET {path}")
    own = introduction(lead.scene, lead.site, task=things["task"])
    if _answer(await lead.say("PUT", f"tasks/{things['task']}", own, "in another's name")).get(
        "accepted"
    ):
        lead.scene.record.fault("another's task introduced", things["task"])


async def _addresses(lead: Lead) -> None:
    """Name addresses for nodes that have others (H4)."""
    site = lead.site
    card = introduction(lead.scene, site)["participants"][0]
    for address in ("127.9.9.9", "169.254.169.254", "-oX", "203.0.113.9", "localhost", "b", "\x00"):
        for node in (site.identity, lead.scene.sites[2].identity, lead.scene.removed.identity):
            other = {**card, "node": node, "name": "other", "address": address}
            document = introduction(
                lead.scene,
                site,
                test="latency",
                spec={"source": site.node.name, "dest": "other"},
                tool="stamp",
                scheduling_class="normal",
                duration=11_700_000,
                participants=[card, other],
                addresses={"other": address, site.node.name: address},
            )
            received = await lead.say("POST", "considerations", document, "an invented address")
            # A name is looked up before a run, and then judged by its address.
            named = address in {"203.0.113.9", "localhost", "b"}
            if _answer(received).get("accepted") and not named:
                lead.scene.record.fault("invented address accepted", f"{address} of {node[:20]}")


async def _collude(scene: Scene) -> None:
    """Book as ten leads, all of whom want the same hours of node a at once."""
    leads = [Lead(scene, number) for number in range(len(scene.peers))]

    async def book(lead: Lead) -> None:
        for _ in range(_COLLUDING_TASKS // len(leads)):
            task = await lead.introduce("one of fifty")
            if task is None:
                return
            await asyncio.gather(*_holds(lead, task))

    await asyncio.gather(*map(book, leads))


def _holds(lead: Lead, task: dict[str, Any]) -> Iterator[Any]:
    """Yield holds of the same task, one for each of its next hours."""
    for hours in range(_HOURS):
        item = sound_hold(task["task"], _slot(task, hours), hours + 1)
        yield lead.hold(item, "one of many holds")


async def _end(lead: Lead, task: str) -> None:
    document = {"task": task, "state": "cancelled", "reason": "over"}
    await lead.say("POST", "tasks/ends", document, "the end of its own task")
