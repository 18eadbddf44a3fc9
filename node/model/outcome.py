"""The judgement of a run: is what was measured good, and if not, why. Pure.

Five facts tell how a run went: its state, whether anything arrived, how its figures compare with
thresholds, how far they can be trusted, and how old they are. One word sums up four of them, the
judgement; whoever shows, counts, sends, or colours an outcome asks for this word and for nothing
else. The fifth, the verdict (:mod:`.verdict`), stays beside it: a doubt about a figure is no fault
of the path.

Who judges what:

* The figures of a finished run are judged by :func:`judge`, once, at its lead, in the transaction
  that ends the run; the run keeps the word. If all packets of a direction were lost it is *no
  answer*, whatever the thresholds are; otherwise the worst figure decides, by the thresholds that
  the task has at that moment.
* Without figures the state decides. The function ``judgement_of`` of the schema has this mapping,
  also for runs that were finished by programs that did not judge. A participant has its own part
  alone, so to it a finished run of another lead is *unknown*.
* Age is judged on reading, since it grows: ``judgement_at`` of the schema makes *stale* of what is
  older than twice the interval of its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from node.model.reason import Reason
from node.model.reasons import (
    all_lost,
    all_lost_backward,
    all_lost_forward,
    beyond_threshold,
)

LOSS = "loss"
"""The name of the figure of lost packets, a fraction; in one direction each, if it has labels."""


class Judgement(StrEnum):
    """The judgement of a run, or of the newest run of a pair."""

    GOOD = "good"
    """Measured, and within the thresholds of its task, if there are any."""
    FAIR = "fair"
    """Measured, with a figure beyond the first threshold."""
    BAD = "bad"
    """Measured, with a figure beyond the second threshold."""
    NO_ANSWER = "no-answer"
    """Measured, and nothing arrived, in one direction at least."""
    FAILED = "failed"
    """Begun, and without a result."""
    MISSED = "missed"
    """Booked, and not begun: the node was down, or too late."""
    NOT_PLANNED = "not-planned"
    """Not to take place: no time was found, or it was lost or taken back."""
    STALE = "stale"
    """Older than twice the interval of its task."""
    UNKNOWN = "unknown"
    """Nothing is known here: no run is over yet, or its lead has the result."""


TROUBLE = frozenset({Judgement.BAD, Judgement.NO_ANSWER, Judgement.FAILED, Judgement.MISSED})
"""Judgements of runs that took place, or should have, and went wrong."""


BAD_RESULTS = frozenset({Judgement.BAD, Judgement.NO_ANSWER})
"""Judgements of runs that were measured, and went wrong."""


class Figure(Protocol):
    """A figure of a result."""

    @property
    def name(self) -> str:
        """The word for it in results, with the unit at its end."""
        ...

    @property
    def value(self) -> float:
        """The number, in the unit with which the name ends."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that distinguish it from figures of the same name."""
        ...


class Bounds(Protocol):
    """From which values on a figure is fair or bad; smaller ones are worse if bad is below fair."""

    @property
    def fair(self) -> float:
        """From this value on it is fair."""
        ...

    @property
    def bad(self) -> float:
        """From this value on it is bad."""
        ...


@dataclass(frozen=True)
class Judged:
    """A judgement of figures, and why it is not good; the reason is None if it is."""

    judgement: Judgement
    reason: Reason | None = None


def judge(figures: Iterable[Figure], thresholds: Mapping[str, Bounds]) -> Judged:
    """Judge the figures of a finished run by thresholds, which may name all of a name or one.

    >>> judge([], {}).judgement
    <Judgement.GOOD: 'good'>
    """
    shown = list(figures)
    losses = [each for each in shown if each.name == LOSS]
    if lost := [each for each in losses if each.value >= 1]:
        return Judged(Judgement.NO_ANSWER, _loss_reason(losses, lost))
    return max(
        (_judged_figure(each, thresholds) for each in shown),
        key=lambda judged: _WORSE.index(judged.judgement),
        default=Judged(Judgement.GOOD),
    )


_WORSE = (Judgement.GOOD, Judgement.FAIR, Judgement.BAD)


def full_name(figure: Figure) -> str:
    """Return the name of a figure with its labels, as lists have it: ``loss.forward``."""
    return ".".join((figure.name, *figure.labels.values()))


def _loss_reason(losses: Sequence[Figure], lost: Sequence[Figure]) -> Reason:
    """Return that all packets were lost, in one direction only if the other one is known."""
    one_way = len(lost) == 1 and len(losses) > 1
    kinds = {"forward": all_lost_forward, "backward": all_lost_backward}
    return kinds.get(lost[0].labels.get("direction", "") if one_way else "", all_lost)()


def _judged_figure(figure: Figure, thresholds: Mapping[str, Bounds]) -> Judged:
    name = full_name(figure)
    bounds = thresholds.get(name) or thresholds.get(figure.name)
    if bounds is None:
        return Judged(Judgement.GOOD)
    less = bounds.bad < bounds.fair
    for judgement, bound in ((Judgement.BAD, bounds.bad), (Judgement.FAIR, bounds.fair)):
        if figure.value <= bound if less else figure.value >= bound:
            worse = "less" if less else "more"
            return Judged(judgement, beyond_threshold(name, figure.value, bound, worse, judgement))
    return Judged(Judgement.GOOD)
