"""Small worlds in which users and faults do what reaches the await points.

A story lasts some minutes of virtual time. Everything in it is repeated exactly, so that a process
can be killed at a point that an earlier play of the same story crossed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lead.assembly.lead import Lead
from lead.simulation.clock import START, pause
from lead.simulation.network import SimulatedService
from lead.simulation.node import SQL, SimulatedNode
from lead.simulation.scenario import Scenario
from lead.simulation.world import Broken
from node.model import times
from node.model.errors import PeerError, RequestError
from node.model.wire.reservations import ReservationDocument, ReservationPatch
from node.model.wire.tasks import TaskDocument, TaskPatch
from tests.points.virtual import TwoProcessHost

BEGINNING = START + times.MINUTE
"""The instant from which the times of a story count."""
_AGAIN = times.SECOND
"""Pause before a user whose node is down tries again."""
_LOOK = 2 * times.MILLISECOND
PLANTED = "planted by the story"
"""The error of what a story lets fail."""


@dataclass
class Scene:
    """The things that the deeds of a story act on."""

    hosts: list[TwoProcessHost]
    cut: Callable[[str, str, int], None]
    """``cut(a, b, by)`` cuts the link between two hosts ``by`` times more, or less if negative."""
    ids: dict[str, UUID] = field(default_factory=dict)
    """Tasks and reservations that users created, by name."""


Act = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Deed:
    """Something that happens at an instant, in microseconds from the beginning."""

    at: int
    act: Act


@dataclass(frozen=True)
class Story:
    """A small world: its nodes, and what happens in it."""

    name: str
    says: str
    deeds: tuple[Deed, ...]
    minutes: float = 4
    nodes: int = 2
    more: dict[str, Any] = field(default_factory=dict)
    broken: Broken | None = None
    """Makes a part of every node's program fail."""

    def scenario(self) -> Scenario:
        """Return the world without its deeds."""
        return Scenario.model_validate(
            {
                "title": self.says,
                "days": self.minutes / 24 / 60,
                "settle": "PT6M",
                "nodes": {
                    "count": self.nodes,
                    "horizon": "PT20M",
                    "hold_life": "PT10S",
                    "lease": "PT10S",
                    "compare": "PT1M",
                    "tend": "PT10S",
                },
                "network": {"delay": ["PT0.002S", "PT0.02S"], "time_limit": "PT1S"},
                **self.more,
            }
        )


def _user(host: int, act: Callable[[Scene, SimulatedService], Awaitable[None]]) -> Act:
    """Act as a user of a host, again until the node has answered."""

    async def insist(scene: Scene) -> None:
        while True:
            error = await scene.hosts[host].try_as_user(lambda service: act(scene, service))
            if error is None or (
                isinstance(error, RequestError) and not isinstance(error, PeerError)
            ):
                return
            await pause(_AGAIN)

    return insist


def _s(seconds: float) -> int:
    return round(seconds * times.SECOND)


def post(at: float, host: int, name: str, members: str, **options: Any) -> Deed:
    """Create a task of these hosts, ``"0 1"``; see :func:`_task` for the options."""
    document = _task([int(word) for word in members.split()], **options)
    return create(at, host, name, document)


def create(at: float, host: int, name: str, document: TaskDocument) -> Deed:
    """Create a task, with one key however often it is tried."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        scene.ids[name], _ = await service.admission.create(document, name)

    return Deed(_s(at), _user(host, act))


def _task(
    members: list[int],
    *,
    kind: str = "exclusive",
    length: float = 8,
    start: float = 30,
    every: float | None = 40,
    slip: float = 20,
    until: float | None = 230,
    priority: int = 0,
    seats: dict[str, Any] | None = None,
    **more: Any,
) -> TaskDocument:
    schedule: dict[str, Any] = {
        "start": times.format_instant(BEGINNING + _s(start)),
        "slip": times.format_duration(_s(slip)),
    }
    if every is not None:
        schedule["repeat"] = times.format_duration(_s(every))
        schedule["until"] = until and times.format_instant(BEGINNING + _s(until))
    spec: dict[str, Any] = {"duration": times.format_duration(_s(length)), "class": kind}
    document: dict[str, Any] = {
        "test": {"type": "idle", "spec": spec},
        "schedule": schedule,
        "priority": priority,
        **more,
    }
    if seats is None:
        spec["participants"] = [f"n{member + 1}" for member in members]
    else:
        document["participants"] = seats
    return TaskDocument.model_validate(document)


def edit(at: float, host: int, name: str, **patch: Any) -> Deed:
    """Edit a task."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        await service.editing.edit(scene.ids[name], TaskPatch.model_validate(patch))

    return Deed(_s(at), _user(host, act))


