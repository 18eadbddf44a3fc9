"""Pool tasks: nodes are chosen for a term, hold its seats, lose them, and are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from lead.store import episodes
from node.model import times
from node.model.errors import Conflict, InvalidDocument
from node.model.host_limits.document import EVERYTHING
from node.model.host_limits.rules import User
from node.model.host_limits.standing import LimitStanding
from node.model.wire.pools import PoolDocument
from node.model.wire.tasks import TaskDocument, TaskPatch
from node.service import NodeService
from tests.support.limits import NOTHING, limit, set_limits
from tests.support.pool_worlds import Pooled, idle, known_as_they_are, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

ALIKE: list[Mapping[str, Any]] = [{}, {}, {}]


@pytest.mark.nightly
async def test_tasks_of_seats_have_the_requester_of_their_pool_task(world: World) -> None:
    """The user who asked for seats reaches the tasks of these seats, before and after an edit."""
    pool = await pooled(world, ALIKE)
    task, _ = await pool.lead.node.admission.create(idle(2), None, User("alice"))
    await pool.seat()
    await pool.edit(task, priority=3)
    rows = await pool.lead.rows("SELECT requester FROM task WHERE parent = $1 OR id = $1", task)
    assert {row[0] for row in rows} == {"alice"}
    assert len(rows) > 1


async def test_runs_of_seats_count_for_the_user_of_their_pool_task(world: World) -> None:
    """No more runs of all seats together are booked than the limits of the lead leave its user."""
    pool = await pooled(world, ALIKE)
    course = (
        '[who.course]\ntokens = ["alice", "bob"]\n[[rule]]\nname = "course"\nwho = ["course"]\n'
    )
    await limit(pool.lead.node, f'{EVERYTHING}{course}most.runs = "5/P1D"\n')
    task, _ = await pool.lead.node.admission.create(idle(2), None, User("alice"))
    await pool.seat()
    used = "SELECT holder, sum(used)::bigint FROM limit_used WHERE used > 0 GROUP BY holder"
    assert [tuple(row) for row in await pool.lead.rows(used)] == [("alice", 5)]
    assert (await pool.states(pool.lead, task))["scheduled"] == 5
    bob = User("bob", None, "198.51.100.7")
    await pool.lead.node.editing.edit(task, TaskPatch.model_validate({"priority": 3}), by=bob)
    open_ones = "SELECT limit_user FROM task WHERE $1 IN (id, parent) AND state = 'active'"
    rows = await pool.lead.rows(open_ones, task)
    assert {row[0] for row in rows} == {"bob"}
    assert "alice" not in {row[0] for row in await pool.lead.rows(used)}


async def test_nodes_are_chosen_and_their_runs_booked(world: World) -> None:
    """Two of three nodes hold the seats of every term within the horizon, and book its runs."""
    pool = await pooled(world, ALIKE)
    task = await pool.create(2)
    seats = await pool.seats(task)
    assert list(seats) == [0, 6, 12]
    assert all(list(term) == [1, 2] for term in seats.values())
    assert len({frozenset(term.values()) for term in seats.values()}) == 1, (
        "the nodes stay the same"
    )
    assert (await pool.states(pool.lead, task)) == {"scheduled": 2 * 18}
    there = [await pool.states(node, task) for node in pool.nodes]
    assert sorted(it["scheduled"] for it in there) == [0, 18, 18]
    outcomes = {outcome for outcome, _ in await pool.told(task)}
    assert outcomes == {"seated"}


@pytest_asyncio.fixture(loop_scope="session")
async def refusing(world: World) -> Pooled:
    """Return a pool of three nodes at two sites."""
    return await pooled(world, [{"site": "x"}, {"site": "x"}, {"site": "y"}])


@pytest.mark.nightly
async def test_a_node_that_leaves_the_pool_loses_its_seat(world: World) -> None:
    """A node that leaves the pool loses its seat, and another one takes over the rest."""
    pool = await pooled(world, ALIKE)
    task = await pool.create(2)
    seats_before = await pool.seats(task)
    leaver = next(site for site in pool.nodes if site.name == seats_before[0][1])
    await leaver.node.own_card.set({"in": None})
    await leaver.node.own_card.set({"in": "asia"})
    await known_as_they_are(world)
    await pool.changed()
    seats_after = await pool.seats(task)
    other = ({site.name for site in pool.nodes} - set(seats_before[0].values())).pop()
    assert seats_after == {term: {1: other, 2: seats_before[0][2]} for term in seats_before}
    assert set(await pool.states(leaver, task)) == {"cancelled"}
    lost = next(sentence for outcome, sentence in await pool.told(task) if outcome == "seat lost")
    assert lost.startswith(
        f'seat 1 ({leaver.name}): {leaver.name}: its in is "asia", and pool europe'
    )
    assert (await pool.states(pool.lead, task))["scheduled"] == 2 * 18


@pytest.mark.nightly
async def test_fewer_seats_than_suffice_measure_on(world: World) -> None:
    """The remaining seats go on measuring, and the lost ones are given again when nodes return."""
    pool = await pooled(world, ALIKE)
    task = await pool.create(3, request={"min_k": 3}, schedule={"max_runs": 2})
    for value, expected in (("asia", ["n3"]), ("europe", ["n1", "n2", "n3"])):
        for site in pool.nodes[:2]:
            await site.node.own_card.set({"in": value})
        await known_as_they_are(world)
        await pool.changed()
        assert sorted((await pool.seats(task))[0].values()) == expected
        assert (await pool.states(pool.nodes[2], task)) == {"scheduled": 2}


async def test_no_node_is_chosen_for_fewer_seats_than_suffice(world: World) -> None:
    """No seat is given if fewer nodes have time than the minimum."""
    pool = await pooled(world, ALIKE)
    once = {"start": "2026-12-01T01:00:00Z", "max_runs": 1}
    full = await pool.create(1, request={"match": {"name": "n1"}}, schedule=once, length="PT50M")
    assert (await pool.seats(full)) == {1: {1: "n1"}}
    task = await pool.create(3, request={"min_k": 3}, schedule=once, length="PT10M")
    assert await pool.seats(task) == {}
    assert [outcome for outcome, _ in await pool.told(task)] == ["not seated"]
    enough = await pool.create(3, request={"min_k": 2}, schedule=once, length="PT10M")
    assert set((await pool.seats(enough))[1].values()) == {"n2", "n3"}


async def test_a_node_that_refuses_costs_no_round(world: World) -> None:
    """A busy node is passed over for a spare one, and the reason is stored."""
    pool = await pooled(world, ALIKE)
    spec = {"duration": "PT20H", "class": "exclusive", "participants": ["n1"]}
    document = TaskDocument.model_validate(
        {"test": {"type": "idle", "spec": spec}, "schedule": {"start": "2026-12-01T00:00:01Z"}}
    )
    await pool.lead.node.admission.create(document, None)
    await pool.lead.plan()
    await world.settle()
    full = await pool.create(1, request={"match": {"name": "n1"}})
    assert await pool.seats(full) == {}
    outcome, sentence = (await pool.told(full))[0]
    assert outcome == "not seated"
    assert "n1: no 1 min free: busy with an exclusive run of priority 0 of campaign" in sentence
    task = await pool.create(2, schedule={"until": "2026-12-01T06:00:00Z"})
    assert sorted((await pool.seats(task))[0].values()) == ["n2", "n3"]


_FIRST_TERM: dict[str, Any] = {"schedule": {"until": "2026-12-01T06:00:00Z"}}


async def _lost(pool: Pooled, task: UUID) -> int:
    """Return how many seats of a task were lost."""
    sql = "SELECT count(*) FROM seat WHERE pool_task = $1 AND lost_at IS NOT NULL"
    return int((await pool.lead.rows(sql, task))[0][0])


async def _settled(pool: Pooled) -> None:
    """Give seats and plan their tasks again and again, as long as lost seats are to be given."""
    for _ in range(4):
        await pool.changed()


def _refuse_late(node: NodeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node refuse all tasks, but once they are introduced only, as earlier versions do."""
    set_limits(node, NOTHING)
    monkeypatch.setattr(node.limits, "standing_if_introduced", lambda *_: LimitStanding())


