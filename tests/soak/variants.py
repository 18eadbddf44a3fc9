"""Programs that are broken on purpose; the checks must detect each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from lead.assembly.lead import Lead
from lead.simulation.node import SimulatedNode
from node.store import bookings


def check_then_insert(node: SimulatedNode, _lead: Lead) -> None:
    """Remove the database constraint, so that a booking relies on the proposal alone."""
    node._host.store.spoil("ALTER TABLE run DROP CONSTRAINT IF EXISTS run_no_overlap")


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


def first_reading_believed(node: SimulatedNode, _lead: Lead) -> None:
    """Believe whatever the clock says at the start of a process."""
    node.core.steps.confirm()
    node.core.steps.begin = _believe  # type: ignore[method-assign]


def _believe(known: int | None) -> None:
    """Doubt nothing."""
    del known


def as_it_is(_node: SimulatedNode, _lead: Lead) -> None:
    """Leave all objects as they are."""


@contextmanager
def committed_whatever_it_is() -> Iterator[None]:
    """Let ``decide_exchanges`` commit what was released: it does not look at the state again."""
    looks, does_not = "exchange.state = 'held'", "(exchange.state = 'held' OR said.commits)"
    real = bookings._SQL["decide_exchanges"]
    assert looks in real
    with mock.patch.dict(bookings._SQL, decide_exchanges=real.replace(looks, does_not)):
        yield


@dataclass(frozen=True)
class Variant:
    """A broken program, and the words by which the checks should report it."""

    name: str
    broken: Callable[[SimulatedNode, Lead], None]
    says: str
    patched: Callable[[], AbstractContextManager[None]] = nullcontext
    faults: dict[str, Any] | None = None


VARIANTS = (
    Variant(
        "a first reading believed",
        first_reading_believed,
        "before its start",
        faults={"wrong_boots": 60},
    ),
    Variant("check then insert", check_then_insert, "for the same time"),
    Variant("no presumed abort", no_presumed_abort, "still holds exchange"),
    Variant("no reconciliation", no_reconciliation, "all_or_none", faults={"forgotten_runs": 40}),
    Variant(
        "no re-check of state",
        as_it_is,
        "although nothing was lost",
        committed_whatever_it_is,
        {"forgotten_runs": 0, "cuts": 200},
    ),
)
