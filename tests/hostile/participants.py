"""A participant of the owner's own tasks that lies about what it measured.

It is a node in pull mode with a key that all nodes have pinned: it fetches its questions, agrees to
everything, is booked and committed, and reports parts that come too early, are too large, or are
none; and it answers the question about one exchange with what it has said of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from node.model import times
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from node.trust.keys import NodeKey
from tests.hostile.documents import now
from tests.hostile.honest import OVER, wait_for_run
from tests.hostile.messages import Actor, Message
from tests.hostile.record import Received
from tests.hostile.scene import PEERS, Scene, Site, card_of, dumped, signed

FAMILY = "participants"
DURATION = 2 * times.SECOND
_CLOCK = SystemClock()
_WAIT = times.SECOND
_BOOKED_S = 40.0
_AHEAD = "PT6S"
_AT_ONCE = 4
_LARGE = 7_400_000
_COMMAND = 500_000
REFUSED = frozenset({400, 403, 404, 409, 413, 422, 429})
"""The statuses with which a part is refused."""
BOOKED = frozenset({"scheduled", "running", "merging", "finished"})
"""The states of a run that its participants have agreed to."""
_SOUND = {"slept_ms": 2000.0}
Json = Any
Answer = Callable[[str, Json], Json]


@dataclass
class Participant:
    """A participant of the tasks of one node, which answers by its own rules."""

    scene: Scene
    key: NodeKey
    node: int = 0
    said: dict[str, Json] = field(default_factory=dict)
    """Its answers to holds, by their tasks."""
    booked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By task, the run that it was asked to keep, and when that starts."""
    instead: str | None = None
    """The task whose answer it gives to each other one, if any."""

    @property
    def site(self) -> Site:
        """Return the node whose tasks it takes part in."""
        return self.scene.sites[self.node]

    async def say(
        self, path: str, document: Json, hostile: str, allowed: frozenset[int] | None = None
    ) -> Received | None:
        """Send a signed request."""
        target = f"/v1/participant/{path}"
        message = Message(
            FAMILY,
            hostile,
            "POST",
            target,
            Actor.PEER,
            dumped(document),
            headers={"Content-Type": "application/json"},
            node=self.node,
            allowed=allowed,
            forged=lambda: signed(self.key, self.site, message),
        )
        return await self.scene.send(message)

    async def attend(self) -> None:
        """Fetch questions and answer them until cancelled."""
        answers: list[Json] = []
        while True:
            body = {
                "card": card_of(self.key, PEERS),
                "now": now(),
                "shortfall": 0,
                "busy_until": 0,
                "wait": _WAIT,
                "answers": answers,
            }
            received = await self.say("work", body, "fetches its questions")
            answers = []
            if received is None or received.status != 200:  # as when its answers were no answers
                await _CLOCK.sleep(0.2)
                continue
            for each in orjson.loads(received.body)["questions"]:
                question = each["question"]
                path = question["path"].removeprefix("/v1/participant/")
                asked = orjson.loads(question["body"]) if question["body"] else {}
                status, answer = self._answer(path, asked)
                text = "" if answer is None else dumped(answer).decode()
                answers.append({"id": each["id"], "reply": {"status": status, "body": text}})

    def _answer(self, path: str, asked: Json) -> tuple[int, Json]:
        """Return status and body of the answer to a question: it agrees to everything."""
        answers: Mapping[str, Callable[[Json], Json]] = {
            "introductions": lambda _: {"accepted": True, "tools": ["sleep"]},
            "proposals": lambda item: {
                "now": now(),
                "horizon": now() + times.DAY,
                "free": item["windows"],
            },
            "holds": self._hold,
            "rulings": lambda _: {},
        }
        if path in answers:
            return 200, {"items": [{"answer": answers[path](item)} for item in asked["items"]]}
        if path.startswith("tasks/") and "spec" in asked:
            return 200, answers["introductions"](asked)
        if path in {"tasks/confirmations", "digests"}:
            return 200, {}
        return 204, None

    def _hold(self, item: Json) -> Json:
        hold = item["hold"]
        task, run = hold["task"], hold["runs"][0]
        self.booked[task] = run["run"], run["starts_at"]
        self.said[task] = {"held": [each["run"] for each in hold["runs"]]}
        return self.said[self.instead or task]


@contextlib.asynccontextmanager
async def attending(scene: Scene, node: int = 0) -> AsyncIterator[Participant]:
    """Yield a participant that answers meanwhile."""
    participant = Participant(scene, scene.participant, node)
    fetching = asyncio.create_task(participant.attend())
    try:
        yield participant
    finally:
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)


def part(run: str, starts_at: int, **changes: Json) -> dict[str, Json]:
    """Return a part of a run as its test would make it, with changes."""
    return {
        "run": run,
        "result": _SOUND,
        "reason": None,
        "started_at": starts_at,
        "finished_at": starts_at + DURATION,
        "command": ["sleep", "2"],
        **changes,
    }