async def test_a_node_that_refuses_the_task_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node takes the seat; the one that refused is asked again after ten minutes."""
    pool = await pooled(world, ALIKE[:2])
    _refuse_late(pool.nodes[0].node, monkeypatch)
    task = await pool.create(2, request={"min_k": 1}, **_FIRST_TERM)
    await _settled(pool)
    assert [*(await pool.seats(task))[0].values()] == ["n2"]
    assert await _lost(pool, task) == 1
    sentences = [sentence for _, sentence in await pool.told(task)]
    asked_again = "n1: refused it, and is asked again from 2026-12-01T00:10:00Z on"
    assert f"{asked_again}: limits of this host: the owner" in sentences[-1]
    set_limits(pool.nodes[0].node, EVERYTHING)
    world.clock.advance(20 * times.MINUTE)
    await _settled(pool)
    assert sorted((await pool.seats(task))[0].values()) == ["n1", "n2"]


async def test_the_pause_after_a_refusal_doubles(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that refuses again is left alone for twenty minutes."""
    pool = await pooled(world, ALIKE[:1])
    _refuse_late(pool.nodes[0].node, monkeypatch)
    task = await pool.create(1, **_FIRST_TERM)
    await _settled(pool)
    world.clock.advance(20 * times.MINUTE)
    await _settled(pool)
    assert await _lost(pool, task) == 2
    assert "is asked again from 2026-12-01T00:40" in (await pool.told(task))[-1][1]


