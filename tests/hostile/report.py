"""The report of a round: as text for people, and as JSON for the scorecard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.report import commit
from tests.hostile.battle import Outcome

_SHOWN_CHARACTERS = 700


def lines_of(outcome: Outcome) -> Iterator[str]:
    """Yield the counts, the honest user's waits, the memory, and the faults."""
    record, waits = outcome.record, outcome.waits
    yield from _table("requests by kind", record.sent)
    yield from _table("requests by sender", record.by_actor)
    yield from _table("answers by status", {str(k): v for k, v in record.statuses.items()})
    yield from _table("answers that say why there is none", record.honest)
    yield from _table("requests without an answer", record.lost)
    yield "\nslowest answers"
    yield from (f"  {seconds:6.2f} s  {request[:200]}" for seconds, request in record.slow)
    longest, what = waits.longest
    yield f"\nthe honest user: {len(waits.seconds)} answers,"
    yield f"half within {waits.quantile(0.5):.3f} s,"
    yield f"99 % within {waits.quantile(0.99):.3f} s, the longest {longest:.3f} s ({what});"
    yield f"this host was late by up to {waits.late_s:.3f} s in the user's own process;"
    yield f"runs: {', '.join(f'{n} {state}' for state, n in waits.runs.items()) or 'none'}"
    yield "\nmemory in MB, before, after, and after the rest"
    for node, (before, after, rested) in outcome.memory.items():
        yield f"  {node}  {before:6.0f} {after:6.0f} {rested:6.0f}  grown by {rested - before:.0f}"
    yield from _table("faults", record.found)
    for fault in record.faults:
        yield f"  {fault.check}: {fault.what[:_SHOWN_CHARACTERS]}"
    if outcome.kept is not None:
        yield f"logs are kept in {outcome.kept}"
    rate, seconds = record.total / max(outcome.seconds, 0.001), outcome.seconds
    yield f"\nseed {outcome.plan.seed}: {record.total} requests in {seconds:.0f} s ({rate:.0f}/s)"
    load = " to ".join(f"{each:.0f}" for each in outcome.load)
    yield f"commit {commit()}, {outcome.took_s:.0f} s in all, load {load}"
    yield "all promises hold" if not record.found else f"{record.found.total()} faults"


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"\n{title} ({sum(counts.values())})"
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"  {count:8d}  {name}"


def document_of(outcome: Outcome) -> dict[str, Any]:
    """Return all of it as a JSON document."""
    record, waits = outcome.record, outcome.waits
    return {
        "commit": commit(),
        "plan": asdict(outcome.plan),
        "seconds": {"requests": round(outcome.seconds, 1), "in_all": round(outcome.took_s, 1)},
        "load": outcome.load,
        "requests": dict(record.sent),
        "statuses": {str(status): count for status, count in record.statuses.items()},
        "without_an_answer": dict(record.lost),
        "honest": {
            "answers": len(waits.seconds),
            "median_s": waits.quantile(0.5),
            "p99_s": waits.quantile(0.99),
            "longest_s": waits.longest[0],
            "host_late_s": waits.late_s,
            "runs": waits.runs,
        },
        "memory_mb": outcome.memory,
        "faults": dict(record.found),
    }


def write(outcome: Outcome, file: Path) -> None:
    """Write the report as JSON."""
    file.write_text(json.dumps(document_of(outcome), indent=2) + "\n")
