"""Routes of runs and their explanation, and of the schedule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.long_polling import await_ready
from node.api.routing import (
    CLASSES,
    CURSOR,
    ID,
    INSTANT,
    LIMIT,
    MEASURED,
    NODE,
    PREFIX,
    PRINCIPAL,
    REQUESTER,
    WHOLE_LIMIT,
    WORD,
    Query,
    Route,
    fields_query,
    wait_query,
    words_schema,
)
from node.model import times
from node.model.attempts import CAME_TO_NOTHING
from node.model.classes import SchedulingClass
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.headline import headline
from node.model.named_archives import visible_error
from node.model.nodekinds import NodeKind
from node.model.outcome import Judgement
from node.model.outside_leads import is_told_as_outside
from node.model.principals import HOST, Principal
from node.model.reservations import ReservationSpan
from node.model.runstate import OVER, RunState
from node.model.verdict import Level
from node.model.wire.archives import Archiving
from node.model.wire.bundles import RunBundle
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.reservations import Purpose, ReservedSpan
from node.model.wire.runs import (
    AttemptView,
    Decision,
    Explanation,
    FollowUp,
    MetricView,
    PartView,
    Run,
    ScheduleBucket,
    ScheduleChange,
    ScheduleDifference,
    ScheduleEntry,
    SchedulePage,
)
from node.service import NodeService
from node.store import archives, reservations, runs
from node.store.database import Connection, Record
from node.store.runs import OtherAttempt
from node.tasks.explanation import without_ids

NAMED_MAX = 100
"""Maximum number of runs that a request names; more ids than that make too long a line."""

BUCKETS_MAX = 2000
"""Maximum number of pieces into which a schedule is cut."""

RESOLUTION = "^PT[1-9][0-9]{0,6}[SMH]$|^P[1-9][0-9]{0,2}D$"
"""The durations that the description offers; others of whole seconds are taken as well."""

STATES = frozenset({"held", "scheduled"} | set(RunState) - {RunState.BOOKED})
VERDICTS = frozenset(Level)
OUTCOMES = frozenset(Judgement) - {Judgement.STALE}
_DECISIONS_SHOWN = 20
_FOLLOWING = frozenset({"asked_by", "followed_by"})


def run_of(
    node: NodeService,
    row: Record,
    parts: tuple[PartView, ...] | None = None,
    attempts: Sequence[OtherAttempt] = (),
) -> Run:
    """Return a row of ``run_known``, or a gap, as the API's document."""
    started = row["started_at"]
    outcome = outcome_of(row)
    error = None if started is None else (started - row["starts_at"]) / times.MILLISECOND
    return Run.from_row(
        row,
        id=row["run_id"],
        task=row["task_id"],
        headline=_headline(row),
        last_slot=row["last_slot"] if row["attempt"] == 0 else None,
        lead=row["lead"] or "",
        start_error_ms=error,
        outcome=outcome,
        metrics=_metrics(node, row),
        attempts=tuple(AttemptView(**vars(each)) for each in attempts),
        total_loss=outcome is not None and outcome.judgement is Judgement.NO_ANSWER,
        asked_by=None,
        followed_by=None,
        parts=parts,
    )


async def with_follow_ups(
    connection: Connection, found: Sequence[Run], user: Principal
) -> list[Run]:
    """Return runs with those that they follow, and that follow them, as this user sees them."""
    ids = [run.id for run in found]
    asked = dict(await runs.find_askers(connection, ids, user.only))
    following: dict[UUID, list[FollowUp]] = {}
    for row in await runs.find_follow_ups(connection, ids, user.only):
        following.setdefault(row["asked_by"], []).append(_follow_up(row))
    return [
        run.model_copy(
            update={
                "asked_by": asked.get(run.id),
                "followed_by": tuple(following.get(run.id, ())),
            }
        )
        for run in found
    ]


def _follow_up(row: Record) -> FollowUp:
    return FollowUp.from_row(
        row,
        run=row["run_id"],
        task=row["task_id"],
        headline=_headline(row),
        outcome=outcome_of(row),
    )