async def test_a_changed_task_is_asked_about_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that refused another test of the task is asked without a pause."""
    pool = await pooled(world, ALIKE[:1])
    _refuse_late(pool.nodes[0].node, monkeypatch)
    task = await pool.create(1, **_FIRST_TERM)
    await _settled(pool)
    set_limits(pool.nodes[0].node, EVERYTHING)
    spec = {"duration": "PT2M", "class": "exclusive"}
    await pool.edit(task, test={"type": "idle", "spec": spec})
    await _settled(pool)
    assert await pool.seats(task) == {0: {1: "n1"}}


async def test_of_nodes_that_measure_together_only_the_refusing_one_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one stays, and a third one takes the place."""
    pool = await pooled(world, ALIKE)
    _refuse_late(pool.nodes[2].node, monkeypatch)
    task = await pool.create(2, request={"together": True}, **_FIRST_TERM)
    await _settled(pool)
    assert sorted((await pool.seats(task))[0].values()) == ["n1", "n2"]
    assert await _lost(pool, task) == 2


async def test_much_to_do_for_a_pool_holds_no_other_one_up(world: World) -> None:
    """Each pool has the same number of tasks considered, those waiting longest first."""
    pool = await pooled(world, ALIKE)
    asia = {"name": "asia", "match": {"in": "europe"}}
    await pool.lead.node.pools.create(PoolDocument.model_validate(asia))
    tasks = [await pool.create(1, seat=False) for _ in range(3)]
    other = await pool.create(1, seat=False, request={"pool": "asia"})
    await pool.episodes._open_terms()
    sooner = (
        "UPDATE term SET try_at = try_at - $2::bigint * interval '1 second' WHERE pool_task = $1"
    )
    for task, seconds in zip((*tasks, other), (0, 2, 1, 0), strict=True):
        await pool.lead.execute(sooner, task, seconds)
    async with pool.lead.database.connection() as connection:
        due = await episodes.tasks_with_empty_seats(connection, pool.lead.clock.now(), 2)
    assert [whole.id for whole in due] == [tasks[1], tasks[2], other]


