"""The checks of seats in a simulated world find tampered tables."""

from __future__ import annotations

import pytest

from lead.simulation import seats
from lead.simulation.invariants import NAMES
from lead.simulation.memory.rows import SeatRow
from lead.simulation.memory.tables import Tables
from lead.simulation.scenario import Scenario, named
from lead.simulation.world import simulate
from node.model import times

QUIET = {"days": 0.02, "faults": {}, "settle": times.HOUR}


def _world() -> Scenario:
    """Return the scenario of pools without faults, for half an hour."""
    return Scenario.model_validate(named("pools").model_dump(by_alias=True) | QUIET)


def _twice(tables: Tables) -> None:
    """Give a seat to a node that already has one of the term."""
    occupied = [seat for seat in tables.seats.rows.values() if seat.lost_at is None]
    by_term: dict[tuple[object, int], SeatRow] = {}
    for seat in occupied:
        other = by_term.setdefault((seat.pool_task, seat.term), seat)
        if other is not seat:
            seat.node = other.node
            return


def _beyond(tables: Tables) -> None:
    """Give a term a seat beyond its number of seats."""
    next(iter(tables.seats.rows.values())).place = 99


def _without_a_reason(tables: Tables) -> None:
    """Empty all seats and remove the reasons."""
    for key, seat in list(tables.seats.held.items()):
        del tables.seats.held[key]
        tables.terms.rows[seat.pool_task, seat.term].reason = None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_twice, "has a node, or a number, twice"),
        (_beyond, "has more seats than"),
        (_without_a_reason, "is empty without a reason"),
        (lambda tables: tables.terms.of_task._groups.clear(), "is in no term"),
    ],
)
def test_wrong_seats_are_found(monkeypatch: pytest.MonkeyPatch, spoil: object, words: str) -> None:
    """Each way of tampering with the tables before the last check gives its violation."""
    find_seat_faults = seats.find_seat_faults

    def tamper(world: object, host: object) -> object:
        if callable(spoil) and host.name == "n1":  # type: ignore[attr-defined]
            spoil(host.database.tables)  # type: ignore[attr-defined]
        return [*seats.find_overfull_terms(host), *find_seat_faults(world, host)]  # type: ignore[arg-type]

    monkeypatch.setattr(seats, "find_seat_faults", tamper)
    violations = simulate(_world()).violations
    assert any(words in violation for violation in violations), violations


def test_a_quiet_world_gives_all_seats() -> None:
    """A world without faults has no violations and delivers every promised run."""
    report = simulate(_world())
    assert report.violations == ()
    assert report.invariants == NAMES
    assert report.promised > 40
    assert report.delivered == report.promised
