"""Agreement of the other nodes of a run, asked before it begins here.

A lead says who takes part in its runs, and at which ports. One that lies could so aim a stream, or
a text, at a node that never heard of the task, or at another service of its host. A node that does
not lead a run therefore asks the participants to which it sends whether they have booked it, and
takes the ports from their answers: each node tells those of its own hold. A lead has agreed by
itself, and its word about its own port is that of the receiving node. For a node of an earlier
version, which tells none, the lead's word holds if it is one of the ports of tools.

They are asked at once, some seconds before the start, and again while one is away.

A node whose database was restored knows runs that may be over. Until it has compared with the
others, it asks them about each run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from node.execution.catalog import Capabilities
from node.execution.targets import ForeignTargets
from node.model import ports, times
from node.model.digests import measured_fingerprint
from node.model.errors import NotFound, ParleyError, PeerUnreachable, reason_at
from node.model.features import Feature
from node.model.reason import Reason
from node.model.reasons import (
    confirmation_late,
    part_unconfirmed,
    port_not_as_stated,
    run_gone_since_backup,
    run_not_booked_there,
    run_unconfirmed_since_backup,
)
from node.model.wire.participants import BookedRun
from node.plugins.listening import listening_places, receiving_places, stated_port
from node.store import runs
from node.store.core import Core
from node.store.runs import ConfirmedRun, DueRun

AGREEMENT_TIME = 8 * times.SECOND
"""Time before its start at which the participants of a run are asked."""
_AGAIN_S = 1.0
"""Time after which a participant that is away is asked again."""
_ANSWER_TIME = times.SECOND
"""Time after its start for which an answer is waited for, as for the address of a target."""


class BookingSource(Protocol):
    """Another node that can be asked about a run."""

    async def booked_run(self, run: UUID) -> BookedRun:
        """Return a run as it is booked there; raises ``NotFound`` if it is not."""
        ...


@dataclass(frozen=True)
class Agreement:
    """The answers of those to whom a run sends: why it does not begin, if so, and their data.

    ``data`` has what each node told in its own hold, by the places of the participants.
    """

    refusal: str | None = None
    data: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


class ParticipantAgreement:
    """Asks other participants whether they have a run, and answers them."""

    def __init__(
        self,
        core: Core,
        capabilities: Capabilities,
        targets: ForeignTargets,
        peer: Callable[[str], BookingSource],
    ) -> None:
        """``peer(identity)`` returns the client of a known node."""
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._capabilities = capabilities
        self._targets = targets
        self._peer = peer

    async def agreed(self, run: DueRun, until: int) -> Agreement:
        """Ask those to whom a run sends that another node leads, until they answer.

        One that is away is asked again until that instant.
        """
        test, tool = self._capabilities.tests[run.test], self._capabilities.tools[run.tool or ""]
        spec = self._capabilities.spec(test, run.spec)
        own, everybody = run.participant or 0, range(len(run.participants))
        receiving = receiving_places(test, tool, spec, len(everybody), own)
        if self._targets.exceeds(test, spec):
            receiving = frozenset(everybody) - {own}
        leading = {at for at in everybody if run.participants[at].node == run.lead}
        asked, stated = sorted(receiving - leading), stated_port(spec)
        words = await asyncio.gather(
            *(self._data_or_refusal(run, at, stated, until) for at in asked)
        )
        if refusals := [word for word in words if isinstance(word, str)]:
            return Agreement(refusals[0])
        data: dict[int, Mapping[str, Any]] = {
            at: _data_of_lead(run, at, stated) for at in leading - {own}
        }
        data |= {
            at: word for at, word in zip(asked, words, strict=True) if not isinstance(word, str)
        }
        data[own] = _with_stated_port(run.told or {}, stated)
        told = sorted(data.keys() & listening_places(tool, spec, len(everybody)))
        faults = (self._port_fault(run, at, data[at], stated) for at in told)
        return Agreement(next(filter(None, faults), None), data)

    def _port_fault(
        self, run: DueRun, place: int, data: Mapping[str, Any], stated: int | None
    ) -> Reason | None:
        """Return why nothing is sent to the ports that a participant has told; None if it is."""
        each, told = run.participants[place], ports.announced_ports(data)
        if stated is not None and told.start != stated:
            return port_not_as_stated(stated, each.name, told.start)
        by_itself = each.node == run.lead or self._targets.node_has(each.node, Feature.TOLD_PORTS)
        return self._targets.port_refusal(each, told, by_itself=by_itself)

    async def _data_or_refusal(
        self, run: DueRun, place: int, stated: int | None, until: int
    ) -> Mapping[str, Any] | Reason:
        """Return what a participant told in its own hold, or why nothing is sent to it."""
        participant = run.participants[place]
        name = participant.name
        there = await self._find_booked_run(participant.node, run, until)
        if isinstance(there, ParleyError):
            return part_unconfirmed(reason_at(name, there))
        if there is None:
            return run_not_booked_there(name)
        if there.data is not None or self._targets.node_has(participant.node, Feature.TOLD_PORTS):
            return there.data or {}
        return _data_of_lead(run, place, stated)

    async def restore_refusal(self, run: DueRun) -> Reason | None:
        """Return why a run that this node knows from a backup does not begin; None if it may.

        It may if another node has it booked, and none that answers does not have it.
        """
        names = {run.lead: "its lead"} | {it.node: it.name for it in run.participants}
        names.pop(self._identity, None)
        answers = await asyncio.gather(*(self._find_booked_run(other, run, 0) for other in names))
        unreachable = []
        for name, answer in zip(names.values(), answers, strict=True):
            if answer is None:
                return run_gone_since_backup(name)
            if isinstance(answer, ParleyError):
                unreachable.append(reason_at(name, answer))
        if len(unreachable) < len(names):
            return None
        return run_unconfirmed_since_backup(unreachable)

    async def _find_booked_run(
        self, node: str, run: DueRun, until: int
    ) -> BookedRun | ParleyError | None:
        """Return a run as another node has booked it, None if it has not, or why that is unknown.

        A node that is away is asked again until that instant.
        """
        while True:
            patience = max(run.starts_at - self._clock.now(), 0) + _ANSWER_TIME
            try:
                async with asyncio.timeout(patience / times.SECOND):
                    return await self._find_booked_run_once(node, run)
            except TimeoutError:
                return PeerUnreachable(confirmation_late())
            except PeerUnreachable as error:
                if self._clock.now() >= until:
                    return error
            except ParleyError as error:
                return error
            await self._clock.sleep(_AGAIN_S)

    async def _find_booked_run_once(self, node: str, run: DueRun) -> BookedRun | ParleyError | None:
        """Return a run as another node has booked it now; None if it has not.

        :raises ParleyError: the node cannot be asked.
        """
        try:
            peer = self._peer(node)
        except NotFound as error:
            return error
        try:
            there = await peer.booked_run(run.id)
        except NotFound:
            return None
        same = (there.task, there.lead, there.starts_at) == (run.task, run.lead, run.starts_at)
        here = measured_fingerprint(run.test, run.spec)
        return there if same and there.measured in {None, here} else None

    async def answer(self, sender: str, run: UUID) -> BookedRun:
        """Return a run that is booked here, for its lead or another participant of its task.

        :raises NotFound: there is none.
        """
        async with self._database.connection() as connection:
            found = await runs.find_booked_with(connection, run, sender)
        if found is None:
            msg = f"no run {run} is booked here in which you take part"
            raise NotFound(msg)
        booked = BookedRun(task=found.task, lead=found.lead, starts_at=found.starts_at)
        if not self._targets.node_has(sender, Feature.TOLD_PORTS):
            return booked
        measured = measured_fingerprint(found.test, found.spec)
        return booked.model_copy(update={"data": self._own_data(found), "measured": measured})

    def _own_data(self, run: ConfirmedRun) -> dict[str, Any]:
        """Return what this node has told for a run, or the port that its spec states."""
        test = self._capabilities.tests.get(run.test)
        stated = None if test is None else stated_port(self._capabilities.spec(test, run.spec))
        return dict(_with_stated_port(run.told or {}, stated))


def _data_of_lead(run: DueRun, place: int, stated: int | None) -> Mapping[str, Any]:
    """Return what the lead says of a participant: its own word, if it is the lead."""
    return _with_stated_port(run.data.get(str(place), {}), stated)


def _with_stated_port(data: Mapping[str, Any], port: int | None) -> Mapping[str, Any]:
    """Return the data of a participant, with the port that the spec states if it assigned none."""
    return {"port": port} if port is not None and not data else data