@pytest.mark.nightly
async def test_seats_are_spread_and_matched(world: World) -> None:
    """Seats are spread over sites, limited to matching nodes, and prefer others."""
    sites: list[dict[str, Any]] = [
        {"site": "x", "fast": True},
        {"site": "x"},
        {"site": "y"},
        {"site": "z", "fast": True},
    ]
    pool = await pooled(world, sites)
    spread = await pool.create(3, request={"spread": {"site": 1}})
    first = (await pool.seats(spread))[0]
    assert len({sites[int(name[1:]) - 1]["site"] for name in first.values()}) == 3
    matched = await pool.create(2, request={"match": {"fast": True}})
    assert set((await pool.seats(matched))[0].values()) == {"n1", "n4"}
    preferred = await pool.create(1, request={"prefer": {"site": ["y"]}}, kind="background")
    assert (await pool.seats(preferred))[0] == {1: "n3"}


async def test_rotating_nodes_take_turns(world: World) -> None:
    """With rotation each slot is a term, and the least recently chosen node is next."""
    pool = await pooled(world, ALIKE, choice="rotating")
    task = await pool.create(1, schedule={"max_runs": 6})
    seats = await pool.seats(task)
    turns = [term[1] for term in seats.values()]
    assert len(turns) == 6
    assert sorted(turns[:3]) == ["n1", "n2", "n3"]
    assert turns[3:] == turns[:3]


@pytest.mark.nightly
async def test_together_is_one_task_of_all(world: World) -> None:
    """Seats measured together have one task of all nodes; too few nodes are a failure."""
    pool = await pooled(world, ALIKE)
    task = await pool.create(3, request={"together": True}, schedule={"max_runs": 2})
    parts = await pool.lead.rows("SELECT id, participants FROM task WHERE parent = $1", task)
    assert len(parts) == 1
    assert sorted(participant["name"] for participant in parts[0][1]) == ["n1", "n2", "n3"]
    states = [await pool.states(site, task) for site in (pool.lead, *pool.nodes)]
    assert states == [{"scheduled": 2}] * 4
    spec = {"duration": "PT20H", "class": "exclusive", "participants": ["n1"]}
    document = TaskDocument.model_validate({"test": {"type": "idle", "spec": spec}, "priority": 9})
    await pool.lead.node.admission.create(document, None)
    await pool.lead.plan()
    await world.settle()
    late = await pool.create(3, request={"together": True}, schedule={"max_runs": 1})
    assert await pool.seats(late) == {}
    [(outcome, sentence)] = await pool.told(late)
    assert outcome == "not seated"
    assert "n2: has time, but not at the same time as enough others" in sentence


async def test_too_few_nodes_are_said_on_the_task(world: World) -> None:
    """An empty pool is reported at its tasks until it has nodes again."""
    pool = await pooled(world, [{}])
    task = await pool.create(1)
    for value in ("asia", "europe"):
        await pool.nodes[0].node.own_card.set({"in": value})
        await known_as_they_are(world)
        await pool.changed()
        reason = (await pool.lead.rows("SELECT reason FROM pool_task"))[0][0]
        if value == "asia":
            assert reason == 'pool europe is empty: no node known here has in = "europe"'
            assert await pool.seats(task) == {}
        else:
            assert reason is None
    assert (await pool.seats(task))[0] == {1: "n1"}
    outcomes = [outcome for outcome, _ in await pool.told(task)]
    assert outcomes.index("lacks nodes") < outcomes.index("goes on")


