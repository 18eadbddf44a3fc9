"""Counts the resources that this node keeps, where they are offered and where they are booked.

An offer reads what is taken without a lock and returns closed time: it may be outdated by the time
it is used. A hold locks the resources first, and then counts its runs one after another. Whoever
takes nothing costs no query. The rules are those of ``model/resources.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from node.model.resources import FullResource, Use, admit, full_spans, full_time
from node.model.spans import Span
from node.model.timeline import gives_way
from node.model.wire.participants import HostLoad, RunRequest
from node.sharing.host_limits import LimitKeeper
from node.sharing.quota_use import LimitedRequest, host_load
from node.store import resources
from node.store.bookings import HeldTask, Hold, Wanted
from node.store.core import Core
from node.store.database import Connection


@dataclass(frozen=True)
class AdmittedRuns:
    """The runs that find what they take, why others do not, and what has to give way to them.

    ``victims`` are triples of a run, the one that displaces it, and the rank of that one.
    """

    wanted: Wanted
    refused: Mapping[UUID, FullResource] = field(default_factory=dict)
    victims: Sequence[tuple[UUID, UUID, int]] = ()


class ResourceCounter:
    """Knows what is left of the resources that this node keeps."""

    def __init__(self, core: Core, limits: LimitKeeper) -> None:
        """``limits`` have the numbers that the owner has stated."""
        self._horizon = core.settings.horizon
        self._start_margin = core.settings.start_margin
        self._limits = limits

    async def left_to(
        self, connection: Connection, requests: Sequence[LimitedRequest], now: int
    ) -> list[LimitedRequest]:
        """Return the requests with the time in which too little is left of what they take."""
        if not any(each.request.takes for each in requests):
            return list(requests)
        return [
            await self._left_to(connection, each, each.request.takes, now)
            if each.request.takes
            else each
            for each in requests
        ]

    async def _left_to(
        self, connection: Connection, asked: LimitedRequest, takes: Mapping[str, int], now: int
    ) -> LimitedRequest:
        request, reach = asked.request, (now, now + self._horizon)
        found = await resources.uses(connection, takes, request.windows, now + self._start_margin)
        closed = list(asked.closed)
        taken: list[Span] = []
        loads: list[HostLoad] = []
        for name, amount in takes.items():
            number = self._limits.limits.resources.get(name, 0)
            if number < amount:
                closed.append(full_time(name, number, amount, (), reach))
                continue
            uses = [
                use
                for use, task in found.get(name, ())
                if use.fixed or (task, use.lead) != (request.leaving_out, asked.lead)
            ]
            staying = [
                use
                for use in uses
                if not gives_way(use, request.yielding, (asked.rank, request.priority))
            ]
            full = full_spans(staying, number, amount)
            closed += [full_time(name, number, amount, staying, span) for span in full]
            taken += full_spans(uses, number, amount)
            loads.append(
                host_load(name, "", "resource", (number, amount), [use.load for use in uses])
            )
        quotas = asked.quotas
        if request.preview and quotas is not None:
            quotas = (*quotas, *loads)
        return replace(asked, closed=closed, taken=taken, quotas=quotas)

    async def lock(
        self, connection: Connection, new: Sequence[tuple[Hold, HeldTask]]
    ) -> Mapping[str, int]:
        """Lock what new holds take until the transaction ends; return how much there is of it."""
        names = {name for _, task in new for name in task.takes}
        return await resources.lock(connection, sorted(names)) if names else {}

    async def admit(
        self, connection: Connection, wanted: Wanted, numbers: Mapping[str, int], now: int
    ) -> AdmittedRuns:
        """Count one run after another; ``numbers`` are of the resources, which are locked."""
        taking = [(hold, task, run) for hold, task, runs in wanted if task.takes for run in runs]
        if not taking:
            return AdmittedRuns(wanted)
        spans = [(run.starts_at, run.ends_at) for _, _, run in taking]
        names = {name for _, task, _ in taking for name in task.takes}
        earliest = now + self._start_margin
        found = await resources.uses(connection, names, spans, earliest)
        count = _Count(numbers, {name: [use for use, _ in found.get(name, ())] for name in names})
        refused: dict[UUID, FullResource] = {}
        victims: list[tuple[UUID, UUID, int]] = []
        for hold, task, run in sorted(taking, key=lambda each: (each[2].starts_at, each[2].run)):
            answer = count.admit(hold, task, run)
            if isinstance(answer, FullResource):
                refused[run.run] = answer
            else:
                victims += [(victim, run.run, hold.rank) for victim in answer]
        left = [
            (hold, task, [run for run in runs if run.run not in refused])
            for hold, task, runs in wanted
        ]
        return AdmittedRuns(left, refused, victims)

    @staticmethod
    async def set_aside(connection: Connection, admitted: AdmittedRuns, now: int) -> Counter[UUID]:
        """Set aside what has to give way; count it by the displacing run."""
        if not admitted.victims:
            return Counter()
        return await resources.set_aside(connection, admitted.victims, now)

    @staticmethod
    async def take(connection: Connection, wanted: Wanted, held: Collection[UUID]) -> None:
        """Write what the runs take that were booked."""
        taken = [
            (run.run, name, amount)
            for _, task, runs in wanted
            for run in runs
            if run.run in held
            for name, amount in task.takes.items()
        ]
        if taken:
            await resources.take(connection, taken)


class _Count:
    """The use of resources, as a transaction books one run after another."""

    def __init__(self, numbers: Mapping[str, int], uses: dict[str, list[Use]]) -> None:
        self._numbers = numbers
        self._uses = uses

    def admit(self, hold: Hold, task: HeldTask, run: RunRequest) -> frozenset[UUID] | FullResource:
        """Count a run; return the runs that give way to it, or what there is too little of."""
        span, request = (run.starts_at, run.ends_at), hold.request
        gone: set[UUID] = set()
        new: dict[str, Use] = {}
        for name, amount in task.takes.items():
            number, uses = self._numbers.get(name, 0), self._uses[name]
            if number < amount:
                return full_time(name, number, amount, (), span)
            use = Use(run.run, *span, amount, hold.rank, request.priority)
            staying = [each for each in uses if each.run not in gone]
            victims = admit(
                staying,
                number,
                use,
                lambda each: (
                    run.displacing
                    and gives_way(each, request.yielding, (hold.rank, request.priority))
                ),
            )
            if victims is None:
                return full_time(name, number, amount, staying, span)
            gone |= set(victims)
            new[name] = use
        for name, uses in self._uses.items():
            self._uses[name] = [each for each in uses if each.run not in gone]
        for name, use in new.items():
            self._uses[name].append(use)
        return frozenset(gone)
