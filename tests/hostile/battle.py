"""One round of hostile requests, from the first start to the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.execution import process
from node.runtime.clock import SystemClock
from tests.hostile import (
    aftermath,
    booking,
    described,
    drawn,
    facade,
    floods,
    framing,
    hidden,
    honest,
    participants,
    signatures,
    targets,
    users,
)
from tests.hostile.honest import Waits
from tests.hostile.messages import Actor, Message
from tests.hostile.plan import Plan
from tests.hostile.record import Record
from tests.hostile.scene import Scene, is_alive, memory_mb, scene

_CLOCK = SystemClock()
_PROGRESS_S = 10.0
Report = Callable[[str], None]


@dataclass
class Outcome:
    """The record of a round, the honest user's waits, and each node's memory in MB."""

    plan: Plan
    record: Record
    waits: Waits = field(default_factory=Waits)
    memory: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """By node: before the round, after it, and after the rest."""
    seconds: float = 0.0
    """The time in which requests were sent."""
    took_s: float = 0.0
    load: tuple[float, float] = (0.0, 0.0)
    """The load of the host in the last minute, before and after."""
    kept: Path | None = None
    """The directory of the logs, if something is wrong."""


async def attack(plan: Plan, report: Report) -> Outcome:
    """Start the nodes, send hostile requests beside an honest user, and judge what is left."""
    began, load = time.monotonic(), os.getloadavg()[0]
    outcome = Outcome(plan, Record())
    record = outcome.record
    async with scene(record) as found:
        user = await honest.start(found.sites[0])
        report(f"three nodes and an honest user are ready after {time.monotonic() - began:.0f} s")
        before = [memory_mb(site) for site in found.sites]
        await _under_attack(found, outcome, report)
        if ended := [site for site in found.sites if not is_alive(site)]:
            for site in ended:
                record.fault("node ended", f"{site.node.name}: {process.tail_of(site.log, 5)}")
            outcome.took_s = time.monotonic() - began
            outcome.kept = _keep(found)
            return outcome
        after = [memory_mb(site) for site in found.sites]
        report(f"{record.total} requests in {outcome.seconds:.0f} s; the nodes rest")
        await _CLOCK.sleep(plan.rest_s)
        rested = [memory_mb(site) for site in found.sites]
        outcome.waits = await honest.stop(user)
        for site, *each in zip(found.sites, before, after, rested, strict=True):
            outcome.memory[site.node.name] = (each[0], each[1], each[2])
        report("looking at tables and logs")
        await aftermath.look(found, _CLOCK.sleep)
        _judge(outcome)
        outcome.took_s = time.monotonic() - began
        outcome.load = load, os.getloadavg()[0]
        if record.faults:
            outcome.kept = _keep(found)
    return outcome


def _judge(outcome: Outcome) -> None:
    """Note what the honest user and the memory of the nodes show."""
    plan, record, waits = outcome.plan, outcome.record, outcome.waits
    for wait, what in waits.seconds:
        if wait > plan.answer_s:
            record.fault("honest user waits", f"{wait:.2f} s for {what}")
    for refusal in waits.refused:
        record.fault("honest user refused", refusal)
    if not waits.runs.get("finished") and outcome.seconds > _PROGRESS_S:
        record.fault("honest user measures nothing", str(waits.runs))
    for node, (before, _, rested) in outcome.memory.items():
        if rested - before > plan.growth_max_mb:
            record.fault("memory", f"{node}: {before:.0f} to {rested:.0f} MB")


async def _under_attack(found: Scene, outcome: Outcome, report: Report) -> None:
    """Send all requests of the plan, or as many as fit into its time."""
    plan, began = outcome.plan, time.monotonic()
    watching = asyncio.create_task(_progress(outcome, began, report))
    try:
        async with asyncio.timeout(plan.seconds), asyncio.TaskGroup() as group:
            for each in _by_hand(found, plan):
                group.create_task(each)
            later: list[Iterator[Message]] = []
            group.create_task(_draw(found, plan, later, report))
            feed = await _feed(found, plan, later)
            for _ in range(plan.clients):
                group.create_task(_send_all(found, feed, plan.per_s))
    except TimeoutError:
        report(f"the limit of {plan.seconds:g} s has passed")
    finally:
        watching.cancel()
        outcome.seconds = time.monotonic() - began


def _by_hand(found: Scene, plan: Plan) -> Iterator[Any]:
    """Yield what is more than single requests, as coroutines."""
    part = plan.requests / Plan.requests
    rng = random.Random(f"{plan.seed} by hand")

    def several(number: int) -> int:
        return max(1, round(number * part))

    every: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "signatures": lambda: signatures.replays(found, rng, several(100)),
        "targets": lambda: targets.run(found, rng, several(2500)),
        "booking": lambda: booking.run(found, rng, several(12)),
        "participants": lambda: participants.run(found, rng, several(20)),
        "facade": lambda: facade.run(found, rng, several(600)),
        "users": lambda: users.keys(found, several(20)),
        "framing": lambda: framing.run(found, rng, several(900), max(2, plan.clients // 2)),
        "floods": lambda: floods.run(found, plan, rng, _CLOCK.sleep),
    }
    for family, make in every.items():
        if family in plan.families:
            yield make()
    if "signatures" in plan.families and part >= 1:
        yield signatures.late_replays(found, _CLOCK.sleep)


async def _feed(found: Scene, plan: Plan, later: list[Iterator[Message]]) -> Iterator[Message]:
    """Return the single requests, those of all families mixed, until the number is reached.

    What is in ``later`` at any time is mixed in from then on.
    """
    rng = random.Random(plan.seed)
    owner = found.sites[0]
    description = await found.ask(owner, "GET", "/v1/openapi.json")
    tests = (await found.ask(owner, "GET", "/v1/tests"))["items"]
    sources = {
        "roles": described.matrix(found, rng),
        "described": described.described(found, description, tests, rng, plan.requests),
        "peers": described.odd_messages_of_peers(found, rng, plan.requests // 4),
        "signatures": signatures.forgeries(found, rng, plan.requests // 12),
        "users": users.messages(found, rng, plan.requests // 20),
        "secrets": hidden.messages(found, rng),
    }
    chosen = {name: each for name, each in sources.items() if name in plan.families}
    # The first routes of the table, as every caller, come first: on a busy host few requests
    # fit into the time, and each caller has to be among them.
    first = itertools.islice(chosen.get("roles", iter(())), 2 * len(Actor))
    return itertools.chain(first, _mixed(found, plan, list(chosen.values()), later, rng))


async def _draw(found: Scene, plan: Plan, later: list[Iterator[Message]], report: Report) -> None:
    """Add requests that are drawn from the description to ``later`` when they are there."""
    if "described" not in plan.families or not plan.drawn:
        return
    description = await found.ask(found.sites[0], "GET", "/v1/openapi.json")
    drawing = await drawn.start(description, plan.seed, plan.drawn)
    try:
        every = await drawn.finish(drawing)
    finally:
        await drawing.end(0)
    report(f"schemathesis has drawn {len(every)} requests")
    later.append(drawn.messages(found, every, random.Random(plan.seed)))


def _mixed(
    found: Scene,
    plan: Plan,
    sources: list[Iterator[Message]],
    later: list[Iterator[Message]],
    rng: random.Random,
) -> Iterator[Message]:
    """Yield from all sources in turn by chance, until enough requests are sent or none is left."""
    while found.record.total < plan.requests:
        sources += later
        later.clear()
        if not sources:
            return
        source = rng.choice(sources)
        message = next(source, None)
        if message is None:
            sources.remove(source)
        else:
            yield message


async def _send_all(found: Scene, feed: Iterator[Message], per_s: float) -> None:
    """Send what is fed, but on average no more than so many requests in a second."""
    began = time.monotonic()
    for message in feed:
        early = found.record.total / per_s - (time.monotonic() - began)
        await _CLOCK.sleep(max(0.0, early))
        await found.send(message)


async def _progress(outcome: Outcome, began: float, report: Report) -> None:
    while True:
        await _CLOCK.sleep(_PROGRESS_S)
        passed, record = time.monotonic() - began, outcome.record
        report(
            f"{passed:5.0f} s  {record.total:6d} requests  {record.total / passed:6.1f}/s  "
            f"{record.found.total():4d} faults  slowest answer {record.slowest:.1f} s"
        )


def _keep(found: Scene) -> Path:
    """Copy the logs to where they stay."""
    kept = Path(tempfile.mkdtemp(prefix="parley-hostile-"))
    for site in found.sites:
        with contextlib.suppress(OSError):
            shutil.copy(site.log, kept)
    return kept