@pytest.mark.parametrize(
    ("request_", "pointer", "words"),
    [
        ({"pool": "eurpe"}, "/participants/pool", "there is no pool eurpe; did you mean europe?"),
        ({"k": 4}, "/participants/k", "more than pool europe has: 3 nodes; ask for 3 at most"),
        ({"match": {"site": "w"}}, "/participants/match/site", 'site is "x", "y"'),
        ({"match": {"site": "y"}}, "/participants/k", "1 of 3 nodes"),
        ({"spread": {"site": 1}, "k": 3}, "/participants/k", "2 of 3 nodes at most"),
        ({"spread": {"sight": 1}}, "/participants/spread/sight", "they have"),
        ({"prefer": {"sight": 1}}, "/participants/prefer/sight", "they have"),
        ({"field": "dest"}, "/participants/field", "idle has no field dest"),
        ({"field": "duration"}, "/test/spec/duration", "leave it out"),
        ({"match": {"site": {"~": 1}}}, "/participants/match/site/~0", "is not a comparison"),
    ],
)
@pytest.mark.mostly_nightly
async def test_what_cannot_be_met_is_refused_at_once(
    refusing: Pooled, request_: dict[str, Any], pointer: str, words: str
) -> None:
    """An unsatisfiable request is refused with the field, the figures and the remedy."""
    k = request_.pop("k", 2)
    with pytest.raises(InvalidDocument) as raised:
        await refusing.lead.node.admission.create(idle(k, request=request_), None)
    assert [fault.pointer for fault in raised.value.faults] == [pointer]
    assert words in raised.value.detail


@pytest.mark.nightly
async def test_runs_that_are_not_seen_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool warns when an episode could not consider all booked runs."""
    monkeypatch.setattr("lead.pool.snapshot_queries.RUNS_MAX", 5)
    pool = await pooled(world, ALIKE)
    first, second = await pool.create(1), await pool.create(1)
    note = "of the booked runs the policies saw 5, not all from 20"
    assert not any(note in sentence for _, sentence in await pool.told(first))
    assert not any(note in sentence for _, sentence in await pool.told(second))
    warnings = await pool.lead.node.pools.warnings()
    assert warnings.pools["europe"][0].startswith(note)


async def test_runs_to_come_that_are_not_seen_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool warns when an episode could not consider all unbooked runs of a new seat."""
    monkeypatch.setattr("lead.pool.snapshot_queries.UNBOOKED_RUNS_MAX", 5)
    pool = await pooled(world, ALIKE)
    note = "of the runs of a seat that are still to be booked the policies saw 5, not all from 20"
    for many in (0, 1):
        await pool.create(1, seat=False)
        while not await pool.episodes.run_once():
            pass
        warnings = (await pool.lead.node.pools.warnings()).pools["europe"]
        assert [warning.startswith(note) for warning in warnings] == [True] * many


@pytest.mark.nightly
async def test_a_pool_goes_as_soon_as_nobody_wants_nodes_of_it(world: World) -> None:
    """A pool can be removed when no open task wants its nodes; else these tasks are named."""
    pool = await pooled(world, [{}])
    paused, over = await pool.create(1), await pool.create(1)
    await pool.lead.node.editing.pause(paused)
    await pool.lead.node.termination.cancel_task(over)
    with pytest.raises(Conflict) as refused:
        await pool.lead.node.pools.remove("europe")
    assert refused.value.detail == (
        f"1 task wants nodes of europe: {paused}; end what is not wanted first: "
        f"parley task cancel {paused}"
    )
    await pool.lead.node.termination.cancel_task(paused)
    await pool.lead.node.pools.remove("europe")
    assert await pool.lead.node.pools.all() == []
    orphaned = "SELECT request ->> 'pool' FROM pool_task WHERE pool_id IS NULL"
    assert [row[0] for row in await pool.lead.rows(orphaned)] == ["europe", "europe"]
    await pool.seat()
    match = {"in": "europe"}
    await pool.lead.node.pools.create(
        PoolDocument.model_validate({"name": "europe", "match": match})
    )
    task = await pool.create(1)
    assert await pool.seats(task)