def outcome_of(row: Record) -> JudgedOutcome | None:
    """Return the outcome of a row of ``run_known``; None of a run that is not over."""
    if row["judgement"] is None:
        return None
    return JudgedOutcome.told(
        row["judgement"],
        row["judgement_code"] or row["state"],
        row["judgement_reason"],
        ended_at=row["ends_at"],
        lead=row["lead"] or "",
    )


def _headline(row: Record) -> str:
    return headline(row["test"], row["participants"], row["spec"])


def _metrics(node: NodeService, row: Record) -> tuple[MetricView, ...]:
    """Return the metrics of a finished run; others would look like complete measurements."""
    if row["state"] != RunState.FINISHED or row["result"] is None:
        return ()
    metrics = node.capabilities.metrics(row["test"], row["result"])
    return tuple(MetricView(**vars(metric)) for metric in metrics)


async def fetch(node: NodeService, run: UUID, user: Principal = HOST) -> Run:
    """Return one run with its parts, and what follows it, as this user sees it.

    :raises NotFound: there is none.
    """
    async with node.database.connection() as connection:
        row = await runs.find_run_or_gap(connection, run)
        if row is None:
            msg = f"there is no run {run} on this node"
            raise NotFound(msg)
        parts = await runs.parts(connection, run)
        attempts = await runs.attempts_beside(connection, [run])
        views = tuple(PartView.model_validate(vars(part)) for part in parts)
        whole = run_of(node, row, views, attempts.get(run, ()))
        [found] = await with_follow_ups(connection, [whole], user)
    return _run_for_user(found, user)


def _run_for_user(run: Run, user: Principal) -> Run:
    """Return a run as this user sees it: the run that displaced it may be of another one."""
    return run if user.only is None else run.model_copy(update={"displaced_by": None})


async def decisions(
    connection: Connection, task: UUID, slot: int | None, limit: int, user: Principal
) -> tuple[Decision, ...]:
    """Return planning attempts as this user sees them, newest first."""
    found = tuple(
        Decision(task=row["task_id"], **{k: v for k, v in row.items() if k != "task_id"})
        for row in await runs.decisions(connection, task, slot, limit)
    )
    return found if user.only is None else tuple(map(without_ids, found))


async def answer_page(request: web.Request, task: UUID | None) -> web.StreamResponse:
    """Answer with a page of runs; with ``wait``, when there are some."""
    node = request.app[NODE]
    names = {query.name for query in FILTERS} | ({"task", "id"} if task is None else set())
    requests.refuse_other_parameters(request, *sorted(names))
    only = requests.fields(request, Run)
    if (ids := requests.uuids(request, "id", NAMED_MAX)) is not None:
        return await _answer_named_runs(request, ids, only)
    at = requests.cursor(request)
    wanted = runs.RunFilter(
        task=task or requests.uuid(request, "task"),
        states=requests.choices(request, "state", STATES),
        test=requests.word(request, "test"),
        prefix=requests.word(request, "prefix"),
        since=requests.instant(request, "from"),
        before=requests.instant(request, "to"),
        after_start=at[0] if at else None,
        after_run=at[1] if at else None,
        ascending=requests.choices(request, "order", frozenset({"asc", "desc"})) == ["asc"],
        requester=requests.requester(request),
        limit=requests.limit(request),
        participant=requests.text(request, "participant"),
        target=requests.text(request, "target"),
        campaign=requests.word(request, "campaign"),
        verdicts=requests.choices(request, "verdict", VERDICTS),
        outcomes=requests.choices(request, "outcome", OUTCOMES),
        mesh=requests.word(request, "mesh"),
        classes=requests.choices(request, "class", CLASSES),
        words=requests.search_words(request),
        every_attempt=requests.flag(request, "attempts"),
    )

    async def fetch_runs() -> tuple[list[Record], bool]:
        async with node.database.transaction() as connection:
            rows = await runs.find_page(connection, wanted)
        return rows, bool(rows)

    rows = await await_ready(node, fetch_runs, requests.seconds(request))
    following = _next_cursor(rows, wanted.limit)
    return responses.list_response(await _runs_for_user(request, rows, only), following, only)


