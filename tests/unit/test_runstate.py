"""The states of a run: the table is closed, and the SQL adheres to it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from node.model import runstate
from node.model.runstate import LIVE, NOT_COUNTED, OVER, RunState, predecessors
from node.store.queries import parse_queries

ROOT = Path(__file__).parents[2]
SCHEMA = (ROOT / "schema.sql").read_text("utf-8")
STATEMENTS = [
    (f"{file.stem}.{name}", text)
    for file in sorted([*ROOT.glob("node/store/sql/*.sql"), *ROOT.glob("lead/store/sql/*.sql")])
    for name, text in parse_queries(file.read_text("utf-8")).items()
]


def successors(state: RunState) -> set[RunState]:
    """Return the states that may follow."""
    return {following for following in RunState if state in predecessors(following)}


def moves() -> list[tuple[str, RunState, RunState]]:
    """Return every transition in a statement: where, from which state, to which."""
    found = []
    for name, text in STATEMENTS:
        for update in re.finditer(
            r"(?:UPDATE run|DO UPDATE)\s+SET\s(.*?)\sWHERE\s(.*?)(?:RETURNING|;|\Z)",
            text,
            re.DOTALL,
        ):
            entered = re.findall(r"^\s*(?:SET )?state = '([a-z-]+)'", update[1], re.MULTILINE)
            others = r"(?<!exchange\.)(?<!negotiation\.)(?<!other\.)"
            left = re.findall(others + r"\bstate = '([a-z-]+)'", update[2])
            found += [(name, RunState(a), RunState(b)) for a, b in product(left, entered)]
    return found


def test_every_state_is_in_the_table() -> None:
    """The table lists every state, even if nothing may follow it."""
    assert set(runstate._NEXT) == set(RunState)


def test_no_state_follows_itself() -> None:
    """A transition changes the state; so a repeated message changes nothing."""
    assert not any(state in predecessors(state) for state in RunState)


def test_the_states_are_those_of_the_schema() -> None:
    """The SQL enum has the same states in the same order."""
    found = re.search(r"CREATE TYPE run_state AS ENUM \((.*?)\n\);", SCHEMA, re.DOTALL)
    assert found is not None
    assert re.findall(r"^\s*'([a-z-]+)'", found[1], re.MULTILINE) == list(RunState)


def test_what_is_over_stays_over() -> None:
    """The end of a run is final, unless a late part or its lead explains it, or the clock lied."""
    assert {state: successors(state) for state in OVER if successors(state)} == {
        RunState.FAILED: {RunState.BOOKED, RunState.FINISHED, RunState.CANCELLED},
        RunState.MISSED: {RunState.BOOKED},
    }


def test_what_is_not_over_can_end() -> None:
    """From every other state some end is one transition away, and people can cancel from each."""
    for state in set(RunState) - OVER:
        assert successors(state) & OVER
        assert state in predecessors(RunState.CANCELLED)


def test_every_state_can_be_reached() -> None:
    """All states can be reached from waiting and booked, in which runs are created."""
    reached = {RunState.WAITING, RunState.BOOKED}
    while new := {after for state in reached for after in successors(state)} - reached:
        reached |= new
    assert reached == set(RunState)


def test_what_occupies_time_is_not_over() -> None:
    """A run that is over does not occupy time."""
    assert not LIVE & OVER


def test_uncounted_states_never_had_their_measurement() -> None:
    """A run that was measured, or may still be, counts towards the task's runs."""
    assert not NOT_COUNTED & (LIVE | {RunState.MERGING, RunState.FINISHED, RunState.FAILED})


def test_states_without_success_need_a_reason() -> None:
    """The schema requires a reason in every end but success, and while a slot waits."""
    found = re.search(r"CHECK \(state NOT IN \(([^)]*)\) OR reason IS NOT NULL\)", SCHEMA)
    assert found is not None
    expected = (OVER - {RunState.FINISHED}) | {RunState.WAITING}
    assert set(re.findall(r"'([a-z-]+)'", found[1])) == expected


def test_statements_move_only_as_the_table_allows() -> None:
    """A statement that names both states makes a transition that is in the table."""
    found = moves()
    assert len(found) >= 6, "the statements are no longer read"
    assert [move for move in found if move[1] not in predecessors(move[2])] == []
