"""The invariants of ``sql/invariants.sql``, asked of one node, or of all nodes side by side.

Whoever judges side by side makes the ``tables`` in an empty database, fills them with the rows of
each node (``…_here``), with one row of ``round``, and with what else it knows; then it makes the
rest (``ready``) and asks each of :data:`INVARIANTS`, which returns (node, id, what) of violations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from node.store.queries import Queries

SQL = Queries("lead.simulation", "invariants")
_TEMPLATES = Queries("lead.simulation", "evidence")

TABLES = tuple(name.removesuffix("s_here") for name in SQL if name.endswith("s_here"))
"""The tables that are filled from the databases of nodes."""

INVARIANTS = tuple(name for name in SQL if name.startswith(("always_", "settled_")))


def name_of(invariant: str) -> str:
    """Return the name of an invariant for people: one may be of every instant, and of the end."""
    return invariant.partition("_")[2]


def _filled_template(template: str, **parts: str) -> str:
    """Return a statement with other texts of ours put in."""
    text = _TEMPLATES[template]
    for word, stands_for in parts.items():
        text = text.replace("{" + word + "}", stands_for)
    return text


def _joined_query(invariants: Iterable[str], name: Callable[[str], str]) -> str:
    """Return several invariants as one query, which returns (node, invariant, id, what)."""
    return " UNION ALL ".join(
        _filled_template("asked", name=name(it), query=SQL[it]) for it in invariants
    )


ALWAYS = _filled_template(
    "always",
    tables=", ".join(f"{table} AS ({SQL[table + 's_here']})" for table in TABLES),
    occupied=SQL["occupied"],
    asked=_joined_query((it for it in INVARIANTS if it.startswith("always_")), name_of),
)
"""All invariants of every instant as one query of a node's own database."""

ALL = _filled_template("all", asked=_joined_query(INVARIANTS, str))
"""All invariants as one query of the tables side by side."""

READY = _filled_template("ready", occupied=SQL["occupied"], rest=SQL["ready"])
"""Indexes, views, and functions over the tables, once they are filled."""

ROWS = _filled_template(
    "rows",
    rows=", ".join(
        f"'{table}', {_filled_template('rows_of', query=SQL[table + 's_here'])}" for table in TABLES
    ),
)
"""A query of a node's own database for all its rows, as one JSON document."""

FINISHED_TASKS = _filled_template("finished_tasks", query=SQL["tasks_here"])
"""The finished tasks that a node leads, before they are deleted."""

FILLING = _filled_template(
    "filling_all",
    fillings=", ".join(_filled_template("filling_from", table=table) for table in TABLES),
)
"""Puts the rows of a node, as :data:`ROWS` returns them, into all tables."""

KEEPING_FINISHED = _TEMPLATES["finished"]
"""Puts one of the finished tasks there, if its lead has deleted it."""

ROUND = _TEMPLATES["round"]
"""Puts the row of ``round`` there."""


def filling_statement(table: str) -> str:
    """Return the statement that fills a table from a JSON list."""
    return _filled_template("filling", table=table)
