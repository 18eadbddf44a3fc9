"""Programs that are broken on purpose; the checks must detect each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from lead.service import Lead
from lead.simulation.memory import bookings, twins
from lead.simulation.memory.rows import RunRow
from lead.simulation.memory.statements import Answer
from lead.simulation.memory.tables import Tables
from lead.simulation.node import SimulatedNode


def check_then_insert(node: SimulatedNode, _lead: Lead) -> None:
    """Remove the database constraint, so that a booking relies on the proposal alone."""
    node._tables.runs.in_the_way = _nothing  # type: ignore[method-assign]


def _nothing(run: RunRow) -> bool:
    """Return False: nothing conflicts with any run."""
    return False


def no_presumed_abort(node: SimulatedNode, _lead: Lead) -> None:
    """Keep a hold forever if its lead stays silent."""

    async def wait_on() -> int:
        return 0

    node.holds.run_once = wait_on  # type: ignore[method-assign]


def no_reconciliation(_node: SimulatedNode, lead: Lead) -> None:
    """Never compare what lead and participants have."""

    async def compare_nothing() -> None:
        pass

    lead.reconciler.compare_all = compare_nothing  # type: ignore[method-assign]


def as_it_is(_node: SimulatedNode, _lead: Lead) -> None:
    """Leave all objects as they are."""


@contextmanager
def committed_whatever_it_is() -> Iterator[None]:
    """Run ``decide_exchanges`` without ``AND state = 'held'``: dropped holds are committed."""
    real = bookings.TWINS.statements["decide_exchanges"]

    def decide(
        tables: Tables, exchanges: Sequence[UUID], commits: Sequence[bool], *others: Any
    ) -> Answer:
        for exchange, commit in zip(exchanges, commits, strict=True):
            row = tables.exchanges.rows.get(exchange)
            if commit and row is not None and row.state == "released":
                tables.exchanges.change(row, state="held")
        answered: Answer = real.twin(tables, exchanges, commits, *others)
        return answered

    twins.TWIN_OF[real.text] = replace(real, twin=decide)
    try:
        yield
    finally:
        twins.TWIN_OF[real.text] = real


@dataclass(frozen=True)
class Variant:
    """A broken program, and the words by which the checks should report it."""

    name: str
    broken: Callable[[SimulatedNode, Lead], None]
    says: str
    patched: Callable[[], AbstractContextManager[None]] = nullcontext
    faults: dict[str, Any] | None = None


VARIANTS = (
    Variant("check then insert", check_then_insert, "for the same time"),
    Variant("no presumed abort", no_presumed_abort, "still holds exchange"),
    Variant(
        "no reconciliation", no_reconciliation, "does not have run", faults={"forgotten_runs": 40}
    ),
    Variant(
        "no re-check of state",
        as_it_is,
        "although nothing was lost",
        committed_whatever_it_is,
        {"forgotten_runs": 0, "cuts": 200},
    ),
)