async def _answer_named_runs(
    request: web.Request, ids: list[UUID], only: Collection[str] | None
) -> web.Response:
    """Answer with those of these runs that the user may see; leave out unknown ones."""
    requests.refuse_other_parameters(request, "id", "fields", "requester")
    async with request.app[NODE].database.connection() as connection:
        rows = await runs.find_by_id(connection, ids, requests.requester(request))
    return responses.list_response(await _runs_for_user(request, rows, only), None, only)


async def _runs_for_user(
    request: web.Request, rows: Sequence[Record], only: Collection[str] | None
) -> list[Run]:
    """Return runs as this user sees them; with what follows them if these fields are asked for."""
    node, user = request.app[NODE], request[PRINCIPAL]
    tried = [row["run_id"] for row in rows if row["attempt"] > 1 or row["state"] in CAME_TO_NOTHING]
    follows = rows and only is not None and _FOLLOWING & set(only)
    attempts: dict[UUID, list[OtherAttempt]] = {}
    if not tried and not follows:
        return [_run_for_user(run_of(node, row), user) for row in rows]
    async with node.database.connection() as connection:
        if tried:
            attempts = await runs.attempts_beside(connection, tried)
        found = [run_of(node, row, attempts=attempts.get(row["run_id"], ())) for row in rows]
        if follows:
            found = await with_follow_ups(connection, found, user)
    return [_run_for_user(run, user) for run in found]


def _next_cursor(rows: Sequence[Record], limit: int) -> str | None:
    """Return the cursor of the page after these runs, which are sorted by start."""
    return requests.next_cursor(rows, limit, lambda row: (row["starts_at"], row["run_id"]))


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of runs, newest first unless ``order=asc``."""
    return await answer_page(request, None)


async def show(request: web.Request) -> web.StreamResponse:
    """One run; with ``wait``, when it is over."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "wait")
    run = requests.identifier(request)

    async def fetch_run() -> tuple[Run, bool]:
        current = await fetch(node, run, request[PRINCIPAL])
        return current, current.state in OVER

    return responses.document_response(
        await await_ready(node, fetch_run, requests.seconds(request))
    )


async def cancel(request: web.Request) -> web.StreamResponse:
    """Cancel the run on all participants; a running one is stopped."""
    node = request.app[NODE]
    run = requests.identifier(request)
    await node.termination.cancel_run(run)
    return responses.document_response(await fetch(node, run, request[PRINCIPAL]))


async def explain(request: web.Request) -> web.StreamResponse:
    """Return why this run is in its state, or did not take place."""
    node = request.app[NODE]
    run = await fetch(node, requests.identifier(request), request[PRINCIPAL])
    return responses.document_response(
        await run_explanation(node, run, run.slot, request[PRINCIPAL])
    )


async def run_explanation(node: NodeService, run: Run, slot: int, user: Principal) -> Explanation:
    """Return why a run is in its state, with the planning attempts of a slot; a gap has several."""
    async with node.database.connection() as connection:
        attempts = await decisions(connection, run.task, slot, _DECISIONS_SHOWN, user)
        rows = await archives.deliveries(
            connection, archives.DeliveryFilter(run=run.id, whole_runs=True)
        )
    archivings = tuple(
        Archiving.model_validate({**row, "last_error": visible_error(user, row["last_error"])})
        for row in rows
    )
    return Explanation(
        task=run.task,
        run=run.id,
        headline=run.headline,
        state=run.state,
        sentence="; ".join(
            [
                _sentence(run),
                *_follow_up_sentences(run),
                *_foreign_lead_sentences(run),
                *_binding_sentences(node, run),
                *map(_delivery_text, reversed(archivings)),
            ]
        ),
        requester=run.requester,
        decisions=attempts,
        archivings=archivings,
    )


def _follow_up_sentences(run: Run) -> list[str]:
    """Return which run asked for this one, and what was measured because of this one."""
    asked = [] if run.asked_by is None else [f"it follows run {run.asked_by}"]
    return asked + [
        f"followed by {it.headline}: {it.summary or it.reason or it.state}"
        for it in run.followed_by or ()
    ]


