"""Pool tasks: nodes are chosen for a term, have its seats, lose them, and are chosen anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.pools import pooled
from tests.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

ALIKE: list[Mapping[str, Any]] = [{}, {}, {}]


async def test_nodes_are_chosen_and_their_runs_booked(world: World) -> None:
    """Two of three nodes take the seats of every term within the horizon, and book its runs."""
    pool = await pooled(world, ALIKE)
    task = await pool.create(2)
    seats = await pool.seats(task)
    assert list(seats) == [0, 6, 12]
    assert all(list(term) == [1, 2] for term in seats.values())
    assert len({frozenset(term.values()) for term in seats.values()}) == 1, "they stay the same"
    assert (await pool.states(pool.lead, task)) == {"scheduled": 2 * 18}
    there = [await pool.states(node, task) for node in pool.nodes]
    assert sorted(it["scheduled"] for it in there) == [0, 18, 18]
    outcomes = {outcome for outcome, _ in await pool.told(task)}
    assert outcomes == {"seated"}
