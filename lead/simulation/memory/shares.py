"""Twins of ``node/store/sql/shares.sql``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lead.simulation.memory.rows import LeadQuestionRow, LeadShareRow
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.model import times

TWINS = Twins("node.store", "shares")
_USING = frozenset({"booked", "running", "merging", "finished", "failed"})


@TWINS.of("lead", "share")
def lead_shares(tables: Tables) -> Answer:
    """Return the shares, by lead."""
    return [(row.lead, row.share) for _, row in sorted(tables.lead_shares.rows.items())]


@TWINS.of("lead", "share")
def lock_lead_shares(tables: Tables) -> Answer:
    """Return the shares; transactions in memory take turns anyway."""
    return lead_shares(tables)


@TWINS.of()
def begin_lead_shares(_: Tables) -> Answer:
    """Do nothing: transactions in memory take turns anyway."""
    return ()


@TWINS.of()
def drop_lead_shares(tables: Tables) -> Answer:
    """Delete all shares."""
    for row in list(tables.lead_shares.rows.values()):
        tables.lead_shares.delete(row)
        tables.journal.tell("shares")
    return ()


@TWINS.of()
def keep_lead_shares(tables: Tables, leads: Sequence[str], shares: Sequence[int]) -> Answer:
    """Insert shares."""
    for lead, share in zip(leads, shares, strict=True):
        tables.lead_shares.insert(LeadShareRow(lead, share))
        tables.journal.tell("shares")
    return ()


@TWINS.of("lead", "scheduling_class", "hour", "lasts")
def lead_use(tables: Tables, since: int, until: int) -> Answer:
    """Return how long the runs last that begin in each hour, by lead and class."""
    lasts: Counter[tuple[str, str, int]] = Counter()
    for run in tables.runs.by_start.between(since, until):
        if run.state in _USING:
            hour = run.starts_at // times.HOUR * times.HOUR
            lead = tables.tasks.rows[run.task_id].lead
            lasts[lead, run.scheduling_class, hour] += run.ends_at - run.starts_at
    return [(*key, amount) for key, amount in sorted(lasts.items())]


@TWINS.of("lead", "hour", "asked_at")
def lead_questions(tables: Tables, since: int) -> Answer:
    """Return the questions asked after ``since``, by lead and hour."""
    rows = sorted(tables.lead_questions.rows.items())
    return [(row.lead, row.hour, row.asked_at) for _, row in rows if row.asked_at > since]


@TWINS.of()
def note_questions(tables: Tables, lead: str, hours: Sequence[int], now: int) -> Answer:
    """Record that a lead asks for time in these hours."""
    for hour in dict.fromkeys(hours):
        row = tables.lead_questions.rows.get((lead, hour))
        if row is None:
            tables.lead_questions.insert(LeadQuestionRow(lead, hour, now))
        else:
            tables.lead_questions.change(row, asked_at=now)
    return ()


@TWINS.of()
def purge_questions(tables: Tables, before: int) -> Answer:
    """Delete the questions asked at or before this instant."""
    for row in list(tables.lead_questions.rows.values()):
        if row.asked_at <= before:
            tables.lead_questions.delete(row)
    return ()
