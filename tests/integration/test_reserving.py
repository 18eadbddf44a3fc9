"""The life of a reservation: created, with runs inside or not, edited, repeated, over."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, InvalidDocument, NotFound
from node.model.ids import TaskId, run_id
from node.model.times import format_instant
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.plans import Outcome
from node.model.wire.reservations import Reservation
from node.model.wire.tasks import Schedule, TaskDocument
from node.store import reservations
from node.store.database import Notice
from node.store.reservations import ReservationFilter
from node.tasks import termination as ending
from tests.support.booking import HOUR
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.previews import idle, plan
from tests.support.reservations import WORDS, edit, reserve
from tests.support.statements import asked_of_database
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    introduction,
)

pytestmark = ON_ONE_LOOP

HALF = 30 * times.MINUTE
SLIP = 40 * times.MINUTE


async def _spans(site: Site) -> list[tuple[int, int]]:
    rows = await site.rows("SELECT starts_at, ends_at FROM reserved ORDER BY starts_at")
    return [(row[0], row[1]) for row in rows]


def _inside(reservation: Reservation) -> list[tuple[UUID, bool]]:
    return [(run.run, run.displaced) for run in reservation.inside or ()]


async def _planned(a: Site, b: Site, slip: int = SLIP) -> UUID:
    """Plan a task of a with b whose one run is due in an hour; return the run."""
    task = introduction([a, b], schedule=Schedule(start=HOUR, slip=slip))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await a.deliver()
    return run_id(TaskId(task.task), HOUR, 1)


async def test_runs_that_are_there_stay_and_are_told(world: World) -> None:
    """Runs that a new reservation does not admit are listed in start order and stay."""
    a, b = await world.two()
    first, second, outside = await book_everywhere(
        introduction([a, b]), a, [a, b], [HOUR, HOUR + HALF - 1, HOUR + HALF + DURATION]
    )
    admitted = introduction([b])
    await book_everywhere(admitted, b, [b], [HOUR + DURATION])
    reservation = await reserve(b, access={"tasks": [str(admitted.task)]})
    assert _inside(reservation) == [(first, False), (second, False)]
    assert {await b.state(run) for run in (first, second, outside)} == {"scheduled"}
    assert _inside(await b.node.reservations.find(reservation.id)) == _inside(reservation)


async def test_displaced_runs_are_planned_again_by_their_lead(world: World) -> None:
    """The lead of a displaced run gets the reason, frees it elsewhere, and places it again."""
    a, b = await world.two()
    run = await _planned(a, b)
    reservation = await reserve(b, displace=True)
    assert _inside(reservation) == [(run, True)]
    assert await b.state(run) == "displaced"
    await b.deliver()
    reason = (
        f"displaced by a reservation: {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    )
    assert (await a.reason(run), await b.reason(run)) == (reason, reason)
    await a.plan()
    await a.deliver()
    again = run_id(TaskId((await a.rows("SELECT id FROM task"))[0][0]), HOUR, 2)
    assert await a.state(again) == await b.state(again) == "scheduled"
    [row] = await a.rows("SELECT starts_at FROM run WHERE id = $1", again)
    assert row[0] == HOUR + HALF
    assert _inside(await b.node.reservations.find(reservation.id)) == []


async def test_the_leads_own_reservation_displaces_its_own_runs(world: World) -> None:
    """A lead's own reservation frees its runs at the participants and places them again."""
    a, b = await world.two()
    run = await _planned(a, b)
    reservation = await reserve(a, displace=True)
    assert _inside(reservation) == [(run, True)]
    await a.deliver()
    assert (await a.state(run), await b.state(run)) == ("displaced", "displaced")
    await a.plan()
    await a.deliver()
    assert sorted((await b.states()).values()) == ["displaced", "scheduled"]


async def test_who_has_begun_or_is_about_to_stays(world: World) -> None:
    """A reservation does not displace runs that start within the margin."""
    b = await world.site("b")
    margin = b.node.settings.start_margin
    near, far = await book_everywhere(
        introduction([b], scheduling_class=SchedulingClass.BACKGROUND),
        b,
        [b],
        [START + margin - 1, START + margin],
    )
    reservation = await reserve(b, START, displace=True)
    assert _inside(reservation) == [(near, False), (far, True)]
    assert (await b.state(near), await b.state(far)) == ("scheduled", "displaced")


