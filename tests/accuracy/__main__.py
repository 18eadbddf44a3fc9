"""``make accuracy``: runs every test over known WANs, and writes the table into the docs.

``python -m tests.accuracy WORD…`` measures only tests or tools of these names, and prints the table
instead; the word ``broken`` measures over broken paths only, and writes that part (``broken WORD…``
prints the chosen ones). Needs root, for the namespaces. It fails if a run had no result though no
packet was lost, or does not tell what it must of a broken path.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from node.execution import process
from node.execution.trial import Trial
from node.plugins import registry
from node.plugins.contracts import Tool
from node.runtime.clock import SystemClock
from tests.accuracy.broken import (
    HEAD,
    BrokenCase,
    BrokenRow,
    broken_cases,
    broken_row,
    written_broken,
)
from tests.accuracy.cases import Case, cases
from tests.accuracy.ground import Ground, Truth, ground
from tests.accuracy.table import Row, written

DOCUMENT = Path(__file__).parents[2] / "node/plugins/ACCURACY.md"


LANES = 4
"""Number of concurrent runs, each over a WAN of its own, except those that must be alone."""
_INTO_S = 2.5
"""The delay after which a trial's first interval has begun."""


async def rows_of(place: Ground, case: Case) -> list[Row]:
    """Run one case, and compare it with what the WAN did."""
    test, tool = registry.tests()[case.test], registry.tools()[case.tool]
    spec = test.spec_model.model_validate(dict(case.spec))
    async with place.wan(case.wan, case.link_bytes) as truth, asyncio.TaskGroup() as under_way:
        if case.echoes is not None:
            under_way.create_task(_send(place, *case.echoes, case.ip_version))
        trial = await place.measure(test, tool, spec, case.ip_version)
    return list(_compared(case, truth, trial))


async def _send(place: Ground, count: int, octets: int, ip_version: int) -> None:
    await SystemClock().sleep(_INTO_S)
    await place.send(count, octets, ip_version)


def _compared(case: Case, truth: Truth, trial: Trial) -> Iterator[Row]:
    who = (case.test, case.tool, case.condition)
    merged, about = trial.merged, (truth.late_ms_max, case.wan.loss > 0)
    if merged.result is None or merged.reason is not None:
        yield Row(*who, "no result", 0, 0, *about, reason=merged.reason or "no result")
        return
    for figure, (true, reported) in case.compare(case, truth, trial).items():
        yield Row(*who, figure, true, reported, *about)


async def rows_of_all(chosen: Sequence[Case]) -> list[Row]:
    """Run all cases, and return the rows in the order of the cases."""
    rows: dict[int, list[Row]] = {}
    waiting: deque[tuple[int, Case]] = deque()

    async def work() -> None:
        async with ground() as place:
            while waiting:
                number, case = waiting.popleft()
                progress = f"{len(rows) + 1}/{len(chosen)}"
                sys.stderr.write(f"{progress} {case.test} {case.tool} {case.condition}\n")
                rows[number] = await rows_of(place, case)

    for alone, lanes in ((False, LANES), (True, 1)):
        waiting += [(at, case) for at, case in enumerate(chosen) if case.alone == alone]
        async with asyncio.TaskGroup() as under_way:
            for _ in range(min(lanes, len(waiting))):
                under_way.create_task(work())
    return [row for number in sorted(rows) for row in rows[number]]


async def version_of(tool: Tool) -> str:
    """Return ``iperf3 3.12``; our own programs have Parley's version."""
    if tool.requirement is None:
        return f"{tool.name} of Parley"
    finished = await process.finish(tool.requirement.version_argv, timeout_s=10)
    printed = (finished.stdout + finished.stderr).decode(errors="replace")
    match = re.search(tool.requirement.version_pattern, printed)
    return f"{tool.name} {match[1] if match else 'of an unknown version'}"


async def broken_rows_of_all(chosen: Sequence[BrokenCase]) -> list[BrokenRow]:
    """Run all cases of broken paths, and return their rows in the order of the cases."""
    rows: dict[int, BrokenRow] = {}
    waiting = deque(enumerate(chosen))

    async def work() -> None:
        async with ground() as place:
            while waiting:
                number, case = waiting.popleft()
                sys.stderr.write(f"{len(rows) + 1}/{len(chosen)} {case.name}: {case.fault}\n")
                rows[number] = await broken_row(place, case)

    async with asyncio.TaskGroup() as under_way:
        for _ in range(min(LANES, len(waiting))):
            under_way.create_task(work())
    return [rows[number] for number in sorted(rows)]


async def break_paths(wanted: Sequence[str]) -> int:
    """Measure over broken paths, and write their part of the table, or print a chosen one."""
    chosen = [it for it in broken_cases() if not wanted or {it.test, it.tool} & set(wanted)]
    rows = await broken_rows_of_all(chosen)
    part = written_broken(rows)
    if wanted:
        sys.stdout.write(part)
    else:
        DOCUMENT.write_text(DOCUMENT.read_text().partition(HEAD)[0] + part)
    wrong = [row for row in rows if row.fault is not None]
    for row in wrong:
        sys.stderr.write(f"{row.case.name}, {row.case.fault}: {row.fault}: {row.told}\n")
    return 1 if wrong else 0


async def main(wanted: Sequence[str]) -> int:
    """Measure, print the progress, and write the table."""
    if wanted[:1] == ["broken"]:
        return await break_paths(wanted[1:])
    chosen = [case for case in cases() if not wanted or {case.test, case.tool} & set(wanted)]
    rows = await rows_of_all(chosen)
    tools = [registry.tools()[name] for name in dict.fromkeys(case.tool for case in chosen)]
    document = written(rows, [await version_of(tool) for tool in tools])
    if wanted:
        sys.stdout.write(document)
    else:
        DOCUMENT.write_text(document)
        sys.stderr.write(f"written: {DOCUMENT}\n")
    faulty = any(row.reason and not row.lossy for row in rows)
    return 1 if faulty or (not wanted and await break_paths(())) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
