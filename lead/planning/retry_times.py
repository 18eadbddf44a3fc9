"""The earliest instants to ask nodes again, as these name them in their answers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from lead.planning.agenda import Slot
from lead.planning.host_quotas import QuotaCount
from node.model.errors import ParleyError, TooManyRequests
from node.model.times import SECOND
from node.model.wire.participants import AboveShare, HoldAnswer, Proposal, RunRequest


def proposed_retry_times(
    slots: Sequence[Slot],
    unplaced: Collection[int],
    proposals: Mapping[str, Proposal],
    quotas: QuotaCount | None = None,
) -> dict[int, int]:
    """Return when to ask again for these unplaced slots, by nominal start.

    The latest instant that a participant named counts, since a run needs all of them. ``quotas``
    have counted the runs that were chosen.
    """
    later: dict[int, int] = {}
    for proposal in proposals.values():
        for obstacle in proposal.obstacles:
            if isinstance(obstacle, AboveShare):
                nominal = slots[obstacle.window].nominal
                if nominal in unplaced:
                    later[nominal] = max(later.get(nominal, 0), obstacle.later)
    if quotas is not None and quotas.counts_shares:
        for slot in slots:
            if slot.nominal in unplaced and (at := quotas.later(slot)) is not None:
                later[slot.nominal] = max(later.get(slot.nominal, 0), at)
    return later


def busy_until(errors: Iterable[object], now: int) -> int | None:
    """Return when those participants may be asked again that are asked too much; or None."""
    told = [error.retry_after_s for error in errors if isinstance(error, TooManyRequests)]
    return now + max(told) * SECOND if told else None


def refused_retry_times(
    requests: Mapping[int, RunRequest], answers: Sequence[HoldAnswer | ParleyError], now: int
) -> dict[int, int]:
    """Return when to ask again for the runs that participants refused to hold, by nominal start."""
    nominals = {request.run: nominal for nominal, request in requests.items()}
    busy = busy_until(answers, now)
    later: dict[int, int] = {} if busy is None else dict.fromkeys(requests, busy)
    for answer in answers:
        for refusal in answer.refused if isinstance(answer, HoldAnswer) else ():
            if isinstance(refusal.obstacle, AboveShare):
                nominal = nominals[refusal.run]
                later[nominal] = max(later.get(nominal, 0), refusal.obstacle.later)
    return later
