"""Real programs that print records while they run: read as they come, bounded, in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

from node.execution import process
from node.execution.forwarder import BATCH_MAX, RETRY_S, IntervalForwarder
from node.execution.process import RunningProcess
from node.execution.streams import RECORD_BYTES_MAX, RECORDS_WAITING_MAX
from node.model.errors import DatabaseUnavailable, ToolOutputError
from node.model.intervals import Interval
from node.runtime.clock import Clock, SystemClock
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S

RS = "\\x1e"
Keep = Callable[[Sequence[Interval]], Awaitable[None]]


async def printing(script: str) -> RunningProcess:
    """Start a program with this code."""
    argv = (sys.executable, "-I", "-S", "-c", f"import sys, time\n{script}")
    return await process.start(argv, streams=True)


async def records(running: RunningProcess) -> list[bytes]:
    """Return all records of a program."""
    return [record async for record in running.records()]


async def test_records_come_while_the_program_runs() -> None:
    """A record is available before the program has ended; other lines are normal output."""
    running = await printing(f"print('one\\n{RS}two', flush=True); sys.stdin.read(); input()")
    async for record in running.records():
        assert record == b"two"
        break
    await running.end(0)
    running = await printing(f"print('{RS}a\\nb\\n{RS}c\\nd{RS}e')")
    assert await records(running) == [b"a", b"c"]
    assert (await running.wait()).stdout == b"b\nd\x1ee\n"


async def test_a_record_in_pieces_is_one() -> None:
    """A record that is flushed in pieces is one record; without a line end it is none."""
    running = await printing(
        f"for part in ('{RS}a', 'b', 'c\\n{RS}', 'd\\n{RS}cut'): print(part, end='', flush=True)"
    )
    assert await records(running) == [b"abc", b"d"]
    assert (await running.wait()).stdout == b""


async def test_a_record_without_end_is_cut() -> None:
    """A record that is too long is cut, and the next one is whole."""
    running = await printing(f"print('{RS}' + 'x' * 2_000_000); print('{RS}y')")
    found = await records(running)
    assert [len(record) for record in found] == [RECORD_BYTES_MAX - 1, 1]
    await running.wait()


async def test_a_flood_of_records_is_bounded() -> None:
    """Records that nobody reads are discarded beyond a bound, without blocking the program."""
    running = await printing(f"sys.stdout.write('{RS}x\\n' * 100_000)")
    finished = await running.wait()
    assert finished.truncated
    assert len(await records(running)) == RECORDS_WAITING_MAX


async def test_a_program_that_does_not_stream_has_no_records() -> None:
    """Without ``streams``, a line with RS is output like any other."""
    running = await process.start(("printf", "\\036a\\n"))
    assert await records(running) == []
    assert (await running.wait()).stdout == b"\x1ea\n"


def read(record: bytes) -> Interval:
    """Parse a record as the number of its interval, with a result."""
    if not record.isdigit():
        msg = f"{record!r} is not a number"
        raise ToolOutputError(msg)
    return Interval(int(record), {"number": int(record)})


async def relayed(
    script: str, keep: Keep | None = None, count: int = 100, clock: Clock | None = None
) -> list[list[Interval]]:
    """Return the batches in which a program's intervals were forwarded."""
    batches: list[list[Interval]] = []

    async def take(batch: Sequence[Interval]) -> None:
        if keep is not None:
            await keep(batch)
        batches.append(list(batch))

    running = await printing(script)
    await IntervalForwarder(read, take, count, clock or SystemClock(), pause_s=0.05).run(running)
    await running.wait()
    return batches


async def test_intervals_are_handed_on_in_order_and_in_batches() -> None:
    """All intervals arrive once and in order, several at a time if they come fast."""
    batches = await relayed(f"[print('{RS}%d' % number) for number in range(40)]")
    numbers = [each.number for batch in batches for each in batch]
    assert numbers == list(range(40))
    assert max(map(len, batches)) == BATCH_MAX


async def test_a_bad_record_is_a_gap_in_its_place() -> None:
    """A record that is invalid, repeated, or out of turn becomes a gap that says so."""
    batches = await relayed(f"[print('{RS}%s' % word) for word in ('0', 'nan', '1', '3', '7')]")
    found = [each for batch in batches for each in batch]
    assert [(each.number, each.result is None) for each in found] == [
        (0, False), (1, True), (2, True), (3, False), (4, True),
    ]  # fmt: skip
    assert found[1].reason == "b'nan' is not a number"
    assert found[2].reason == "the program reported interval 1 instead of 2"


async def test_more_intervals_than_there_are_go_nowhere() -> None:
    """Surplus intervals of a program are not forwarded."""
    batches = await relayed(f"[print('{RS}%d' % number) for number in range(500)]", count=3)
    assert [each.number for batch in batches for each in batch] == [0, 1, 2]


class Pausing(ManualClock):
    """A clock on which no pause takes any time."""

    def __init__(self) -> None:
        """Note no pauses yet."""
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Note how long the pause should be."""
        self.pauses.append(seconds)


async def test_a_database_that_is_away_costs_no_interval() -> None:
    """Intervals that cannot be stored now are stored later, once."""
    away = iter([True, True, False])

    async def keep(_: Sequence[Interval]) -> None:
        if next(away, False):
            msg = "restarting"
            raise DatabaseUnavailable(msg)

    clock = Pausing()
    script = f"print('{RS}0'); print('{RS}1')"
    batches = await asyncio.wait_for(relayed(script, keep, clock=clock), PATIENCE_S)
    assert [each.number for batch in batches for each in batch] == [0, 1]
    assert clock.pauses == [RETRY_S, RETRY_S]


async def test_an_interval_does_not_wait_for_others() -> None:
    """The first one is forwarded at once, however long the pause between batches is."""
    running, kept = await printing(f"print('{RS}0', flush=True); time.sleep(600)"), asyncio.Event()

    async def keep(batch: Sequence[Interval]) -> None:
        assert [each.number for each in batch] == [0]
        kept.set()

    forwarder = IntervalForwarder(read, keep, 100, SystemClock(), pause_s=5 * PATIENCE_S)
    forwarding = asyncio.create_task(forwarder.run(running))
    await asyncio.wait_for(kept.wait(), PATIENCE_S)
    await running.end(0)
    await asyncio.wait_for(forwarding, PATIENCE_S)


async def test_what_can_never_be_kept_is_a_gap() -> None:
    """An interval that the database refuses is stored as a gap instead."""

    async def keep(batch: Sequence[Interval]) -> None:
        if any(each.result for each in batch):
            raise ZeroDivisionError

    [[interval]] = await relayed(f"print('{RS}0')", keep)
    assert interval.result is None
    assert "could not be kept" in (interval.reason or "")