def _foreign_lead_sentences(run: Run) -> list[str]:
    """Return a sentence about a lead that is no node of Parley, and alone has the result."""
    if not is_told_as_outside(run.lead):
        return []
    return [f"led by {run.lead}, which has the parts of the others, and the result"]


def _binding_sentences(node: NodeService, run: Run) -> list[str]:
    """Return a sentence about participants whose bookings stand even if the lead goes away."""
    known = [node.directory.find(name) for name in run.participants]
    names = [each.name for each in known if each is not None and each.kind is not NodeKind.PARLEY]
    if not names:
        return []
    return [f"{' and '.join(names)} {'books' if len(names) == 1 else 'book'} without holds"]


def _delivery_text(one: Archiving) -> str:
    """Describe where an outcome was delivered, or why it was not."""
    where = f"{one.archiver} {one.label}"
    if one.archive is not None:
        where = f"{one.archive} ({where})"
    if one.state == "delivered":
        return f"delivered to {where}"
    if one.state == "parked":
        return f"not delivered to {where}, parked: {one.last_error}"
    tried = f": {one.last_error}" if one.last_error else ""
    at = "" if one.next_at is None else f" at {times.to_the_second(one.next_at)}"
    return f"to be delivered to {where}{at}{tried}"


def _sentence(run: Run) -> str:
    if run.verdict in {None, Level.CLEAN}:
        return _outcome(run)
    return f"{_outcome(run)}; {run.verdict}: {', '.join(run.verdict_reasons)}"


def _outcome(run: Run) -> str:
    if run.reason is not None:
        return f"{run.state}: {run.reason}"
    slipped = run.starts_at - run.slot
    when = f"at {times.to_the_second(run.starts_at)}"
    if slipped:
        when += f", {times.duration_text(slipped)} after its nominal start"
    return f"{run.state}: {run.summary or ' and '.join(run.participants)}, {when}"


async def bundle(request: web.Request) -> web.StreamResponse:
    """The signed bundle of a run, to be checked by anybody."""
    node, user = request.app[NODE], request[PRINCIPAL]
    requests.refuse_other_parameters(request)
    run = requests.identifier(request)
    confined = user.only is not None
    body = await node.bundles.export(
        run, without_ids if confined else _unchanged_decision, confined=confined
    )
    return web.Response(body=body, content_type="application/json")


def _unchanged_decision(decision: Decision) -> Decision:
    return decision


async def schedule(request: web.Request) -> web.StreamResponse:
    """A page of this node's timeline by start; the first one has its reserved time.

    With ``as_of``, the timeline as it stood then; with ``resolution``, its sums.
    """
    if "resolution" in request.query:
        return await _answer_sums(request)
    node = request.app[NODE]
    others = ("as_of",) if "as_of" in request.query else ("class", "participant")
    requests.refuse_other_parameters(
        request, "from", "to", "requester", "limit", "cursor", "fields", *others
    )
    only = requests.fields(request, ScheduleEntry)
    now, after = node.clock.now(), requests.cursor(request)
    then, (since, before) = _past_instant(request, "as_of", now), _requested_span(request, now)
    limit = requests.limit(request, requests.PAGE_MAX)
    requester, (start, run) = requests.requester(request), after or (None, None)
    reserved: Sequence[ReservationSpan] = ()
    async with node.database.transaction() as connection:
        if then is None:
            rows = await runs.find_page(
                connection,
                runs.RunFilter(
                    since=since,
                    before=before,
                    after_start=start,
                    after_run=run,
                    ascending=True,
                    requester=requester,
                    limit=limit,
                    classes=requests.choices(request, "class", CLASSES),
                    participant=requests.text(request, "participant"),
                ),
            )
        else:
            rows = await runs.schedule_at(
                connection, then, since, before, start, run, requester, limit
            )
        if after is None and then is None:
            reserved = await reservations.spans_between(connection, since, max(since, before))
    following = _next_cursor(rows, limit)
    answer = SchedulePage(
        now=now,
        from_=since,
        to=before,
        complete=following is None,
        items=tuple(_entry(row, None if then else outcome_of(row)) for row in rows),
        next=following,
        reserved=tuple(map(_reserved_document, reserved)),
        as_of=then,
    )
    return responses.document_response(answer, include=_fields_of_page(only))


