"""What checks the seats of a simulated world finds what is wrong with them."""

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
    """The scenario of pools without faults, for half an hour."""
    return Scenario.model_validate(named("pools").model_dump(by_alias=True) | QUIET)


def _twice(tables: Tables) -> None:
    """Somebody gets the seat of another one, too."""
    held = [seat for seat in tables.seats.rows.values() if seat.lost_at is None]
    by_term: dict[tuple[object, int], SeatRow] = {}
    for seat in held:
        other = by_term.setdefault((seat.pool_task, seat.term), seat)
        if other is not seat:
            seat.node = other.node
            return


def _beyond(tables: Tables) -> None:
    """A term has a seat more than was asked for."""
    next(iter(tables.seats.rows.values())).place = 99


def _for_no_reason(tables: Tables) -> None:
    """Nobody has a seat, and it is not said why."""
    for key, seat in list(tables.seats.held.items()):
        del tables.seats.held[key]
        tables.terms.rows[seat.pool_task, seat.term].reason = None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_twice, "has a node, or a number, twice"),
        (_beyond, "has more seats than"),
        (_for_no_reason, "is empty for no reason"),
        (lambda tables: tables.terms.of_task._groups.clear(), "is in no term"),
    ],
)
def test_wrong_seats_are_found(monkeypatch: pytest.MonkeyPatch, spoil: object, words: str) -> None:
    """A world in which nothing else is wrong, but for its tables just before the last check."""
    told = seats.find_seat_faults

    def spoiled(world: object, host: object) -> object:
        if callable(spoil) and host.name == "n1":  # type: ignore[attr-defined]
            spoil(host.database.tables)  # type: ignore[attr-defined]
        return [*seats.find_overfull_terms(host), *told(world, host)]  # type: ignore[arg-type]

    monkeypatch.setattr(seats, "find_seat_faults", spoiled)
    violations = simulate(_world()).violations
    assert any(words in violation for violation in violations), violations


def test_a_quiet_world_gives_all_seats() -> None:
    """Nothing is wrong in it, and nearly everything that was asked for is measured."""
    report = simulate(_world())
    assert report.violations == ()
    assert report.invariants == NAMES
    assert report.promised > 40
    assert report.delivered == report.promised
