"""``make accuracy``: every test over WANs whose truth is known; writes the table into the docs.

``python -m tests.accuracy WORD…`` measures only tests or tools of these names, and prints the table
instead. Needs root, for the namespaces.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from node.execution import process
from node.plugins import registry
from node.plugins.contracts import Tool
from tests.accuracy.cases import Case, cases
from tests.accuracy.ground import Ground, Truth, ground
from tests.accuracy.table import Row, written

DOCUMENT = Path(__file__).parents[2] / "node/plugins/ACCURACY.md"


async def rows_of(place: Ground, case: Case) -> list[Row]:
    """One run, compared with what the WAN did."""
    test, tool = registry.tests()[case.test], registry.tools()[case.tool]
    spec = test.spec_model.model_validate(dict(case.spec))
    async with place.wan(case.wan) as truth:
        trial = await place.measure(test, tool, spec, case.ip_version)
    return list(_compared(case, truth, trial.merged.result, trial.merged.reason))


def _compared(
    case: Case, truth: Truth, result: dict[str, object] | None, reason: str | None
) -> Iterator[Row]:
    who = (case.test, case.tool, case.condition)
    if result is None or reason is not None:
        yield Row(*who, "no result", 0, 0, reason or "no result")
        return
    for figure, (true, reported) in case.compare(case.wan, truth, result).items():
        yield Row(*who, figure, true, reported)


async def version_of(tool: Tool) -> str:
    """``iperf3 3.12``; our own programs have Parley's."""
    if tool.requirement is None:
        return f"{tool.name} of Parley"
    finished = await process.finish(tool.requirement.version_argv, timeout_s=10)
    printed = (finished.stdout + finished.stderr).decode(errors="replace")
    found = re.search(tool.requirement.version_pattern, printed)
    return f"{tool.name} {found[1] if found else 'of an unknown version'}"


async def main(wanted: Sequence[str]) -> int:
    """Measure, print how far it is, and write the table."""
    chosen = [case for case in cases() if not wanted or {case.test, case.tool} & set(wanted)]
    rows: list[Row] = []
    with ground() as place:
        for number, case in enumerate(chosen, 1):
            sys.stderr.write(f"{number}/{len(chosen)} {case.test} {case.tool} {case.condition}\n")
            rows += await rows_of(place, case)
    tools = [registry.tools()[name] for name in dict.fromkeys(case.tool for case in chosen)]
    document = written(rows, [await version_of(tool) for tool in tools])
    if wanted:
        sys.stdout.write(document)
    else:
        DOCUMENT.write_text(document)
        sys.stderr.write(f"written: {DOCUMENT}\n")
    return 1 if any(row.reason for row in rows) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
