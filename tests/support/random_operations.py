"""Random histories of a few nodes: acts of people, hosts, and the network, one at a time."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from lead.assembly.with_node import reconciliation_dependencies
from lead.exchange.reconciliation import Reconciler
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import ParleyError, PeerUnreachable
from node.model.wire.tasks import Schedule, TaskPatch
from node.store import nodes, runs, seats, tasks
from node.store.runs import KeptPart
from tests.support.worlds import Call, Site, World, introduction

CLASSES = list(SchedulingClass)


@dataclass(frozen=True)
class RandomAction:
    """One act: its kind, its node, and numbers that determine the details."""

    what: str
    site: int
    first: int
    second: int


HAPPENINGS = [
    *("task", "task", "task", "task", "plan", "plan", "plan", "plan", "deliver", "measure"),
    *("measure", "pass", "pass", "pass", "cut", "lose", "lose", "heal", "heal", "heal"),
    *("cancel run", "cancel task", "change", "change", "change", "compare", "purge", "silence"),
    *("overtake", "overtake", "overtake", "stumble", "part", "part"),
]


def acts(rng: Random, many: int) -> list[RandomAction]:
    """Draw this many acts, a task first."""
    drawn = [
        RandomAction(rng.choice(HAPPENINGS), rng.randrange(3), rng.randrange(12), rng.randrange(12))
        for _ in range(many)
    ]
    return [RandomAction("task", 0, 1, 1), *drawn]


class RandomHistory:
    """Applies one act after the other to the nodes of a world."""

    def __init__(self, world: World) -> None:
        """Take the sites of the world."""
        self._world = world
        self._tasks = 0
        self._led: dict[str, list[UUID]] = {}
        for site in world.sites:
            site.node.time_line._holds._ports._needs_port = lambda *_: True
        self._lost: tuple[str, str] | None = None
        self._overtaking: Site | None = None
        self._stumbling = False
        self._parting = False
        world.watch = self._pass_on

    async def _pass_on(self, call: Call, phase: str) -> None:
        """Let another node hold first, or lose requests or answers."""
        await self._world.clock.sleep(0)
        if call[2] == "hold" and self._overtaking is not None:
            first, self._overtaking = self._overtaking, None
            if not first.workers._busy:
                await first.plan()
        if call[2] == "commit" and call[0] != call[1] and self._parting:
            self._parting = False
            self._world.cut.add(frozenset(call[:2]))
        if call[2] == "hold" and self._stumbling:
            self._stumbling = False
            msg = "a fault of ours"
            raise RuntimeError(msg)
        if (call[2], phase) == self._lost:
            msg = f"{call[1]} cannot be reached: this is lost on the way"
            raise PeerUnreachable(msg)

    async def live(self, acts: list[RandomAction]) -> None:
        """Apply all acts; refusals are expected."""
        for act in acts:
            site = self._world.sites[act.site]
            with contextlib.suppress(ParleyError):
                await getattr(self, f"_{act.what.replace(' ', '_')}")(site, act)

    async def _task(self, site: Site, act: RandomAction) -> None:
        others = [other for other in self._world.sites if other is not site]
        places = [[site], [site, others[0]], [*others, site], others][act.first % 4]
        schedule: dict[str, Any] = {
            "repeat": "PT20M" if act.first % 3 else None,
            "slip": "PT6M" if act.second % 2 else None,
            "max_runs": 3 if act.first % 3 and act.second % 5 == 0 else None,
        }
        if (led := self._led.setdefault(site.name, [])) and act.first % 3 == act.second % 3:
            outcome = ("succeeded", "ended")[act.first % 2]
            followed = str(led[act.second % len(led)])
            schedule = {"after": {"task": followed, "outcome": outcome, "within": "PT1H"}}
        made = introduction(
            places,
            accepted=None,
            scheduling_class=CLASSES[act.second % 3],
            duration=(1 + act.first) * times.MINUTE,
            priority=act.second // 3,
            schedule=Schedule.model_validate(schedule),
        )
        self._tasks += 1
        led.append(UUID(int=self._tasks))
        named = {"task": led[-1], "created_at": made.created_at + self._tasks}
        await site.keep(made.model_copy(update=named), site)

    async def _plan(self, site: Site, _: RandomAction) -> None:
        await site.plan()

    async def _deliver(self, site: Site, _: RandomAction) -> None:
        await site.deliver()
        await site.tend()

    async def _pass(self, _: Site, act: RandomAction) -> None:
        await self._world.pass_time((1 + act.first) * times.MINUTE, 3 * times.MINUTE)

    async def _cut(self, site: Site, act: RandomAction) -> None:
        other = self._world.sites[(act.site + 1) % 3]
        self._world.cut.add(frozenset({site.name, other.name}))

    async def _lose(self, _: Site, act: RandomAction) -> None:
        """Lose all further requests of one kind, or their answers."""
        kind = ("introduce", "propose", "hold", "commit", "release", "decision")[act.first % 6]
        self._lost = (kind, "asked" if act.second % 2 else "answered")

    async def _overtake(self, site: Site, _: RandomAction) -> None:
        """Let this node plan first when the next hold is about to be sent."""
        self._overtaking = site

    async def _stumble(self, *_: object) -> None:
        """Make the next hold raise an unforeseen error."""
        self._stumbling = True

    async def _part(self, *_: object) -> None:
        """Cut the wire between the two nodes when the next decision is sent."""
        self._parting = True

    async def _heal(self, *_: object) -> None:
        self._world.cut.clear()
        self._lost = None

    async def _cancel_run(self, site: Site, act: RandomAction) -> None:
        async with site.database.connection() as connection:
            due = await runs.due_runs(connection, 0, site.clock.now() + times.HOUR)
        if due:
            await site.node.termination.cancel_run(due[act.first % len(due)].id)

    async def _cancel_task(self, site: Site, act: RandomAction) -> None:
        async with site.database.connection() as connection:
            due = await runs.due_runs(connection, 0, site.clock.now() + times.DAY)
        if due:
            await site.node.termination.cancel_task(due[act.first % len(due)].task)

    async def _change(self, site: Site, act: RandomAction) -> None:
        """Pause, resume, or edit one of the tasks led here."""
        changing = site.node.editing
        async with site.database.connection() as connection:
            led = [
                task.id
                for number in range(self._tasks)
                if (task := await tasks.fetch(connection, UUID(int=number + 1))) is not None
                and task.lead == site.identity
            ]
        if not led:
            return
        chosen = led[act.first % len(led)]
        edits: list[dict[str, Any]] = [
            {"priority": act.first},
            {"schedule": {"repeat": "PT30M"}},
            {"schedule": {"max_runs": 1 + act.first % 4}},
            {"test": {"spec": {"duration": f"PT{1 + act.first}M"}}},
        ]
        if act.second < 4:
            await changing.pause(chosen)
        elif act.second < 8:
            await changing.resume(chosen)
        else:
            await changing.edit(chosen, TaskPatch.model_validate(edits[act.second - 8]))

    async def _measure(self, site: Site, act: RandomAction) -> None:
        """Begin the runs that are due within a few minutes, and end most of them."""
        now = site.clock.now()
        async with site.database.connection() as connection:
            due = await runs.due_runs(connection, 0, now + 5 * act.first * times.MINUTE)
            missed = await runs.overslept_runs(connection, now - times.MINUTE, ())
            await runs.unconfirmed_runs(connection, [run.id for run in due], now)
        for run in due:
            if run.participant is None or run.id in missed:
                continue
            async with site.database.transaction() as connection:
                await runs.begin(connection, run.id, now)
                await runs.keep_process(connection, run.id, now, 42, act.second)
            name = run.participants[run.participant].name
            wrong = None if act.second % 4 else "the program failed"
            part = KeptPart(run.participant, name, None if wrong else {}, wrong, now, now, ("a",))
            if act.second % 5:
                await site.node.collector.keep_own(run.id, part)
        if act.second % 3 == 0:
            await site.node.launcher.recover()
            await site.node.launcher._mark_overslept(site.clock.now())

    async def _compare(self, site: Site, act: RandomAction) -> None:
        other = self._world.sites[(act.site + 1) % 3]
        dependencies = reconciliation_dependencies(site.node)
        compared = Reconciler(site.database, site.clock, dependencies, times.DAY)
        await compared.run_once(site.node.peer(other.identity))

    async def _purge(self, site: Site, act: RandomAction) -> None:
        now = site.clock.now()
        early, late = now - act.first * times.MINUTE, now - act.second * times.MINUTE
        async with site.database.transaction() as connection:
            for finished, before in ((True, early), (False, late)):
                await runs.purge(connection, before, 1 + act.first % 5, finished=finished)
            await runs.purge_decisions(connection, early, 1 + act.second % 5)
            await runs.purge_exchanges(connection, late, 1 + act.first % 5)
            await runs.purge_negotiations(connection, late, 1 + act.second % 5)
            await runs.purge_idempotency(connection, late, 1)
            await seats.purge(connection, early, 1 + act.first % 3)
            await tasks.purge(connection, late, 1 + act.second % 3)

    async def _silence(self, site: Site, act: RandomAction) -> None:
        """Mark a node as silent, or as back."""
        other = self._world.sites[(act.site + 1) % 3]
        async with site.database.transaction() as connection:
            if act.first % 2:
                await nodes.note_unanswered(
                    connection, other.identity, site.clock.now(), "no answer"
                )
            else:
                await nodes.note_answered(connection, [other.identity], site.clock.now())
