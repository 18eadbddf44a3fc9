"""The report of a round: as text for people, and as JSON for the scorecard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from node.execution import process
from node.model.errors import HostError
from tests.chaos.battle import Outcome
from tests.chaos.checks import CHECKS

_SHOWN = 5
"""Violations of each check that are printed."""


def lines_of(outcome: Outcome) -> Iterator[str]:
    """Yield the counts, the checks, and the first violations."""
    ledger = outcome.ledger
    yield from _table("operations answered", ledger.operations)
    yield from _table("of these refused", ledger.refused)
    yield from _table("requests without an answer", ledger.unanswered)
    yield from _table("requests that a node could not serve then", ledger.unable)
    yield from _table("faults", outcome.faults)
    for fault, why in outcome.left_out.items():
        yield f"  left out: {fault}, {why}"
    yield from _table("exceptions in the logs", outcome.logged)
    yield "\nin the tables"
    for name, count in outcome.figures.items():
        yield f"  {count:8d}  {name}"
    yield from _table("runs that were due and have no result", outcome.failures)
    yield f"\nseed {outcome.plan.seed}: {ledger.total} operations in {outcome.seconds:.0f} s"
    rate = ledger.total / outcome.seconds
    yield f"({rate:.1f}/s), settled {outcome.settled_s:.0f} s after the last fault"
    for check, count in checks_of(outcome).items():
        yield f"  {'BROKEN' if count else 'holds '}  {check:20} {count:6d}"
    for check, count in checks_of(outcome).items():
        found = (each for each in outcome.violations if each.check == check)
        for violation in islice(found, _SHOWN):
            yield f"  {check} on {violation.node}: {violation.id} {violation.what}"
        if count > _SHOWN:
            yield f"  and {count - _SHOWN} more of {check}"
    if outcome.kept is not None:
        yield f"logs and databases are kept in {outcome.kept}"
    yield f"commit {commit()}, {outcome.took_s:.0f} s in all"


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"\n{title} ({sum(counts.values())})"
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"  {count:8d}  {name}"


def checks_of(outcome: Outcome) -> dict[str, int]:
    """Return the violations of each check, also of those that are not made in the tables."""
    checks = [*CHECKS, "at_rest", "faults", "twice"]
    return {
        check: sum(violation.check == check for violation in outcome.violations) for check in checks
    }


def document_of(outcome: Outcome) -> dict[str, Any]:
    """Return all of it as a JSON document."""
    ledger = outcome.ledger
    return {
        "commit": commit(),
        "plan": asdict(outcome.plan),
        "seconds": {
            "under_fire": round(outcome.seconds, 1),
            "settled": round(outcome.settled_s, 1),
            "in_all": round(outcome.took_s, 1),
        },
        "operations": {"answered": ledger.total, "by_kind": dict(ledger.operations)},
        "refused": dict(ledger.refused),
        "unanswered": dict(ledger.unanswered),
        "unable": dict(ledger.unable),
        "faults": dict(outcome.faults),
        "faults_left_out": outcome.left_out,
        "logged": dict(outcome.logged),
        "figures": outcome.figures,
        "failures": outcome.failures,
        "checks": checks_of(outcome),
        "violations": [asdict(violation) for violation in outcome.violations],
    }


def write(outcome: Outcome, file: Path) -> None:
    """Write the JSON document."""
    file.write_text(json.dumps(document_of(outcome), indent=2) + "\n")


def commit() -> str:
    """Return the commit that is checked out, with a mark if files differ from it."""
    argv = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        finished = process.run(argv, timeout_s=10, cwd=Path(__file__).parent)
    except HostError:
        return "unknown"
    return finished.stdout.decode().strip() or "unknown"