async def test_many_are_displaced_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs are displaced in few transactions, and a failed one is repeated as a whole."""
    b = await world.site("b")
    monkeypatch.setattr(ending, "_AT_ONCE", 2)
    starts = [HOUR + number * DURATION for number in range(5)]
    runs = await book_everywhere(introduction([b]), b, [b], starts)
    reservation = await reserve(b)
    settle, count = b.database.settle, 0
    lose, unlucky = b.node.termination._lose_runs, [runs[-1]]

    async def count_settle(action: Any) -> Any:
        nonlocal count
        count += 1
        return await settle(action)

    async def lose_but_once(reasons: Any, connection: Any) -> None:
        await lose(reasons, connection)
        if set(unlucky) & set(dict(reasons)):
            unlucky.clear()
            raise asyncpg.DeadlockDetectedError

    monkeypatch.setattr(b.database, "settle", count_settle)
    monkeypatch.setattr(b.node.termination, "_lose_runs", lose_but_once)
    edited = await edit(b, reservation, displace=True)
    assert _inside(edited) == [(run, True) for run in runs]
    assert (edited.inside_count, edited.displaced_count) == (5, 5)
    assert {await b.state(run) for run in runs} == {"displaced"}
    assert (count, unlucky) == (1 + 3, [])


async def test_the_database_is_asked_as_often_for_many_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Displacing many runs needs as many statements as displacing few."""
    b = await world.site("b")
    counts = []
    for first, number in ((HOUR, 2), (3 * HOUR - 2 * START, 10)):
        starts = [first + each * DURATION for each in range(number)]
        runs = await book_everywhere(introduction([b]), b, [b], starts)
        with monkeypatch.context() as patch:
            statements = asked_of_database(patch)
            reservation = await reserve(b, first, displace=True, duration="PT1H")
            counts.append(len(statements))
        assert _inside(reservation) == [(run, True) for run in runs]
    assert counts[0] == counts[1]


async def test_what_is_changed_meanwhile_displaces_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is outside when the spans are read is not displaced."""
    b = await world.site("b")
    [run] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    between = reservations.spans_between

    async def move_and_read(connection: Any, since: int, until: int) -> Any:
        await b.execute(
            "UPDATE reserved SET starts_at = $1 WHERE starts_at = $2", HOUR + HALF - 1, HOUR
        )
        return await between(connection, since, until)

    monkeypatch.setattr(reservations, "spans_between", move_and_read)
    assert _inside(await reserve(b, displace=True)) == [(run, False)]
    assert await b.state(run) == "scheduled"


async def test_displacing_can_be_asked_for_later(world: World) -> None:
    """An edit can displace the runs that a reservation had kept."""
    b = await world.site("b")
    [run] = await book_everywhere(introduction([b]), b, [b], [HOUR])
    reservation = await reserve(b)
    assert _inside(await edit(b, reservation, displace=True)) == [(run, True)]
    assert await b.state(run) == "displaced"


async def test_what_stands_in_the_way_is_said_everywhere(world: World) -> None:
    """A reservation is named in the run's reason, the trace, and a plan with alternatives."""
    a, b = await world.two()
    reservation = await reserve(b)
    run = await _planned(a, b, slip=0)
    reason = f"b: no 5 min free: {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    assert (await a.state(run), await a.reason(run)) == ("waiting", reason)
    [row] = await a.rows("SELECT sentence, trace FROM decision")
    assert row["sentence"] == reason
    [obstacle] = row["trace"]["offers"][1]["obstacles"]
    assert obstacle["reservation"] == str(reservation.id)
    document = idle(a, b, schedule={"start": format_instant(HOUR), "slip": "PT0S"})
    preview = await plan(world, a, document)
    assert (preview.outcome, preview.sentence) == (Outcome.NO_TIME, reason)
    assert [participant.reason for participant in preview.participants] == [
        None,
        reason.removeprefix("b: "),
    ]
    assert preview.alternatives[0].kind == "later"
    assert preview.alternatives[0].starts_at == HOUR + HALF


async def test_a_plan_knows_who_is_admitted(world: World) -> None:
    """A plan considers the admission of its task by campaign, test and lead."""
    a, b = await world.two()
    await reserve(a, access={"campaigns": ["ops"]})
    for name in ("lab", "ops"):
        await a.node.campaigns.create(CampaignDocument(name=name))
    at: dict[str, Any] = {"schedule": {"start": format_instant(HOUR), "slip": "PT0S"}}
    assert (await plan(world, a, idle(a, b, **at))).outcome is Outcome.NO_TIME
    assert (await plan(world, a, idle(a, b, campaign="ops", **at))).outcome is Outcome.FOUND
    reservation = await reserve(b, access={"campaigns": ["ops"]})
    assert (await plan(world, a, idle(a, b, campaign="ops", **at))).outcome is Outcome.NO_TIME
    await edit(b, reservation, access={"leads": ["a"]})
    assert (await plan(world, a, idle(a, b, campaign="ops", **at))).outcome is Outcome.FOUND