def on_task(at: float, host: int, name: str, what: str) -> Deed:
    """Pause, resume, release, or cancel a task."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        actions = {
            "pause": service.editing.pause,
            "resume": service.editing.resume,
            "release": service.editing.release,
            "cancel": service.termination.cancel_task,
        }
        await actions[what](scene.ids[name])

    return Deed(_s(at), _user(host, act))


def remove(at: float, host: int, other: int) -> Deed:
    """Remove a node from those that a host knows."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        await service.node_removal.remove(scene.hosts[other].name)

    return Deed(_s(at), _user(host, act))


def cancel_run(at: float, host: int, name: str, state: str = "booked") -> Deed:
    """Cancel the first run of a task that is in this state on a host."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        for run in scene.hosts[host].store.read(SQL["first_run"], scene.ids[name], state):
            await service.termination.cancel_run(run["id"])

    return Deed(_s(at), _user(host, act))


def cancel_seat(at: float, host: int) -> Deed:
    """Withdraw from the first seat that a host has, as its owner."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        for task in scene.hosts[host].store.read(SQL["first_seat"]):
            await service.termination.cancel_task(task["id"])

    return Deed(_s(at), _user(host, act))


def cut(at: float, one: int, other: int, lasts: float) -> Deed:
    """Cut the link between two hosts for some seconds."""

    async def act(scene: Scene) -> None:
        await _cut(scene, one, other, lasts)

    return Deed(_s(at), act)


async def _cut(scene: Scene, one: int, other: int, lasts: float) -> None:
    names = scene.hosts[one].name, scene.hosts[other].name
    scene.cut(*names, 1)
    await pause(_s(lasts))
    scene.cut(*names, -1)


def cut_when_held(at: float, one: int, other: int, lasts: float) -> Deed:
    """Cut the link as soon as ``other`` holds something, so that the commit comes late."""

    async def act(scene: Scene) -> None:
        if await _held(scene.hosts[other]):
            await _cut(scene, one, other, lasts)

    return Deed(_s(at), act)


def forget_run(at: float, host: int, name: str) -> Deed:
    """Delete the last booked run of a task from a participant's tables."""

    async def act(scene: Scene) -> None:
        for run in scene.hosts[host].store.read(SQL["last_booked"], scene.ids[name]):
            await _delete(scene, host, "forget_run", run["id"])
        scene.hosts[host].forgot(since=None)

    return Deed(_s(at), act)


def forget_task(at: float, host: int, name: str) -> Deed:
    """Delete a task from its lead's tables, so that only participants have it."""

    async def act(scene: Scene) -> None:
        await _delete(scene, host, "forget_task", scene.ids[name])
        scene.hosts[host].forgot(since=START)

    return Deed(_s(at), act)


async def _delete(scene: Scene, host: int, query: str, row: UUID) -> None:
    async with scene.hosts[host].database.connection() as connection:
        await connection.execute(SQL[query], row)


def crash(at: float, host: int, what: str, down: float) -> Deed:
    """Kill the node, the lead, or both on a host, for some seconds."""

    async def act(scene: Scene) -> None:
        await _crash(scene.hosts[host], what, down)

    return Deed(_s(at), act)


def crash_when_held(at: float, host: int, what: str, down: float, holder: int) -> Deed:
    """Kill a process of ``host`` as soon as another host holds something."""

    async def act(scene: Scene) -> None:
        if await _held(scene.hosts[holder]):
            await _crash(scene.hosts[host], what, down)

    return Deed(_s(at), act)


