"""Order within a series, for archivers that are told of each document on its own."""

from __future__ import annotations

from collections.abc import Sequence

from node.plugins.contracts import Delivery, Fate, Outcome


def in_order(batch: Sequence[Delivery], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, with none accepted behind one of its series that is to be tried again.

    What was taken out of order comes again, behind the one that was not; its key is the same.
    """
    held: dict[str, Outcome] = {}
    kept = []
    for one, outcome in zip(batch, outcomes, strict=True):
        said = outcome
        if one.series in held and outcome.fate is Fate.ACCEPTED:
            said = Outcome(Fate.AGAIN, "comes after one of its task that was not taken")
        elif outcome.fate is Fate.AGAIN:
            held.setdefault(one.series, outcome)
        kept.append(said)
    return kept