def _fields_of_page(only: Collection[str] | None) -> dict[str, Any] | None:
    """Return pydantic's ``include`` for a page whose items have these fields only; None for all."""
    every: dict[str, Any] = dict.fromkeys(SchedulePage.model_fields, True)
    return None if only is None else {**every, "items": {"__all__": set(only)}}


async def _answer_sums(request: web.Request) -> web.StreamResponse:
    """Answer with the timeline in buckets of ``resolution``: occupied time by class."""
    node = request.app[NODE]
    requests.refuse_other_parameters(
        request, "from", "to", "requester", "class", "participant", "resolution"
    )
    now = node.clock.now()
    since, before = _requested_span(request, now)
    resolution = requests.duration(request, "resolution") or before - since
    if (before - since) / resolution > BUCKETS_MAX:
        reason = f"cuts the span into more than {BUCKETS_MAX} pieces; ask for longer ones"
        raise InvalidDocument([FieldFault("?resolution", reason)])
    wanted = runs.RunFilter(
        since=since,
        before=before,
        requester=requests.requester(request),
        classes=requests.choices(request, "class", CLASSES),
        participant=requests.text(request, "participant"),
    )
    async with node.database.connection() as connection:
        buckets = await runs.buckets(connection, wanted, resolution)
        reserved = await reservations.spans_between(connection, since, max(since, before))
    return responses.document_response(
        SchedulePage(
            now=now,
            from_=since,
            to=before,
            complete=True,
            items=(),
            next=None,
            reserved=tuple(map(_reserved_document, reserved)),
            buckets=tuple(_bucket(each, since, resolution) for each in buckets),
        )
    )


def _bucket(each: runs.Bucket, since: int, resolution: int) -> ScheduleBucket:
    return ScheduleBucket(
        starts_at=since + each.number * resolution,
        scheduling_class=SchedulingClass(each.scheduling_class),
        runs=each.runs,
        judgements=each.judgements,
        busy=round(each.busy / resolution, 4),
    )


def _requested_span(request: web.Request, now: int) -> tuple[int, int]:
    """Return first and last instant (µs) of the query's part of the timeline."""
    since, before = requests.instant(request, "from"), requests.instant(request, "to")
    return (
        now - times.HOUR if since is None else since,
        now + 6 * times.HOUR if before is None else before,
    )


def _past_instant(request: web.Request, name: str, now: int) -> int | None:
    """Return an instant that is not in the future; None if it is not given."""
    at = requests.instant(request, name)
    if at is not None and at > now:
        raise InvalidDocument([FieldFault(f"?{name}", "is in the future, which nobody knows yet")])
    return at


async def changes(request: web.Request) -> web.StreamResponse:
    """Return what has changed in this node's timeline from one instant to another."""
    node, user = request.app[NODE], request[PRINCIPAL]
    requests.refuse_other_parameters(request, "since", "until", "from", "to", "requester", "limit")
    now = node.clock.now()
    until = _past_instant(request, "until", now)
    until = now if until is None else until
    since = _past_instant(request, "since", now)
    since = until - times.HOUR if since is None else since
    if since > until:
        raise InvalidDocument([FieldFault("?since", "is later than until")])
    first, before = _requested_span(request, now)
    if "from" not in request.query:
        first = min(first, since)
    limit = requests.limit(request, requests.PAGE_MAX)
    asked = (since, until, first, before, requests.requester(request), limit + 1)
    async with node.database.connection() as connection:
        rows = await runs.changes_between(connection, *asked)
    settings = node.settings
    return responses.document_response(
        ScheduleDifference(
            since=since,
            until=until,
            from_=first,
            to=before,
            complete=len(rows) <= limit,
            kept_since=now - min(settings.keep_finished, settings.keep_failed),
            items=tuple(_change(row, confined=user.only is not None) for row in rows[:limit]),
        )
    )


