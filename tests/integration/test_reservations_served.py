"""Reservations over HTTP: permissions, answers, and the timeline with reservations."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from node.client.users import UserClient
from node.model import times
from node.model.errors import Conflict, InvalidDocument, NotAuthenticated, NotFound
from node.model.times import format_instant
from tests.conftest import NewDatabase
from tests.support.booking import HOUR
from tests.support.clocks import START, ManualClock
from tests.support.reservations import document
from tests.support.served_nodes import Served, give_token, served

HALF = 30 * times.MINUTE


@pytest.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Served]:
    """Return a served node with the token of its owner."""
    async with served("a", await new_database(), clock, tmp_path) as server:
        await give_token(server)
        yield server


@contextlib.asynccontextmanager
async def client(node: Served, token: str | None = "secret") -> AsyncIterator[UserClient]:
    """Open a client with this token."""
    async with UserClient(node.settings.public_url, token, node.clock) as opened:
        yield opened


async def test_a_life_over_http(node: Served) -> None:
    """A reservation is created, listed, shown, edited by revision, on the timeline, and removed."""
    async with client(node) as owner:
        await owner.add_campaign({"name": "ops"})
        reservation = await owner.add_reservation(document())
        assert (reservation.state, reservation.inside, reservation.access.campaigns) == (
            "upcoming",
            (),
            (),
        )
        assert [item.id for item in (await owner.reservations()).items] == [reservation.id]
        assert await owner.reservation(reservation.id) == reservation
        patch = {"revision": 1, "duration": "PT1H", "access": {"campaigns": ["ops"]}}
        edited = await owner.edit_reservation(reservation.id, patch)
        assert (edited.duration, edited.access.campaigns) == (times.HOUR, ("ops",))
        with pytest.raises(Conflict, match="read it again"):
            await owner.edit_reservation(reservation.id, patch)
        shown = await owner.schedule(START, HOUR + 1)
        [span] = shown.reserved
        assert (span.reservation, span.starts_at) == (reservation.id, HOUR)
        assert span.ends_at == HOUR + times.HOUR
        assert (await owner.schedule(START, HOUR)).reserved == ()
        assert (await owner.schedule(HOUR, START)).reserved == ()
        await owner.remove_reservation(reservation.id)
        assert (await owner.reservations()).items == ()
        with pytest.raises(NotFound, match=f"there is no reservation {reservation.id}"):
            await owner.reservation(reservation.id)


async def test_pages_and_beginnings_of_ids(node: Served, clock: ManualClock) -> None:
    """Lists continue at their cursor, and find an id by its first digits."""
    async with client(node) as owner:
        ids = []
        for _ in range(3):
            ids.append((await owner.add_reservation(document())).id)
            clock.advance(1)
        first = await owner.reservations(limit=2)
        rest = await owner.reservations(limit=2, cursor=first.next)
        assert [item.id for item in (*first.items, *rest.items)] == ids[::-1]
        assert rest.next is None
        [match] = (await owner.reservations(prefix=str(ids[1])[:13])).items
        assert match.id == ids[1]


async def test_only_who_has_a_token_reserves(node: Served) -> None:
    """Without a token reservations can be neither viewed nor changed, not even from this host."""
    async with client(node) as owner:
        reservation = await owner.add_reservation(document())
    async with client(node, None) as other:
        with pytest.raises(NotAuthenticated):
            await other.reservation(reservation.id)
        with pytest.raises(NotAuthenticated):
            await other.add_reservation(document())
        with pytest.raises(NotAuthenticated):
            await other.edit_reservation(reservation.id, {"name": "mine"})
        with pytest.raises(NotAuthenticated):
            await other.remove_reservation(reservation.id)


async def test_a_key_makes_one(node: Served) -> None:
    """A repeated POST with the same key returns the reservation that it created."""
    headers = {"Authorization": "Bearer secret", "Idempotency-Key": "once"}
    url = f"{node.settings.public_url}/v1/reservations"
    answers = []
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(2):
            async with session.post(url, json=document()) as response:
                answers.append((response.status, response.headers["Location"]))
        async with session.post(url, json=document(name="other")) as response:
            assert response.status == 409
        async with session.post(url, json=document(), headers={"Idempotency-Key": ""}) as response:
            assert response.status == 422
    assert answers[0] == answers[1]
    assert answers[0][0] == 201
    assert answers[0][1].startswith("/v1/reservations/")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"kind": "party"}, "/kind"),
        ({"name": "two\nlines"}, "/name"),
        ({"name": ""}, "/name"),
        ({"duration": "PT59S"}, "/duration"),
        ({"duration": 3600}, "/duration"),
        ({"access": {"everybody": True}}, "/access/everybody"),
        ({"access": {"classes": ["loud"]}}, "/access/classes/0"),
        ({"access": {"tasks": ["7"]}}, "/access/tasks/0"),
        ({"access": {"tests": ["rtt", "foo"]}}, "/access/tests/1"),
        ({"access": {"priority": "high"}}, "/access/priority"),
        ({"schedule": {"slip": "PT1M"}}, "/schedule/slip"),
        ({"schedule": {"start": format_instant(START - HALF)}}, "/schedule"),
        ({"schedule": {"cron": "61 * * * *"}}, "/schedule/cron"),
        ({"displace": "yes"}, "/displace"),
    ],
)
@pytest.mark.mostly_nightly
async def test_wrong_fields_are_pointed_at(
    node: Served, fields: dict[str, Any], pointer: str
) -> None:
    """An invalid field is refused with its pointer, and nothing is reserved."""
    async with client(node) as owner:
        with pytest.raises(InvalidDocument) as error:
            await owner.add_reservation(document(**fields))
        assert error.value.faults[0].pointer == pointer
        assert (await owner.reservations()).items == ()


async def test_campaigns_that_are_admitted_are_there(node: Served, clock: ManualClock) -> None:
    """Admitted campaigns must exist, and cannot be removed before the reservation is over."""
    async with client(node) as owner:
        await owner.add_campaign({"name": "sc26"})
        refused = document(access={"campaigns": ["default", "sc62"]})
        with pytest.raises(InvalidDocument) as error:
            await owner.add_reservation(refused)
        [fault] = error.value.faults
        assert fault.pointer == "/access/campaigns/1"
        assert fault.detail == (
            "there is no campaign sc62 on this node (make it: parley campaign add sc62); "
            "did you mean sc26?"
        )
        reservation = await owner.add_reservation(document(access={"campaigns": ["sc26"]}))
        with pytest.raises(Conflict) as conflict:
            await owner.remove_campaign("sc26")
        assert conflict.value.detail == (
            f"sc26 is in /access/campaigns of reservation {reservation.id}, "
            "which would admit whoever has the name next; take it out first: "
            f"parley reservation edit {reservation.id} --clear campaigns, "
            "or with --campaign for each that stays"
        )
        clock.move_to(HOUR + HALF)
        await owner.remove_campaign("sc26")
        longer = await owner.edit_reservation(reservation.id, {"duration": "PT1H"})
        assert (longer.duration, longer.access.campaigns) == (times.HOUR, ("sc26",))
        access = {"campaigns": ["sc26", "sc26x"]}
        with pytest.raises(InvalidDocument, match="there is no campaign sc26x"):
            await owner.edit_reservation(reservation.id, {"access": access})


async def test_what_is_not_there(node: Served) -> None:
    """Changing an unknown reservation fails as not found."""
    async with client(node) as owner:
        with pytest.raises(NotFound):
            await owner.remove_reservation(uuid4())
        with pytest.raises(NotFound):
            await owner.edit_reservation(uuid4(), {"name": "x"})
