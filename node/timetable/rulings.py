"""Commits and releases exchanges, as their leads have decided."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from node.model.errors import NotAllowed, NotFound, ParleyError
from node.model.exchangestate import ExchangeState, NegotiationState
from node.model.outside_leads import is_outside
from node.model.ranks import FIRM
from node.model.wire.participants import CommitAnswer, CommitRequest, DecisionAnswer
from node.store import bookings, notices
from node.store.bookings import ExchangeRuling
from node.store.core import Core
from node.store.database import Connection


class RulingApplier:
    """Applies the rulings of leads to the runs held here."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock

    async def apply_all(
        self, rulings: Sequence[ExchangeRuling]
    ) -> list[CommitAnswer | ParleyError]:
        """Apply each ruling, all in one transaction; return the answers in the same order."""
        return await self._database.settle(lambda connection: self._apply(connection, rulings))

    async def _apply(
        self, connection: Connection, rulings: Sequence[ExchangeRuling]
    ) -> list[CommitAnswer | ParleyError]:
        now = self._clock.now()
        # A release may overtake its hold. It is stored first, so that the hold finds it.
        if releases := [ruling for ruling in rulings if ruling.commit is None]:
            await bookings.keep_early_releases(connection, releases, now)
        decided = await bookings.decide(connection, rulings, now)
        keep = [(r.exchange, run) for r in rulings if r.commit for run in r.commit.runs]
        dropped = []
        if led := [exchange for exchange, (_, led_here) in decided.items() if led_here]:
            waiting = await bookings.drop_led_runs(connection, led, keep, now)
            if waiting:
                # The worker that planned them may be gone: another must learn when they are due.
                tasks = dict.fromkeys(decided[exchange][0] for exchange in led)
                await notices.notify_all(connection, [("task", task, "plan") for task in tasks])
            dropped += waiting
        if others := [exchange for exchange, (_, led_here) in decided.items() if not led_here]:
            dropped += await bookings.drop_runs(connection, others, keep)
        lost = await bookings.restore(connection, dropped, now)
        committed = [r.exchange for r in rulings if r.commit and r.exchange in decided]
        if committed:
            lost += await bookings.displace(connection, committed, now)
        await bookings.tell_leads(connection, lost, now)
        if firm := [r.exchange for r in rulings if r.exchange in committed and _is_firm(r)]:
            await bookings.raise_rank(connection, firm, FIRM)
        if committed:
            told = [("exchange", each, decided[each][0], "committed") for each in committed]
            await notices.notify_all(connection, told)
        undecided = [ruling for ruling in rulings if ruling.exchange not in decided]
        answers = await _answers_to_undecided(connection, undecided) if undecided else {}
        return [answers.get(ruling.exchange, CommitAnswer()) for ruling in rulings]

    async def decision(self, exchange: UUID, sender: str | None) -> DecisionAnswer:
        """Return the commit of an exchange that this node leads, or that it is open or aborted.

        An unknown exchange is aborted.

        :raises NotFound: ``sender`` takes no part in it.
        """
        async with self._database.connection() as connection:
            row = await bookings.decision(connection, exchange, self._clock.now(), sender)
        if row is None:
            return DecisionAnswer(state=NegotiationState.ABORTED)
        state, message, concerned = row
        if not concerned:
            msg = f"no exchange {exchange} of a task in which you take part is known here"
            raise NotFound(msg)
        commit = None if message is None else CommitRequest.model_validate(message)
        return DecisionAnswer(state=state, commit=commit)


def _is_firm(ruling: ExchangeRuling) -> bool:
    """Return whether what is committed gives way to nobody, because its lead cannot be told."""
    return ruling.sender is not None and is_outside(ruling.sender)


async def _answers_to_undecided(
    connection: Connection, rulings: Sequence[ExchangeRuling]
) -> dict[UUID, CommitAnswer | ParleyError]:
    """Return the answers to rulings on exchanges that were not held, by exchange.

    A ruling that is repeated is answered as before; one for an exchange that is not committed is
    late.
    """
    exchanges = await bookings.exchange_standings(connection, [each.exchange for each in rulings])
    tasks = await bookings.task_standings(connection, [r.task for r in rulings if r.task])
    answers: dict[UUID, CommitAnswer | ParleyError] = {}
    for ruling in rulings:
        exchange = exchanges.get(ruling.exchange)
        lead = exchange.lead if exchange else None
        if lead is None and ruling.task in tasks:
            lead = tasks[ruling.task][1]
        if lead is not None and ruling.sender not in (None, lead):
            msg = f"exchange {ruling.exchange} is led by another node"
            answers[ruling.exchange] = NotAllowed(msg)
        else:
            late = exchange is None or exchange.state is not ExchangeState.COMMITTED
            answers[ruling.exchange] = CommitAnswer(late=late)
    return answers