async def test_an_admitted_task_is_planned_there(world: World) -> None:
    """A task is admitted to the lead's own reserved time by what its proposals state."""
    a, b = await world.two()
    await reserve(a, access={"campaigns": ["ops"]})
    for name in ("lab", "ops"):
        await a.node.campaigns.create(CampaignDocument(name=name))
    at: dict[str, Any] = {"schedule": {"start": format_instant(HOUR), "slip": "PT0S"}}
    for campaign in ("lab", "ops"):
        document = idle(a, b, campaign=campaign, **at)
        await a.node.admission.create(TaskDocument.model_validate(document), None)
    await a.plan()
    query = "SELECT campaign, run.state::text FROM run JOIN task ON task_id = task.id"
    rows = await a.rows(query)
    assert {row[0]: row[1] for row in rows} == {"lab": "waiting", "ops": "booked"}


@pytest.mark.parametrize("how", ["remove", "shorter", "later", "access"])
@pytest.mark.mostly_nightly
async def test_time_given_back_is_planned_at_once(world: World, how: str) -> None:
    """However a reservation frees its time, a refused lead is notified and plans again."""
    a, b = await world.two()
    reservation = await reserve(b)
    run = await _planned(a, b, slip=0)
    events = {"wake": asyncio.Event(), "freed": asyncio.Event()}

    def heard(notice: Notice) -> None:
        b.node.freed_time.on_notice(notice)
        if notice.kind in events:
            events[notice.kind].set()

    listening = asyncio.create_task(b.database.listen(heard, b.clock))
    await asyncio.wait_for(events["wake"].wait(), PATIENCE_S)
    match how:
        case "remove":
            await b.node.reservations.remove(reservation.id)
        case "shorter":
            await edit(b, reservation, schedule={"start": format_instant(HOUR + 10 * times.MINUTE)})
        case "later":
            await edit(b, reservation, schedule={"start": format_instant(HOUR + HALF)})
        case _:
            await edit(b, reservation, access={"leads": ["a"]})
    await asyncio.wait_for(events["freed"].wait(), PATIENCE_S)
    await b.node.freed_time.run_once()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert world.count("freed") == 1
    await a.plan()
    await a.deliver()
    assert await b.state(run) == "scheduled"


async def test_a_repeating_one_is_written_far_ahead(world: World) -> None:
    """A recurring reservation has spans beyond the horizon, extended in time, and purged later."""
    b = await world.site("b")
    schedule = {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "start": format_instant(START)}
    await reserve(b, schedule=schedule)
    nights = [START + times.HOUR + n * times.DAY for n in range(60)]
    assert await _spans(b) == [(at, at + HALF) for at in nights[:8]]
    await b.node.reservations.extend_spans()
    assert len(await _spans(b)) == 8
    world.clock.advance(3 * times.DAY)
    await b.node.reservations.extend_spans()
    assert await _spans(b) == [(at, at + HALF) for at in nights[:11]]
    world.clock.advance(b.node.settings.keep_reserved)
    await b.node.reservations.extend_spans()
    await b.node.purger.purge(b.node.clock.now())
    assert await _spans(b) == [(at, at + HALF) for at in (*nights[3:11], *nights[33:41])]


async def test_one_that_is_over_is_shown_and_then_forgotten(world: World) -> None:
    """A reservation is upcoming, then now, then over, and is deleted a month later."""
    b = await world.site("b")
    reservation = await reserve(b)
    far = await reserve(b, START + 300 * times.DAY)
    states = [reservation.state]
    for instant in (HOUR, HOUR + HALF):
        world.clock.move_to(instant)
        await b.node.reservations.extend_spans()
        states.append((await b.node.reservations.find(reservation.id)).state)
    assert states == ["upcoming", "now", "over"]
    world.clock.advance(b.node.settings.keep_reserved + 1)
    await b.node.purger.purge(b.node.clock.now())
    assert [listed.id for listed in await b.node.reservations.page(ReservationFilter())] == [far.id]
    with pytest.raises(NotFound, match="there is no reservation"):
        await b.node.reservations.find(reservation.id)


async def test_until_ends_it(world: World) -> None:
    """A reservation with ``until`` has no span that begins then or later."""
    b = await world.site("b")
    until = format_instant(HOUR + 2 * times.HOUR)
    schedule = {"start": format_instant(HOUR), "repeat": "PT1H", "until": until}
    reservation = await reserve(b, schedule=schedule)
    assert await _spans(b) == [
        (HOUR + n * times.HOUR, HOUR + n * times.HOUR + HALF) for n in (0, 1)
    ]
    assert (reservation.next_starts_at, reservation.next_ends_at) == (HOUR, HOUR + HALF)


