"""Twins of ``node/store/sql/host_limits.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import orjson

from lead.simulation.memory.rows import pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "host_limits")
_OPEN = frozenset({"active", "paused"})


@TWINS.of("id")
def judged_open(tables: Tables, after: UUID, at_most: int, of_users: bool) -> Answer:
    """Return open tasks to which limits may apply, in order, after this one."""
    own = {node.identity for node in tables.nodes.rows.values() if node.is_self}
    found = (
        row.id
        for row in tables.tasks.rows.values()
        if own
        and row.state in _OPEN
        and row.id > after
        and (
            row.lead not in own
            or (of_users and row.limit_user is not None)
            or row.limit_rule is not None
            or row.limit_refusal is not None
        )
    )
    return [(task,) for task in sorted(found)[:at_most]]


@TWINS.of()
def keep_verdicts(
    tables: Tables,
    tasks: Sequence[UUID],
    revisions: Sequence[int],
    rules: Sequence[str | None],
    refusals: Sequence[str | None],
    run_bytes: Sequence[int | None],
    caps: Sequence[str],
) -> Answer:
    """Write the verdicts on tasks that are still in these revisions."""
    packed = [pack(orjson.loads(each)) for each in caps]
    given = zip(tasks, revisions, rules, refusals, run_bytes, packed, strict=True)
    for task, revision, *verdict in given:
        row = tables.tasks.rows.get(task)
        if row is None or row.revision != revision:
            continue
        if [row.limit_rule, row.limit_refusal, row.run_bytes, row.limit_caps] != verdict:
            rule, refusal, moved, accounts = verdict
            tables.tasks.change(
                row,
                limit_rule=rule,
                limit_refusal=refusal,
                run_bytes=moved,
                limit_caps=accounts,
            )
    return ()


@TWINS.of("id", "limit_rule", "limit_refusal", "run_bytes", "limit_caps", "limit_user")
def limit_standings(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return how tasks stand with the limits."""
    rows = (tables.tasks.rows.get(task) for task in dict.fromkeys(tasks))
    return [
        (
            row.id,
            row.limit_rule,
            row.limit_refusal,
            row.run_bytes,
            unpack(row.limit_caps),
            row.limit_user,
        )
        for row in rows
        if row is not None
    ]


@TWINS.of("count")
def refused_count(tables: Tables) -> Answer:
    """Return how many open tasks the present limits refuse."""
    rows = tables.tasks.rows.values()
    return [(sum(row.limit_refusal is not None and row.state in _OPEN for row in rows),)]


@TWINS.of("rule", "quantity", "period", "most")
def quotas(_: Tables) -> Answer:
    """Return no quotas: all nodes of a simulated world have one owner."""
    return ()


@TWINS.of("rule")
def purge_use(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: without quotas no use is counted."""
    return ()


@TWINS.of("cap")
def purge_rates(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: without caps no rate is counted."""
    return ()


@TWINS.of("rule")
def purge_returns(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: without quotas nothing is given back."""
    return ()


@TWINS.of("rule")
def purge_reached(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: without quotas none is reached."""
    return ()