async def _held(host: TwoProcessHost) -> bool:
    for _ in range(5000):
        if host.store.read(SQL["next_expiry"])[0][0] is not None:
            return True
        await pause(_LOOK)
    return False


async def _crash(host: TwoProcessHost, what: str, down: float) -> None:
    dying = host.leading.process if what == "lead" else host.process
    if dying.alive:
        boot = host.crash_process(dying)
        await pause(_s(down))
        boot()


def stop(at: float, host: int, what: str) -> Deed:
    """Stop a process as its service manager does, and start it again."""

    async def act(scene: Scene) -> None:
        there = scene.hosts[host]
        process, work = there.process, there.service
        stopping = process.start(work.stop()) if work is not None else None
        if what == "lead":
            process = there.leading.process
            stopping = process.start(there.leading.lead.stop())
        if stopping is not None:
            await asyncio.wait({stopping})
            if process.alive:
                there.crash_process(process)()

    return Deed(_s(at), act)


def back_up(at: float, host: int) -> Deed:
    """Back up the database of a host."""

    async def act(scene: Scene) -> None:
        scene.hosts[host].back_up()

    return Deed(_s(at), act)


def restore(at: float, host: int) -> Deed:
    """Restore the database of a host from its backup."""

    async def act(scene: Scene) -> None:
        scene.hosts[host].restore()

    return Deed(_s(at), act)


def reserve(at: float, host: int, name: str, **fields: Any) -> Deed:
    """Reserve time of a node or of a pool."""
    document = ReservationDocument.model_validate({"kind": "quiet", "name": name, **fields})

    async def act(scene: Scene, service: SimulatedService) -> None:
        scene.ids[name] = (await service.reservations.create(document, name)).id

    return Deed(_s(at), _user(host, act))


