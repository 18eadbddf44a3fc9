"""Many requests at a time: all are tried, few at once, and what is hopeless stops them."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from node.cli.listing import collect_all
from node.cli.meshapply import MeshWorker
from node.cli.progress import Progress
from node.client.responses import Page
from node.model import times
from node.model.errors import (
    Conflict,
    DatabaseUnavailable,
    NotAllowed,
    ParleyError,
    PeerUnreachable,
    RefusedByParticipant,
)
from tests.support.clocks import ManualClock


class _Hasty(ManualClock):
    """Whoever sleeps moves it on."""

    slept: list[float]

    async def sleep(self, seconds: float) -> None:
        """Not a moment."""
        self.slept = [*getattr(self, "slept", ()), seconds]
        self.advance(round(seconds * times.SECOND))
        await super().sleep(0)


def _work(clock: ManualClock, at_once: int) -> tuple[MeshWorker, io.StringIO]:
    told = io.StringIO()
    return MeshWorker(Progress(stream=told), clock, at_once), told


@pytest.mark.parametrize("at_once", [1, 3, 64])
async def test_all_are_tried_and_few_at_once(clock: ManualClock, at_once: int) -> None:
    """Failures are counted by cause, with one of those they met; the most frequent sets the end."""
    work, told = _work(clock, at_once)
    seen: list[int] = []
    most = running = 0

    async def act(number: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await clock.sleep(0)
        clock._now += times.SECOND
        seen.append(number)
        running -= 1
        if number % 3 == 0:
            raise RefusedByParticipant("b: no")
        if number == 1:
            raise Conflict("twice")

    await work.each("created", range(10), str, act)
    assert sorted(seen) == list(range(10))
    assert most == min(at_once, 10)
    assert (work.done["created"], work.left, work.exit_code) == (5, 0, 3)
    assert [(f["detail"], f["count"]) for f in work.failures()] == [("b: no", 4), ("twice", 1)]
    assert work.failures()[0]["example"] == "0"
    assert "created: 5 of 10, 1.0/s, 5 s left" in told.getvalue()


@pytest.mark.parametrize("error", [NotAllowed("not you"), Conflict("twice")])
async def test_what_is_hopeless_stops_all(clock: ManualClock, error: ParleyError) -> None:
    """What is left is counted, also of what would have come behind it."""
    work, _ = _work(clock, 1)

    async def act(number: int) -> None:
        if number == 2:
            raise error

    await work.each("edited", range(5), str, act)
    await work.each("created", range(5), str, act)
    hopeless = isinstance(error, NotAllowed)
    assert (work.done["edited"], work.left) == ((2, 7) if hopeless else (4, 0))
    assert work.done["created"] == (0 if hopeless else 4)


@pytest.mark.parametrize("error", [PeerUnreachable("no answer"), DatabaseUnavailable("away")])
@pytest.mark.parametrize("silences", range(7))
async def test_a_silence_is_sat_out(silences: int, error: ParleyError) -> None:
    """After growing pauses it is asked again; a silence that lasts stops all."""
    clock, tries = _Hasty(), 0
    work, told = _work(clock, 1)

    async def act(number: int) -> None:
        nonlocal tries
        tries += number == 2
        if number == 2 and tries <= silences:
            raise error

    await work.each("created", range(5), str, act)
    assert getattr(clock, "slept", []) == [1, 2, 4, 8, 16][:silences]
    assert (f"{error.detail}; asking again in 1 s" in told.getvalue()) == (silences > 0)
    over = silences > 5
    assert (tries, work.done["created"]) == (min(silences + 1, 6), 2 if over else 5)
    assert (sum(work.failed.values()), work.left, work.stopped) == (
        (1, 2, True) if over else (0, 0, False)
    )


async def test_who_is_silent_to_one_only_is_asked_for_the_others() -> None:
    """One request that never gets an answer fails alone; a refusal is an answer, too."""
    work, _ = _work(_Hasty(), 2)
    tried: list[int] = []

    async def act(number: int) -> None:
        tried.append(number)
        if number == 0:
            raise PeerUnreachable("no answer")
        if number % 2:
            raise Conflict("twice")

    await work.each("created", range(40), str, act)
    assert (work.done["created"], work.left, work.stopped) == (19, 0, False)
    assert [failure["count"] for failure in work.failures()] == [20, 1]
    assert tried.count(0) == 6


async def test_all_stop_once_one_gives_up() -> None:
    """Nobody begins another pause or another item behind a node that is gone."""
    clock, tries = _Hasty(), 0
    work, _ = _work(clock, 8)

    async def act(_: int) -> None:
        nonlocal tries
        tries += 1
        raise PeerUnreachable("no answer")

    await work.each("created", range(100), str, act)
    assert tries <= 8 * 6
    assert sum(work.failed.values()) + work.left == 100
    assert (work.exit_code, len(work.failures())) == (5, 1)


class _Silent:
    """Answers page by page, but for the first so many times it is asked for the second one."""

    def __init__(self, silences: int) -> None:
        self.left = silences
        self.asked: list[str | None] = []

    async def page(self, cursor: str | None) -> Page[int]:
        """A page of two."""
        self.asked.append(cursor)
        if cursor is None:
            return Page((1, 2), "2")
        self.left -= 1
        if self.left >= 0:
            raise DatabaseUnavailable("the database is away")
        return Page((3,), None)


@pytest.mark.parametrize("silences", [0, 1, 5])
async def test_a_page_is_asked_for_again(silences: int) -> None:
    """A node that is silent for a moment costs that one page, and not those before it."""
    clock, told, silent = _Hasty(), io.StringIO(), _Silent(silences)
    session: Any = SimpleNamespace(clock=clock, progress=Progress(stream=told))
    assert await collect_all(session, silent.page, "reading") == [1, 2, 3]
    assert silent.asked == [None, *["2"] * (1 + silences)]
    assert getattr(clock, "slept", []) == [1, 2, 4, 8, 16][:silences]
    assert ("the database is away; asking again in 1 s" in told.getvalue()) is (silences > 0)


async def test_who_stays_silent_is_given_up() -> None:
    """After six questions the error is the command's."""
    clock, silent = _Hasty(), _Silent(6)
    session: Any = SimpleNamespace(clock=clock, progress=Progress(stream=io.StringIO()))
    with pytest.raises(DatabaseUnavailable):
        await collect_all(session, silent.page, "reading")
    assert len(silent.asked) == 1 + 6
