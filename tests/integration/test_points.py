"""``make points``: await points are found, processes die exactly there, and what breaks is seen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from lead.assembly.lead import Lead
from lead.model.records import Claim
from lead.simulation.node import SimulatedNode
from tests.points.campaign import rehearse, trials
from tests.points.crossing import Phase
from tests.points.play import Crossing, Played, play
from tests.points.scope import Kind, Point, awaited, points
from tests.points.stories import STORIES, story
from tests.soak.variants import no_presumed_abort

SAMPLE = 4
PROGRAM = """
class Booker:
    async def book(self):
        async with self.transaction() as connection:
            await connection.write(await connection.read())
        async for row in self.rows():
            [found async for found in row]
"""


@pytest.fixture(scope="module")
def displacement() -> Played:
    """The story of a displaced run, played without a kill."""
    return rehearse([story("displacement")])["displacement"]


def _point(file: str, inside: str, kind: Kind) -> Point:
    """Return the only point of this form in a function."""
    [found] = [
        it for it in points() if (it.file, it.inside, it.kind) == (f"{file}.py", inside, kind)
    ]
    return found


def test_every_form_of_an_await_point_is_found() -> None:
    """Awaits, beginnings and ends of blocks, and steps of loops are points, nested ones too."""
    found = [it for named in awaited(ast.parse(PROGRAM), "it.py") for it in named.points]
    assert sorted((it.line, it.kind.value) for it in found) == [
        (4, "async with"),
        (4, "end of async with"),
        (5, "await"),
        (5, "await"),
        (6, "async for"),
        (7, "async for"),
    ]
    assert {it.inside for it in found} == {"Booker.book"}


@pytest.mark.parametrize("name", [each.name for each in STORIES])
@pytest.mark.nightly
def test_every_story_is_told_to_its_end(name: str) -> None:
    """Without a kill, a story breaks no promise; what it does exists in the program."""
    assert play(story(name)).violations == ()


@pytest.mark.nightly
def test_what_books_is_in_scope_and_reached(displacement: Played) -> None:
    """A single small story crosses hundreds of the points, in nodes and in leads."""
    assert displacement.violations == ()
    crossed = {it.point for it in displacement.crossed}
    assert crossed < set(points())
    assert len(crossed) > 200
    assert {it.process for it in displacement.crossed} == {"n1", "n1 lead", "n2", "n2 lead"}


@pytest.mark.nightly
def test_a_sample_of_kills_breaks_nothing(displacement: Played) -> None:
    """Each process of the sample dies at its point, and all promises are kept."""
    chosen = trials({"displacement": displacement}, visits=1, downs_s=[3.0])
    sample = chosen[:: len(chosen) // SAMPLE]
    for trial in sample:
        played = play(story("displacement"), trial.crossing)
        assert played.killed_at is not None, str(trial)
        assert played.violations == (), str(trial)


@pytest.mark.parametrize(
    ("name", "at", "process"),
    [
        ("contention", ("node/timetable/booking", "TimeLine.release", Kind.AWAIT), "n1 lead"),
        ("editing", ("node/tasks/editing", "TaskEditor.acknowledged", Kind.ENTER), "n1"),
    ],
)
@pytest.mark.nightly
def test_planning_goes_on_though_nobody_is_left_to_ask_for_it(
    name: str, at: tuple[str, str, Kind], process: str
) -> None:
    """Slots whose worker or acknowledgement was lost are planned when due, not at the next poll."""
    played = play(story(name), Crossing(_point(*at), Phase.BEFORE, process))
    assert played.killed_at is not None
    assert played.violations == ()


def holds_never_released(node: SimulatedNode, lead: Lead) -> None:
    """Release what a killed lead held neither at the takeover nor because it stays silent."""

    async def release_nothing(_claimed: Claim) -> None:
        pass

    no_presumed_abort(node, lead)
    planner: Any = lead.planner
    planner._release_of_predecessor = release_nothing


def parts_sent_apart(node: SimulatedNode, _lead: Lead) -> None:
    """Let the node store its part in one transaction and the message about it in another.

    Nor does it send the part again when its lead says that it has none.
    """
    collector: Any = node.collector
    sent: list[tuple[Any, ...]] = []
    keep: Callable[..., Any] = collector.keep_own

    async def post_later(_connection: Any, run: Any, part: Any) -> None:
        sent.append((run, part))

    async def keep_and_send(*args: Any) -> None:
        await keep(*args)
        async with node.database.transaction() as connection:
            while sent:
                run, part = sent.pop()
                await type(collector)._send(collector, connection, run, part)

    async def send_nothing(_lead: str, _asked: Any) -> None:
        pass

    collector._send, collector.keep_own = post_later, keep_and_send
    collector.send_again = send_nothing


@pytest.mark.parametrize(
    ("broken", "at", "process", "phase", "says"),
    [
        (
            holds_never_released,
            ("lead/exchange/decision", "AttemptRecorder._record_all", Kind.AWAIT),
            "n1 lead",
            Phase.BEFORE,
            "still holds exchange",
        ),
        (
            parts_sent_apart,
            ("node/execution/parts", "PartCollector.keep_own", Kind.AWAIT),
            "n2",
            Phase.AFTER,
            "never came",
        ),
    ],
)
@pytest.mark.nightly
def test_a_planted_bug_is_found(
    broken: Any, at: tuple[str, str, Kind], process: str, phase: Phase, says: str
) -> None:
    """A bug that shows only if a process dies at one point is found there, and nowhere else."""
    small, kill = story("displacement"), Crossing(_point(*at), phase, process)
    assert play(small, kill).violations == ()
    assert play(small, broken=broken).violations == ()
    assert any(says in violation for violation in play(small, kill, broken=broken).violations)