def change_reservation(at: float, host: int, name: str, **patch: Any) -> Deed:
    """Change a reservation."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        changed = ReservationPatch.model_validate(patch)
        await service.reservations.edit(scene.ids[name], changed)

    return Deed(_s(at), _user(host, act))


def unreserve(at: float, host: int, name: str) -> Deed:
    """Remove a reservation."""

    async def act(scene: Scene, service: SimulatedService) -> None:
        await service.reservations.remove(scene.ids[name])

    return Deed(_s(at), _user(host, act))


def _from(seconds: float, lasts: float) -> dict[str, Any]:
    start = times.format_instant(BEGINNING + _s(seconds))
    return {"schedule": {"start": start}, "duration": times.format_duration(_s(lasts))}


_POOL = {
    "attributes": {"site": ["a", "b"]},
    "pools": [{"name": "all", "match": {"site": ["a", "b"]}, "term": "PT5M"}],
}


def _of_all(k: int, **options: Any) -> dict[str, Any]:
    return {"pool": "all", "k": k, **options}


def _ports() -> TaskDocument:
    spec = {"source": "n1", "dest": "n2", "duration": "PT5S"}
    schedule = {
        "start": times.format_instant(BEGINNING + _s(30)),
        "repeat": "PT1M",
        "max_runs": 2,
        "slip": "PT30S",
    }
    document = {"test": {"type": "throughput", "spec": spec}, "schedule": schedule}
    return TaskDocument.model_validate(document)


def _failing_once(_node: SimulatedNode, lead: Lead) -> None:
    """Let the first decision and the first episode of a lead fail, each as by a fault."""

    def fail_first(owner: Any, name: str) -> None:
        real, left = getattr(owner, name), [PLANTED]

        async def faulty(*args: Any, **named: Any) -> Any:
            if left:
                raise RuntimeError(left.pop())
            return await real(*args, **named)

        setattr(owner, name, faulty)

    fail_first(lead.planner._recorder, "record")
    fail_first(lead.episodes._driver, "run")


STORIES = (
    Story(
        "booking",
        "a task of both nodes, one of others only, and one of its lead alone",
        (
            post(0, 0, "both", "0 1"),
            post(1, 0, "elsewhere", "1 2", kind="normal", every=60),
            post(2, 0, "alone", "0", kind="background", every=None, slip=60),
        ),
        nodes=3,
    ),
    Story(
        "contention",
        "two leads want the same time of the same nodes, and the later ones wait or give up",
        (
            post(0, 0, "long", "0 1", length=25, every=40, slip=10),
            post(0, 1, "longer", "1 0", length=30, every=40, slip=10),
            post(20, 1, "none", "0 1", length=38, every=None, start=60, slip=2),
        ),
    ),
    Story(
        "displacement",
        "a task of higher priority takes booked time, and the displaced runs are planned again",
        (
            post(0, 0, "low", "0 1", length=20, every=40, slip=20),
            post(20, 1, "high", "1 0", length=15, start=70, every=80, slip=0, priority=5),
        ),
    ),
    Story(
        "cancelling",
        "runs and tasks are cancelled by lead and participant, before and while they run",
        (
            post(0, 0, "runs", "0 1", every=30, length=10, slip=5),
            post(0, 0, "task", "0 1", kind="normal", every=30, length=5, start=45, slip=5),
            post(0, 0, "withdrawn", "1 0", kind="background", every=30, length=5, slip=5),
            cancel_run(15, 0, "runs"),
            cancel_run(20, 1, "runs"),
            cancel_run(64, 0, "runs", "running"),
            cancel_run(94, 1, "runs", "running"),
            on_task(70, 0, "task", "cancel"),
            on_task(75, 1, "withdrawn", "cancel"),
        ),
    ),
    Story(
        "editing",
        "a task is edited so that its runs move, are fewer, or stay; paused; and resumed",
        (
            post(0, 0, "task", "0 1", every=30, length=8, slip=10),
            edit(10, 0, "task", priority=3),
            edit(20, 0, "task", schedule={"repeat": "PT25S"}),
            on_task(115, 0, "task", "pause"),
            on_task(140, 0, "task", "resume"),
            edit(160, 0, "task", test={"spec": {"duration": "PT6S"}}),
            edit(180, 0, "task", reference={"of": "nobody"}),
        ),
    ),
    Story(
        "away",
        "a participant cannot be reached while tasks are posted, edited, measured, and cancelled",
        (
            post(0, 0, "before", "0 1", every=30, length=8, slip=10),
            cut(20, 0, 1, 60),
            post(25, 0, "meanwhile", "0 1", kind="normal", every=40, start=90, slip=10),
            edit(30, 0, "before", priority=2),
            cancel_run(35, 0, "before"),
            post(40, 0, "short", "0 1", kind="background", every=40, start=90),
            on_task(50, 0, "short", "cancel"),
        ),
    ),
    Story(
        "late-commit",
        "the link is cut after the hold for longer than the hold lives, and once more at the end",
        (
            cut_when_held(0, 0, 1, 25),
            post(0, 0, "late", "0 1", every=40, length=8, slip=10, start=50),
            cut_when_held(60, 0, 1, 4),
            post(60, 0, "later", "0 1", kind="normal", every=40, start=100, length=8, slip=10),
        ),
    ),
    Story(
        "never-committed",
        "the link is cut after the hold until after the start, so that nobody may begin",
        (
            cut_when_held(0, 0, 1, 40),
            post(0, 0, "soon", "0 1", every=40, length=8, slip=30, start=30),
            cut_when_held(100, 0, 1, 60),
            post(100, 0, "elsewhere", "1 2", every=None, length=8, slip=60, start=130),
        ),
        nodes=3,
    ),
    Story(
        "undecided",
        "the lead dies between hold and decision for longer than the hold lives",
        (
            crash_when_held(0, 0, "lead", 14, 1),
            post(0, 0, "held", "0 1", every=40, length=8, slip=10, start=50),
            crash_when_held(80, 0, "lead", 25, 0),
            post(80, 0, "alone", "0", every=None, length=8, slip=60, start=100),
        ),
    ),
    Story(
        "dying",
        "nodes die before, at, and during runs, and are stopped in an orderly way",
        (
            post(0, 0, "task", "0 1", every=30, length=8, slip=10),
            post(2, 0, "elsewhere", "1 2", kind="background", every=30, length=8, slip=10),
            crash(33, 0, "node", 3),
            crash(57, 1, "node", 7),
            crash(92, 1, "node", 20),
            crash(117, 0, "node", 7),
            stop(124, 0, "lead"),
            stop(153, 1, "node"),
            stop(183, 0, "node"),
        ),
        nodes=3,
    ),
    Story(
        "refused",
        "participants refuse tasks and edits, and users repeat what they have posted",
        (
            post(0, 0, "bound", "0 1", contexts={"n2": "interface:eth1"}),
            post(1, 0, "bound-elsewhere", "1 2", contexts={"n3": "interface:eth1"}),
            post(3, 0, "task", "0 1", every=40, slip=10),
            post(5, 0, "task", "0 1", every=40, slip=10),
            edit(8, 0, "task", test={"spec": {"duration": "PT9S"}}),
            cut(10, 0, 1, 15),
            post(12, 0, "late", "0 1", contexts={"n2": "interface:eth1"}),
        ),
        nodes=3,
    ),
    Story(
        "orphaned",
        "the lead's database loses a run, and then the task, which participants still have",
        (
            post(0, 0, "task", "0 1", every=40, length=8, slip=10, until=400),
            forget_run(20, 0, "task"),
            forget_task(100, 0, "task"),
        ),
        more={"faults": {"forgotten_runs": 0.000001}},
    ),
    Story(
        "restored",
        "the databases of a participant and then of a lead are restored from backups",
        (
            post(0, 0, "task", "0 1", every=30, length=8, slip=15),
            post(1, 0, "cancelled", "0 1", kind="normal", every=30, length=8, slip=15),
            back_up(8, 1),
            on_task(10, 0, "cancelled", "cancel"),
            edit(12, 0, "task", priority=2),
            restore(20, 1),
            post(50, 0, "moved", "0 1", kind="normal", every=30, start=80, length=8, slip=15),
            back_up(60, 0),
            edit(62, 0, "moved", schedule={"repeat": "PT25S"}),
            post(64, 0, "lost", "0 1", every=60, start=100, length=8, slip=25),
            restore(75, 0),
        ),
        more={"faults": {"forgotten_runs": 0.000001}},
    ),
    Story(
        "freed",
        "what refused a run is cancelled, and the lead that was refused hears of it",
        (
            post(0, 1, "first", "1 2", every=None, start=60, length=60, slip=5),
            post(10, 0, "second", "0 1", every=None, start=70, length=10, slip=20),
            post(11, 1, "third", "1 0", every=None, start=80, length=10, slip=20),
            on_task(40, 1, "first", "cancel"),
        ),
        nodes=3,
    ),
    Story(
        "ports",
        "runs need ports of a participant, and end with a reason as no program answers",
        (create(0, 0, "ports", _ports()), create(1, 1, "again", _ports())),
    ),
    Story(
        "failing",
        "the program has a fault: planning breaks off after the hold, and giving seats does",
        (
            post(0, 0, "task", "0 1", every=40, length=8, slip=10, start=60),
            create(1, 0, "seats", _task([], seats={"pool": "all", "k": 1}, every=60, start=60)),
        ),
        more=_POOL,
        broken=_failing_once,
    ),
    Story(
        "forgotten",
        "a participant's database loses a run, and the comparison repairs it",
        (
            post(0, 0, "task", "0 1", every=40, length=8, slip=10, until=400),
            forget_run(20, 1, "task"),
        ),
        more={"faults": {"forgotten_runs": 0.000001}},
    ),
    Story(
        "reserving",
        "a node's time is reserved over booked runs, changed, and freed again",
        (
            post(0, 0, "task", "0 1", every=40, length=8, slip=20),
            reserve(15, 1, "kept", **_from(60, 60), displace=True),
            change_reservation(40, 1, "kept", duration="PT90S"),
            unreserve(90, 1, "kept"),
        ),
    ),
    Story(
        "pool",
        "seats of a pool are given, lost, given again, edited, and taken back",
        (
            create(0, 0, "two", _task([], seats={"pool": "all", "k": 1}, every=60, until=400)),
            create(
                1,
                0,
                "together",
                _task([], seats={"pool": "all", "k": 2, "together": True}, kind="normal", start=50),
            ),
            reserve(20, 0, "quiet", pool="all", **_from(150, 60)),
            cut(60, 0, 2, 40),
            edit(100, 0, "two", participants={"k": 2}),
            on_task(130, 0, "two", "pause"),
            on_task(150, 0, "two", "resume"),
            on_task(170, 0, "together", "cancel"),
        ),
        nodes=3,
        more=_POOL,
    ),
    Story(
        "sharing",
        "campaigns share a pool: an urgent one takes booked time, a node leaves, and too few stay",
        (
            create(0, 0, "slow", _task([], seats=_of_all(2), campaign="ops", length=25, slip=10)),
            create(1, 0, "all", _task([], seats=_of_all(3, together=True), every=60, slip=50)),
            create(2, 0, "turn", _task([], seats={"pool": "fast", "k": 1}, every=45, slip=10)),
            create(
                30,
                0,
                "urgent",
                _task([], seats=_of_all(2), campaign="outage", start=70, every=80, length=12),
            ),
            cancel_seat(60, 1),
            crash(80, 2, "node", 60),
            edit(90, 0, "slow", test={"spec": {"duration": "PT20S"}}),
            edit(110, 0, "all", priority=3),
        ),
        nodes=4,
        more=_POOL
        | {
            "attributes": {"site": ["a", "b"], "fast": [True, False]},
            "campaigns": [{"name": "ops", "weight": 3}, {"name": "outage", "level": "urgent"}],
            "pools": [
                {
                    "name": "all",
                    "match": {"site": ["a", "b"]},
                    "policy": {"set": "campaign-default"},
                    "term": "PT5M",
                },
                {
                    "name": "fast",
                    "match": {"fast": True},
                    "policy": {"set": "gridserver-usage"},
                    "choice": "rotating",
                },
            ],
        },
    ),
    Story(
        "limited",
        "campaigns bound what runs at once and how many bytes move, and one displaces another",
        (
            post(0, 0, "first", "0 1", campaign="capped", every=40, length=20, slip=10),
            post(1, 0, "second", "0 2", campaign="capped", every=40, length=20, slip=10),
            post(2, 0, "moving", "1 2", campaign="frugal", every=30, slip=10),
            post(3, 0, "giving", "1 2", campaign="giving", every=None, start=260, length=40),
            post(20, 0, "taking", "1 2", campaign="taking", every=None, start=270, slip=5),
            edit(60, 0, "first", campaign="ops"),
            on_task(80, 0, "second", "pause"),
            on_task(100, 0, "second", "resume"),
        ),
        nodes=3,
        more=_POOL
        | {
            "campaigns": [
                {"name": "capped", "limits": {"runs": {"soft": 1, "hard": 1}}},
                {"name": "frugal", "limits": {"delivered_percent": {"soft": 50, "hard": 60}}},
                {"name": "ops", "quotas": {"bytes": "50G/P1D"}},
                {"name": "giving", "preemptee": True},
                {"name": "taking", "preemptor": True, "level": "urgent"},
            ]
        },
    ),
    Story(
        "removed",
        "a task is released, and a node is removed that leads one task and measures in another",
        (
            post(0, 0, "kept", "0 1", every=40, length=8, slip=10),
            post(1, 0, "with", "0 2", every=40, length=8, slip=10),
            post(2, 2, "theirs", "2 0", every=40, length=8, slip=10),
            on_task(30, 0, "kept", "release"),
            remove(70, 0, 2),
        ),
        nodes=3,
        # A farewell that is lost with its process is made up for by a comparison.
        more={"faults": {"forgotten_runs": 0.000001}},
    ),
    Story(
        "shares",
        "owners keep a part of their time for each lead, which ask for more than theirs",
        (
            post(0, 0, "mine", "0 1", every=20, length=12, slip=8),
            post(1, 1, "theirs", "1 0", every=20, length=12, slip=8),
            post(2, 2, "late", "2 0", every=20, length=12, slip=8),
            on_task(120, 0, "mine", "cancel"),
        ),
        nodes=3,
        more={"lead_shares": {"n1": 50, "n2": 30, "n3": 20}},
    ),
)
"""All stories, in the order in which points are looked for."""


def story(name: str) -> Story:
    """Return the story of this name."""
    return next(it for it in STORIES if it.name == name)
