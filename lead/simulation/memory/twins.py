"""The registry of all named queries that have a twin, by their text."""

from __future__ import annotations

from lead.simulation.memory import (
    archives,
    audit,
    bookings,
    changes,
    dependencies,
    episodes,
    gaps,
    host_limits,
    intervals,
    ledger,
    limits,
    negotiations,
    nodes,
    outbox,
    planning,
    reservations,
    rulings,
    runs,
    seats,
    shares,
    tasks,
    terms,
)
from lead.simulation.memory.statements import Statement
from node.store.queries import Queries

_MODULES = (
    bookings,
    rulings,
    nodes,
    outbox,
    planning,
    host_limits,
    limits,
    negotiations,
    changes,
    runs,
    tasks,
    dependencies,
    gaps,
    reservations,
    shares,
    intervals,
    archives,
    episodes,
    terms,
)

FILES = (
    *dict.fromkeys(module.TWINS for module in _MODULES),
    *(ledger.TWINS, ledger.CAMPAIGNS, seats.TWINS, seats.POOLS, audit.TWINS, audit.TOKENS),
)
"""The files of queries; a long one has its twins in two modules."""


class _ByText(dict[str, Statement]):
    """The statements by the text of their queries."""

    def __missing__(self, query: str) -> Statement:
        msg = f"{_name_of(query)} has no twin in lead/simulation/memory"
        raise LookupError(msg)


def _name_of(query: str) -> str:
    for file in FILES:
        for name, text in Queries(file.package, file.file).items():
            if text == query:
                return f"{file.file}.{name}"
    return query


TWIN_OF = _ByText(
    {statement.text: statement for file in FILES for statement in file.statements.values()}
)
"""The twin of each query by its text; a missing one raises LookupError."""