def _change(row: Record, *, confined: bool) -> ScheduleChange:
    return ScheduleChange.from_row(
        row,
        run=row["run_id"],
        task=row["task_id"],
        headline=_headline(row),
        displaced_by=None if confined else row["displaced_by"],
    )


def _entry(row: Record, outcome: JudgedOutcome | None) -> ScheduleEntry:
    return ScheduleEntry.from_row(
        row, run=row["run_id"], task=row["task_id"], headline=_headline(row), outcome=outcome
    )


def _reserved_document(each: ReservationSpan) -> ReservedSpan:
    return ReservedSpan(
        reservation=each.reservation,
        kind=Purpose(each.kind),
        name=each.name,
        owner=each.owner,
        starts_at=each.starts_at,
        ends_at=each.ends_at,
    )


FILTERS = (
    Query("state", "Only in these states, separated by commas.", words_schema(STATES)),
    Query("test", "Only runs of this test.", WORD),
    PREFIX,
    Query("from", "Only runs that end after this instant.", INSTANT),
    Query("to", "Only runs that start before this instant.", INSTANT),
    Query("order", "By start: desc (default) or asc.", {"type": "string", "enum": ["asc", "desc"]}),
    *MEASURED,
    Query("verdict", "Only with these verdicts, separated by commas.", words_schema(VERDICTS)),
    Query("outcome", "Only with these judgements, separated by commas.", words_schema(OUTCOMES)),
    Query(
        "attempts",
        "Also attempts that came to nothing and that another one of their slot followed; by "
        "default the last attempt stands for the slot.",
        {"type": "boolean", "default": False},
    ),
    REQUESTER,
    LIMIT,
    CURSOR,
    fields_query(Run),
    wait_query("there are some runs"),
)
_NAMED = Query(
    "id",
    f"Only these runs, by start, separated by commas: at most {NAMED_MAX}. Without other filters.",
    {"type": "array", "items": ID, "minItems": 1, "maxItems": NAMED_MAX},
)
_WAIT = wait_query("the run is over")

ROUTES = (
    Route(
        "GET",
        "/v1/runs",
        list_,
        "List runs, newest first",
        answer=Run,
        listed=True,
        query=(*FILTERS, Query("task", "Only runs of this task.", ID), _NAMED),
    ),
    Route("GET", "/v1/runs/{id}", show, "Show a run with its parts", answer=Run, query=(_WAIT,)),
    Route(
        "DELETE",
        "/v1/runs/{id}",
        cancel,
        "Cancel a run, even while it is running",
        answer=Run,
    ),
    Route(
        "GET",
        "/v1/runs/{id}/explain",
        explain,
        "Explain why a run is in its state, or did not take place",
        answer=Explanation,
    ),
    Route(
        "GET",
        "/v1/runs/{id}/bundle",
        bundle,
        "Export a run that is over with its parts, signed by its participants and its lead",
        answer=RunBundle,
    ),
    Route(
        "GET",
        "/v1/schedule",
        schedule,
        "Show this node's timeline",
        answer=SchedulePage,
        query=(
            Query("from", "Default: an hour ago.", INSTANT),
            Query("to", "Default: in six hours.", INSTANT),
            Query("as_of", "The timeline as it stood then, without reserved time.", INSTANT),
            REQUESTER,
            *(query for query in MEASURED if query.name in {"class", "participant"}),
            Query(
                "resolution",
                "Answer with pieces of this length from the beginning on, in place of runs.",
                {"type": "string", "pattern": RESOLUTION, "examples": ["PT5M"]},
            ),
            fields_query(ScheduleEntry),
            WHOLE_LIMIT,
            CURSOR,
        ),
    ),
    Route(
        "GET",
        "/v1/schedule/changes",
        changes,
        "Show what has changed in this node's timeline",
        answer=ScheduleDifference,
        query=(
            Query("since", "Default: an hour before until.", INSTANT),
            Query("until", "Default: now.", INSTANT),
            Query("from", "Default: an hour ago, or since if that is earlier.", INSTANT),
            Query("to", "Default: in six hours.", INSTANT),
            REQUESTER,
            WHOLE_LIMIT,
        ),
    ),
)