async def test_an_edit_covers_other_time(world: World) -> None:
    """An edit merges fields, keeps past spans, and is refused for an older revision."""
    b = await world.site("b")
    start = format_instant(HOUR)
    reservation = await reserve(b, schedule={"start": start, "repeat": "PT1H"}, description="why")
    world.clock.move_to(HOUR + HALF)
    edited = await edit(b, reservation, revision=1, duration="PT10M", description=None, owner="bob")
    assert (edited.revision, edited.owner, edited.description) == (2, "bob", None)
    spans = await _spans(b)
    assert spans[0] == (HOUR, HOUR + HALF)
    assert spans[1] == (HOUR + times.HOUR, HOUR + times.HOUR + 10 * times.MINUTE)
    once = await edit(
        b, reservation, schedule={"repeat": None, "start": format_instant(HOUR + HALF)}
    )
    assert await _spans(b) == [spans[0], (HOUR + HALF, HOUR + HALF + 10 * times.MINUTE)]
    assert once.state == "now"
    with pytest.raises(Conflict, match="has been changed since; read it again"):
        await edit(b, reservation, revision=2, name="late")
    with pytest.raises(InvalidDocument, match="/schedule/cron"):
        await edit(b, reservation, schedule={"cron": "nonsense"})
    assert await b.node.reservations.find(reservation.id) == once
    with pytest.raises(NotFound):
        await b.node.reservations.remove(uuid4())
    with pytest.raises(NotFound):
        await edit(b, once.model_copy(update={"id": uuid4()}), name="nothing")


async def test_the_same_key_makes_one(world: World) -> None:
    """A key returns its reservation again; with another document, or of a task, it is refused."""
    a = await world.site("a")
    reservation = await reserve(a, key="once")
    assert (await reserve(a, key="once")).id == reservation.id
    assert len(await _spans(a)) == 1
    with pytest.raises(Conflict, match="use a new one"):
        await reserve(a, key="once", name="other")
    await a.node.admission.create(TaskDocument.model_validate(idle(a)), "task")
    with pytest.raises(Conflict, match="use a new one"):
        await reserve(a, key="task")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        (
            {"schedule": {"until": "PT1H"}},
            "/schedule/until: needs repeat or cron; what takes place",
        ),
        ({"schedule": {"repeat": "PT20M"}}, "/schedule/repeat: every reservation would overlap"),
        ({"schedule": {"cron": "*/20 * * * *"}}, "/schedule/cron: reservations would overlap"),
        ({"schedule": {"start": format_instant(START - HALF)}}, "/schedule: all of it is over"),
        ({"access": {"leads": ["a", "bb"]}}, "/access/leads/1: bb is not a node known here; did"),
        (
            {"access": {"leads": ["zzz"]}},
            "/access/leads/0: zzz is not a node known here; there are: a, b",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: World, fields: dict[str, Any], fault: str
) -> None:
    """An invalid reservation is refused with the field and the remedy, and is not stored."""
    await world.two()
    site = world.sites[0]
    with pytest.raises(InvalidDocument) as error:
        await reserve(site, **fields)
    assert error.value.detail.startswith(fault.removesuffix("did")), error.value.detail
    assert ("did you mean b?" in error.value.detail) == fault.endswith("did")
    assert await site.rows("SELECT id FROM reservation") == []


async def test_it_begins_now_unless_said(world: World) -> None:
    """A reservation without a schedule begins now, and its owner is the node's by default."""
    b = await world.site("b")
    reservation = await reserve(b, schedule={}, owner=None)
    assert await _spans(b) == [(START, START + HALF)]
    assert (reservation.state, reservation.owner) == ("now", "the owner of b")
    assert reservation.schedule.start == START


async def test_leads_are_known_by_their_keys(world: World) -> None:
    """Admitted leads are stored by key and shown by their current names."""
    a, b = await world.two()
    reservation = await reserve(b, access={"leads": ["a"]})
    [row] = await b.rows("SELECT access FROM reservation")
    assert row[0]["leads"] == [a.identity]
    await b.execute("UPDATE node SET name = 'c' WHERE identity = $1", a.identity)
    await b.node.directory.refresh()
    assert (await b.node.reservations.find(reservation.id)).access.leads == ("c",)
    await b.execute("DELETE FROM node WHERE identity = $1", a.identity)
    await b.node.directory.refresh()
    assert (await b.node.reservations.find(reservation.id)).access.leads == (a.identity,)


async def test_a_page_of_them(world: World) -> None:
    """Reservations are listed newest first, page by page."""
    b = await world.site("b")
    ids = []
    for _ in range(3):
        ids.append((await reserve(b)).id)
        world.clock.advance(1)
    first = await b.node.reservations.page(ReservationFilter(limit=2))
    rest = await b.node.reservations.page(
        ReservationFilter(before_created=first[-1].created_at, before_id=first[-1].id)
    )
    assert [listed.id for listed in [*first, *rest]] == ids[::-1]
    assert first[0].inside is None
    [match] = await b.node.reservations.page(ReservationFilter(prefix=str(ids[1])[:13]))
    assert match.id == ids[1]
