"""Time in which another run would exceed a limit on what runs have together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate
from node.model import times
from node.model.spans import at_least, normalise, subtract

Use = tuple[int, int, int]
"""Begin and end of a booked run, and how much it has of what is limited."""


@dataclass(frozen=True, slots=True)
class FullTime:
    """Time in which another run would exceed a limit.

    ``wanted`` has how much would be had with that run, each amount from an instant on;
    ``refuse(amount)`` refuses a run.
    """

    start: int
    end: int
    wanted: Sequence[tuple[int, int]]
    refuse: Callable[[int], PolicyRefusal] = field(compare=False)

    @classmethod
    def always(cls, start: int, end: int, refusal: PolicyRefusal) -> FullTime:
        """Return a time in which each run is refused alike."""
        return cls(start, end, ((start, 0),), lambda _: refusal)

    def refusal(self, start: int, end: int) -> PolicyRefusal:
        """Return the refusal of a run that touches this span, and when there is room again."""
        ends = [*(at for at, _ in self.wanted[1:]), self.end]
        within = [
            amount
            for (at, amount), until in zip(self.wanted, ends, strict=True)
            if at < end and start < until
        ]
        return self.refuse(max(within)).with_room_at(self.end)


def find_window_refusal(candidate: Candidate, full: Sequence[FullTime]) -> PolicyRefusal | None:
    """Return a refusal if some run finds no time within its slip outside the ``full`` time.

    It is that of the time that takes most of the run's window.
    """
    if not full:
        return None
    taken = normalise([(each.start, each.end) for each in full])
    for start, end in candidate.spans:
        window = start, end + candidate.slip
        if not at_least(subtract([window], taken), end - start):
            longest = max(
                full, key=lambda each: min(each.end, window[1]) - max(each.start, window[0])
            )
            return longest.refusal(*window)
    return None


def full_times(
    uses: Iterable[Use], own: int, most: int, refuse: Callable[[int], PolicyRefusal]
) -> list[FullTime]:
    """Return when so much of a limit is used that ``own`` more would exceed ``most``, in order."""
    if own > most:
        return [FullTime.always(0, times.LATEST, refuse(own))]
    changes: dict[int, int] = {}
    for start, end, amount in uses:
        if amount:
            changes[start] = changes.get(start, 0) + amount
            changes[end] = changes.get(end, 0) - amount
    full: list[FullTime] = []
    wanted: list[tuple[int, int]] = []
    used = 0
    for at in sorted(changes):
        used += changes[at]
        if used + own > most:
            wanted.append((at, used + own))
        elif wanted:
            full.append(FullTime(wanted[0][0], at, tuple(wanted), refuse))
            wanted = []
    return full
