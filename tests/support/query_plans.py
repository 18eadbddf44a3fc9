"""The rows that a query reads, as Postgres explains it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def reads_of(plan: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the indexes or tables by which a plan reads tasks and runs, with the rows read."""
    if plan.get("Relation Name") in {"task", "run"} or "Bitmap Index" in plan["Node Type"]:
        loops = plan["Actual Loops"]
        if plan["Node Type"] != "Bitmap Heap Scan":
            rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
            yield plan.get("Index Name", plan.get("Relation Name", "")), rows * loops
    for part in plan.get("Plans", ()):
        yield from reads_of(part)