LIES: Mapping[str, dict[str, Json]] = {
    "of 7 MB": {"result": {"padding": "x" * _LARGE}},
    "of 7 MB in a place of the result": {"result": {"slept_ms": "9" * _LARGE}},
    "with a deep result": {"result": orjson.loads('{"a":' * 90 + "1" + "}" * 90)},
    "that is none": {"result": {"slept_ms": "long"}},
    "with more than a result": {"result": {**_SOUND, "x": "y" * 1000}},
    "of another test": {"result": {"rtt_ms": [1.0]}},
    "with nothing": {"result": {}},
    "with neither result nor reason": {"result": None, "reason": None},
    "with numbers that are none": {"result": {"slept_ms": float("nan")}},
}
"""Parts that are none, by their names."""
CLOCK_LIMIT = Settings().clock_limit
"""By so much clocks may differ, and a part may come before the start of its run (µs)."""
_BOUNDED: Mapping[str, dict[str, Json]] = {
    "with a command of 500 kB": {"command": ["x" * _COMMAND]},
    "with 100,000 words of command": {"command": ["x"] * 100_000},
    "with an output of 5 MB": {"output": "x" * 5_000_000},
    "with a statement of 5 MB": {"signature": "x" * 5_000_000},
}
"""Parts that have something beside them, of which little is kept."""


async def run(scene: Scene, rng: random.Random, rounds: int) -> None:
    """Take part in tasks of the owner of node a, and lie about each."""
    async with attending(scene) as participant:
        cases = [*LIES.items(), *_BOUNDED.items()]
        rng.shuffle(cases)
        # Bodies of many megabytes at once would show the allocator, and nothing that is kept.
        places = asyncio.Semaphore(_AT_ONCE)

        async def lie(what: str, changes: dict[str, Json]) -> None:
            async with places:
                await _lie(participant, what, changes)

        await asyncio.gather(*(lie(*case) for case in cases[: max(2, rounds)]))
        await _answer_for_another(participant)


async def _post(participant: Participant) -> str:
    """Post a task of the owner with the participant; return its id."""
    site = participant.site
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT2S", "class": "background"}},
        "participants": [site.node.name, card_of(participant.key, PEERS)["name"]],
        "schedule": {"start": _AHEAD, "slip": "PT20S"},
    }
    return str((await participant.scene.ask(site, "POST", "/v1/tasks", document))["id"])


async def _state(participant: Participant, task: str) -> str:
    """Return the state of the latest attempt of a task of one slot."""
    path = f"/v1/tasks/{task}/runs"
    runs = (await participant.scene.ask(participant.site, "GET", path))["items"]
    return str(runs[-1]["state"]) if runs else "not planned"


async def _until(participant: Participant, task: str, states: frozenset[str]) -> str:
    """Return the state of a task's run once it is one of these, or when nobody waits any more."""
    state = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BOOKED_S):
            while (state := await _state(participant, task)) not in states:
                await _CLOCK.sleep(0.3)
    return state


async def _lie(participant: Participant, what: str, changes: dict[str, Json]) -> None:
    """Report a part before the start, then one that is none; the run must not take it for one."""
    scene = participant.scene
    task = await _post(participant)
    if await _until(participant, task, BOOKED | OVER) not in BOOKED:
        return  # on a busy host its time may have passed
    name, starts_at = participant.booked[task]
    early = part(name, starts_at, **changes)
    for document in (part(name, starts_at), early):
        received = await participant.say("parts", document, f"an early part {what}")
        too_early = now() < starts_at - CLOCK_LIMIT  # it was so when the answer was written, too
        if received is not None and received.status not in REFUSED and too_early:
            scene.record.fault("a part before its start", f"{name}: {what}: {received.status}")
    shares = [{"number": number, "result": _SOUND, "reason": None} for number in range(64)]
    message = {"run": name, "intervals": shares}
    await participant.say("intervals", message, "intervals of a run without any", REFUSED)
    await _CLOCK.sleep_until(starts_at + DURATION + 200 * times.MILLISECOND)
    await participant.say("parts", early, f"a part {what}")
    await participant.say("parts", part(name, starts_at), "a sound part after that")
    await wait_for_run(scene, participant.site, task)
    judge(participant, what, await scene.ask(participant.site, "GET", f"/v1/runs/{name}"))


def judge(participant: Participant, what: str, run: Json) -> None:
    """Note if a run takes for a part what is none, or keeps much of it."""
    record = participant.scene.record
    name, size = run["id"], len(dumped(run))
    if what in LIES and run["state"] == "finished" and _told(run) != _SOUND:
        record.fault("a part that is none was taken", f"{name} {what}: {_told(run)}"[:300])
    if size > 100_000:
        record.fault("a part fills the host", f"{name} {what}: {size} bytes are told of it")


def _told(run: Json) -> Json:
    """Return what a run tells as the result of the participant."""
    parts = run["parts"]
    return parts[1]["result"] if len(parts) > 1 else None


async def _answer_for_another(participant: Participant) -> None:
    """Answer the hold of one task as that of another: its run must not be begun with us."""
    scene = participant.scene
    first = await _post(participant)
    await _until(participant, first, BOOKED | OVER)
    if first not in participant.said:
        return
    participant.instead = first
    second = await _post(participant)
    judge_replay(participant, first, await _until(participant, second, BOOKED | OVER))
    await scene.ask(participant.site, "DELETE", f"/v1/tasks/{second}")


def judge_replay(participant: Participant, first: str, state: str) -> None:
    """Note if a run is booked with a participant that said something of another run."""
    if state in BOOKED:
        participant.scene.record.fault(
            "an answer about another exchange was taken", f"{first}'s: {state}"
        )
