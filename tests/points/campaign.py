"""The choice of the crossings that are tried, and the outcome of all of them."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from lead.simulation.server import server
from node.model import times
from tests.points.crossing import Phase
from tests.points.play import Crossing, Played, play
from tests.points.scope import Point
from tests.points.stories import Story, story
from tests.soak.seeds import end_with

_AT_ONCE = 4
"""Trials given to a worker together."""


@dataclass(frozen=True)
class Trial:
    """One kill: in which story, at which crossing, and how long the process stays away (s)."""

    story: str
    crossing: Crossing
    down_s: float

    def __str__(self) -> str:
        """Return what a replay needs."""
        at = self.crossing
        return (
            f"{self.story}: {at.process} {at.phase} {at.point}, visit {at.visit}, "
            f"away {self.down_s:g} s"
        )


@dataclass(frozen=True)
class Verdict:
    """The outcome of a trial."""

    trial: Trial
    killed: bool
    violations: tuple[str, ...]


def rehearse(stories: Iterable[Story]) -> dict[str, Played]:
    """Play each story without a kill."""
    return {it.name: play(it) for it in stories}


def trials(
    rehearsals: Mapping[str, Played], *, visits: int, downs_s: Sequence[float]
) -> list[Trial]:
    """Return the trials: each point, before and after, in each process that crosses it.

    A point is tried in the first story that reaches it in a process of that kind, at its first
    crossing there and at ``visits - 1`` later ones, evenly spread.
    """
    chosen: list[Trial] = []
    known: set[tuple[Point, Phase, str]] = set()
    for name, played in rehearsals.items():
        new: set[tuple[Point, Phase, str]] = set()
        for crossing, count in sorted(played.crossed.items(), key=_order):
            key = (crossing.point, crossing.phase, crossing.process)
            if key in known:
                continue
            new.add(key)
            for visit in _spread(count, visits):
                at = Crossing(crossing.point, crossing.phase, crossing.process, visit)
                chosen += [Trial(name, at, down_s) for down_s in downs_s]
        known |= new
    return chosen


def _order(item: tuple[Crossing, int]) -> tuple[Point, str, str]:
    crossing, _ = item
    return crossing.point, crossing.process, crossing.phase


def _spread(count: int, wanted: int) -> list[int]:
    """Return up to ``wanted`` of the numbers 1 to ``count``: the first, the last, some between."""
    if wanted == 1 or count == 1:
        return [1]
    last = min(wanted, count) - 1
    return sorted({1 + (count - 1) * place // last for place in range(last + 1)})


def try_one(trial: Trial) -> Verdict:
    """Play a story with its kill."""
    down = round(trial.down_s * times.SECOND)
    try:
        played = play(story(trial.story), trial.crossing, down=down)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the outcome
        return Verdict(trial, killed=True, violations=(f"the story ended: {error!r}",))
    return Verdict(trial, played.killed_at is not None, played.violations)


def tried(chosen: Sequence[Trial], jobs: int) -> Iterator[Verdict]:
    """Try all in several processes; yield the verdicts as they come."""
    server()  # started here, so that all workers share it
    with ProcessPoolExecutor(jobs, initializer=end_with, initargs=(os.getpid(),)) as pool:
        yield from pool.map(try_one, chosen, chunksize=_AT_ONCE)


@dataclass(frozen=True)
class Row:
    """The figures of one file."""

    file: str
    points: int
    reached: int
    killed: int
    trials: int
    broken: int


def rows(points: Iterable[Point], verdicts: Iterable[Verdict], reached: set[Point]) -> list[Row]:
    """Return the figures by file; ``killed`` and ``broken`` count points."""
    by_point: dict[Point, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_point[verdict.trial.crossing.point].append(verdict)
    by_file: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_file[point.file].append(point)
    return [
        Row(
            file,
            len(found),
            len(reached.intersection(found)),
            sum(any(it.killed for it in by_point[point]) for point in found),
            sum(len(by_point[point]) for point in found),
            sum(any(it.violations for it in by_point[point]) for point in found),
        )
        for file, found in sorted(by_file.items())
    ]


def as_json(
    table: Sequence[Row], verdicts: Sequence[Verdict], unreached: Sequence[Point]
) -> dict[str, Any]:
    """Return everything as a JSON document."""
    return {
        "files": [asdict(row) for row in table],
        "broken": [
            {"trial": str(it.trial), "violations": it.violations}
            for it in verdicts
            if it.violations
        ],
        "missed": [str(it.trial) for it in verdicts if not it.killed],
        "unreached": [str(point) for point in unreached],
    }
