"""Concurrent requests: all are attempted, a few at a time, and hopeless failures stop them."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from node.cli.listing import collect_all
from node.cli.many_requests import MeshWorker
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
    """A clock on which sleeping advances the time."""

    slept: list[float]

    async def sleep(self, seconds: float) -> None:
        """Record the duration and advance the clock."""
        self.slept = [*getattr(self, "slept", ()), seconds]
        self.advance(round(seconds * times.SECOND))
        await super().sleep(0)


def _work(clock: ManualClock, at_once: int) -> tuple[MeshWorker, io.StringIO]:
    output = io.StringIO()
    return MeshWorker(Progress(stream=output), clock, at_once), output


@pytest.mark.parametrize("at_once", [1, 3, 64])
async def test_all_are_tried_and_few_at_once(clock: ManualClock, at_once: int) -> None:
    """Failures are counted by cause with an example, and the most frequent sets the exit code."""
    work, output = _work(clock, at_once)
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
    assert "created: 5 of 10, 1.0/s, 5 s left" in output.getvalue()


@pytest.mark.parametrize("error", [NotAllowed("not you"), Conflict("twice")])
async def test_hopeless_failures_stop_all(clock: ManualClock, error: ParleyError) -> None:
    """After a hopeless failure the remaining items are counted, also those of later verbs."""
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
async def test_requests_are_retried_while_the_node_is_silent(
    silences: int, error: ParleyError
) -> None:
    """A request is retried after growing pauses, and a lasting silence stops all."""
    clock, tries = _Hasty(), 0
    work, output = _work(clock, 1)

    async def act(number: int) -> None:
        nonlocal tries
        tries += number == 2
        if number == 2 and tries <= silences:
            raise error

    await work.each("created", range(5), str, act)
    assert getattr(clock, "slept", []) == [1, 2, 4, 8, 16][:silences]
    assert (f"{error.detail}; retrying in 1 s" in output.getvalue()) == (silences > 0)
    over = silences > 5
    assert (tries, work.done["created"]) == (min(silences + 1, 6), 2 if over else 5)
    assert (sum(work.failed.values()), work.left, work.stopped) == (
        (1, 2, True) if over else (0, 0, False)
    )


async def test_one_unanswered_request_fails_alone() -> None:
    """A request that never gets an answer fails alone, and a refusal counts as an answer."""
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
    """No worker starts another pause or another item once one has given up."""
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
    """Answers page by page, but fails the first requests for the second page."""

    def __init__(self, silences: int) -> None:
        self.left = silences
        self.asked: list[str | None] = []

    async def page(self, cursor: str | None) -> Page[int]:
        """Return a page of two items, or fail."""
        self.asked.append(cursor)
        if cursor is None:
            return Page((1, 2), "2")
        self.left -= 1
        if self.left >= 0:
            raise DatabaseUnavailable("the database is away")
        return Page((3,), None)


@pytest.mark.parametrize("silences", [0, 1, 5])
async def test_a_page_is_requested_again(silences: int) -> None:
    """A short silence repeats only one page, not those before it."""
    clock, output, silent = _Hasty(), io.StringIO(), _Silent(silences)
    session: Any = SimpleNamespace(clock=clock, progress=Progress(stream=output))
    assert await collect_all(session, silent.page, "reading") == [1, 2, 3]
    assert silent.asked == [None, *["2"] * (1 + silences)]
    assert getattr(clock, "slept", []) == [1, 2, 4, 8, 16][:silences]
    assert ("the database is away; retrying in 1 s" in output.getvalue()) is (silences > 0)


async def test_a_lasting_silence_is_an_error() -> None:
    """After six attempts the error is raised."""
    clock, silent = _Hasty(), _Silent(6)
    session: Any = SimpleNamespace(clock=clock, progress=Progress(stream=io.StringIO()))
    with pytest.raises(DatabaseUnavailable):
        await collect_all(session, silent.page, "reading")
    assert len(silent.asked) == 1 + 6
