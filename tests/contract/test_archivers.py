"""The suite that every archiver must pass, each with a real peer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from node.model import secrets, times
from node.model.errors import ArchiverFailed
from node.plugins.contracts import ArchivingHost, DeliveryStatus, Destination
from node.postgres.cluster import PrivateCluster
from node.results.archivers import archivers, missing_requirement
from tests.support.clocks import START
from tests.support.listeners import PEERS, deliveries, document
from tests.support.receivers import (
    BOOT,
    CLOCK,
    REJECTED,
    Peer,
    Servers,
    Surroundings,
    rabbitmq,
    servers,
)

pytestmark = pytest.mark.timeout(BOOT + 60)

PROGRAMS = {
    "prometheus": ("prometheus",),
    "rabbitmq": ("rabbitmq",),
    "syslog-tcp": ("rsyslogd",),
    "syslog-udp": ("rsyslogd",),
    "syslog-unix": ("rsyslogd",),
}

LASTING = {"udp", "syslog-udp"}
"""Archivers that use datagrams and cannot detect a missing receiver."""


CASES = {name: pytest.mark.needs(*PROGRAMS.get(name, ())) for name in PEERS}
"""Each case with the programs that its peer needs."""


@dataclass
class Case:
    """An archiver's destination, and its peer."""

    name: str
    destination: Destination
    peer: Peer


@pytest.fixture(scope="module")
def started() -> Iterator[Servers]:
    """Return the servers, each started for the first test that needs it."""
    with servers() as made:
        yield made


@pytest.fixture
def where(tmp_path: Path, cluster: PrivateCluster, started: Servers) -> Surroundings:
    """Return the resources that peers are created with."""
    return Surroundings(tmp_path, cluster, started)


@pytest.fixture(params=[pytest.param(name, marks=needs) for name, needs in sorted(CASES.items())])
async def case(request: pytest.FixtureRequest, where: Surroundings) -> AsyncIterator[Case]:
    """Return each archiver with its peer."""
    name, made = PEERS[request.param]
    archiver = archivers()[name]
    assert missing_requirement(archiver) is None
    async with made(where) as peer:
        patient = {"timeout": "PT2M"} if "timeout" in archiver.spec_model.model_fields else {}
        spec = archiver.spec_model.model_validate({**peer.spec, **patient})
        host = ArchivingHost("a.example", (where.folder, where.cluster.socket), lambda: START)
        assert archiver.refusal(spec, host) is None
        destination = archiver.open(spec, host)
        yield Case(request.param, destination, peer)
        await destination.close()


def test_every_archiver_is_tried() -> None:
    """Every archiver has a peer here, except the one that keeps nothing."""
    assert {name for name, _ in PEERS.values()} == set(archivers()) - {"bitbucket"}


@pytest.mark.mostly_nightly
async def test_a_batch_arrives_whole_and_in_order(case: Case) -> None:
    """Each document of two batches arrives once, unchanged, in order."""
    for first in (0, 30):
        outcomes = await case.destination.deliver(deliveries(30, first))
        assert [outcome.status for outcome in outcomes] == [DeliveryStatus.ACCEPTED] * 30
    got = await case.peer.until(60)
    assert [document["number"] for document in got] == list(range(60))
    assert {document["text"] for document in got} == {'é" \\ %s'}


@pytest.mark.mostly_nightly
async def test_trying_it_delivers_nothing(case: Case) -> None:
    """A test says what was checked, and delivers no result."""
    assert await case.destination.test()
    await case.destination.deliver(deliveries(1))
    assert len(await case.peer.until(1)) == 1


@pytest.mark.mostly_nightly
async def test_a_stopped_peer_is_detected(case: Case, where: Surroundings) -> None:
    """If the peer stops, deliveries are to be retried with a reason, and a test fails."""
    await case.destination.deliver(deliveries(1))
    await case.peer.until(1)
    async with at(
        PEERS[case.name][0], case.peer, (where.folder,)
    ) as destination:  # as patient as archives are
        await destination.deliver(deliveries(1, 1))
        await case.peer.leave()
        await destination.deliver(deliveries(2, 2))
        outcomes = await destination.deliver(deliveries(2, 2))
        assert {outcome.status for outcome in outcomes} == {DeliveryStatus.AGAIN}
        assert all(outcome.reason for outcome in outcomes)
        if case.name not in LASTING:
            with pytest.raises(ArchiverFailed):
                await destination.test()


@pytest.mark.parametrize("name", sorted(archivers()))
def test_an_archiver_describes_itself(name: str) -> None:
    """Each archiver has a name, title, a documented schema, limits, and a label without secrets."""
    archiver = archivers()[name]
    assert (archiver.name, bool(archiver.title)) == (name, True)
    schema = archiver.spec_model.model_json_schema()
    assert schema["additionalProperties"] is False
    secret = secrets.secret_fields(archiver.spec_model)
    assert secret <= set(schema["properties"])
    examples = {
        "bitbucket": {},
        "file": {"path": "/srv/x"},
        "http": {"url": "http://h/p?token=hush", "secret": "hush" * 4, "headers": {"A": "hush"}},
        "postgresql": {"database": "d", "user": "u", "password": "hush"},
        "prometheus": {"url": "http://h/p?token=hush", "headers": {"A": "hush"}},
        "rabbitmq": {"host": "h", "password": "hush"},
        "kafka": {"brokers": [{"host": "h"}], "password": "hush"},
        "otlp": {"url": "http://h/p?token=hush", "headers": {"A": "hush"}},
        "s3": {"bucket": "results", "access_key": "a", "secret_key": "hush"},
        "syslog": {},
    }
    spec = archiver.spec_model.model_validate(examples.get(name, {"host": "h", "port": 1}))
    limits = archiver.batches(spec)
    assert min(limits.items, limits.size, limits.timeout) > 0
    assert "hush" not in archiver.label(spec)
    shown = secrets.redacted_spec(archiver.spec_model, spec.model_dump(mode="json"))
    assert "hush" not in json.dumps({**shown, "url": ""})


@contextlib.asynccontextmanager
async def at(
    name: str, peer: Peer, folders: tuple[Path, ...] = (), **fields: Any
) -> AsyncIterator[Destination]:
    """Open a destination at a peer, with other fields."""
    archiver = archivers()[name]
    spec = archiver.spec_model.model_validate({**peer.spec, **fields})
    destination = archiver.open(spec, ArchivingHost("a.example", folders, CLOCK.now))
    yield destination
    await destination.close()


@contextlib.asynccontextmanager
async def met(
    name: str, where: Surroundings, **fields: Any
) -> AsyncIterator[tuple[Peer, Destination]]:
    """Start an archiver's peer, and open a destination there."""
    async with PEERS[name][1](where) as peer, at(name, peer, **fields) as destination:
        yield peer, destination


async def test_postgres_keeps_what_comes_twice_once(where: Surroundings) -> None:
    """There is one row per key, and one in the view per figure; an invalid document is refused."""
    async with met("postgresql", where) as (peer, destination):
        good = deliveries(5)
        bad = replace(good[2], key="key-bad", body=b'{"text": "\\u0000"}')
        outcomes = await destination.deliver([*good[:2], bad, *good[2:]])
        accepted, refused = DeliveryStatus.ACCEPTED, DeliveryStatus.REFUSED
        assert [one.status for one in outcomes] == [accepted] * 2 + [refused] + [accepted] * 3
        assert "Unicode" in (outcomes[2].reason or "")
        assert {one.status for one in await destination.deliver(good)} == {accepted}
        connection = await asyncpg.connect(
            where.cluster.dsn(peer.spec["database"]), server_settings={"timezone": "UTC"}
        )
        rows = await connection.fetch("SELECT name, value, unit, at, key FROM parley_metric")
        await connection.close()
    found = sorted((row["value"], row["key"], row["at"]) for row in rows)
    assert found == [
        (float(n), f"key-{n}", times.to_datetime(one.at)) for n, one in enumerate(good)
    ]


@pytest.mark.nightly
async def test_postgres_adds_to_a_table_that_was_there(where: Surroundings) -> None:
    """A row with the document is added to the column of another table, whatever its type."""
    async with PEERS["postgresql"][1](where) as peer:
        dsn = where.cluster.dsn(peer.spec["database"])
        connection = await asyncpg.connect(dsn)
        await connection.execute('CREATE TABLE kept (number serial, "a doc" jsonb)')
        async with at("postgresql", peer, table="kept", column="a doc") as destination:
            assert "kept" in await destination.test()
            [outcome, *_] = await destination.deliver(deliveries(2))
            assert outcome.status is DeliveryStatus.ACCEPTED
            bad = replace(deliveries(1)[0], body=b"no JSON")
            [refused] = await destination.deliver([bad])
            assert refused.status is DeliveryStatus.REFUSED
        async with at("postgresql", peer, table="other", column="x") as destination:
            [waits] = await destination.deliver(deliveries(1))
            assert waits.reason == "there is no table other in schema public"
        rows = await connection.fetch("SELECT \"a doc\" ->> 'number' FROM kept ORDER BY number")
        await connection.close()
    assert [row[0] for row in rows] == ["0", "1"]


async def test_the_bitbucket_accepts_and_forgets() -> None:
    """It accepts whatever is delivered."""
    archiver = archivers()["bitbucket"]
    spec = archiver.spec_model()
    destination = archiver.open(spec, ArchivingHost("a.example", (), CLOCK.now))
    outcomes = await destination.deliver(deliveries(3))
    assert [one.status for one in outcomes] == [DeliveryStatus.ACCEPTED] * 3
    assert await destination.test()


async def test_postgres_makes_no_table_where_it_must_not(where: Surroundings) -> None:
    """Results wait, with the reason, until the table has been created."""
    async with met("postgresql", where, create=False) as (peer, destination):
        [outcome] = await destination.deliver(deliveries(1))
        assert (outcome.status, outcome.reason) == (
            DeliveryStatus.AGAIN,
            "there is no table parley_result in schema public",
        )
        with pytest.raises(ArchiverFailed):
            await destination.test()
        async with at("postgresql", peer) as making:
            assert (await making.deliver(deliveries(1)))[0].status is DeliveryStatus.ACCEPTED
        assert (await destination.deliver(deliveries(1)))[0].status is DeliveryStatus.ACCEPTED


@pytest.mark.needs("rabbitmq")
@pytest.mark.nightly
async def test_unroutable_messages_are_not_delivered(where: Surroundings) -> None:
    """A message that no queue takes is not delivered, and a missing exchange is reported."""
    async with rabbitmq(where) as peer:
        for exchange, said in (("amq.fanout", "no queue takes it"), ("none", "no exchange 'none'")):
            async with at("rabbitmq", peer, exchange=exchange) as destination:
                outcomes = await destination.deliver(deliveries(3))
                assert {one.status for one in outcomes} == {DeliveryStatus.AGAIN}
                assert said in (outcomes[0].reason or "")
        assert peer.got() == []


@pytest.mark.needs("prometheus")
async def test_prometheus_refuses_what_is_older_than_what_it_has(where: Surroundings) -> None:
    """Older samples and results without figures are refused; repeated samples are accepted."""
    async with met("prometheus", where) as (peer, destination):
        first, *later = deliveries(4)
        empty = replace(first, key="key-empty", body=b'{"summary": "changed by a transform"}')
        assert {one.status for one in await destination.deliver(later)} == {DeliveryStatus.ACCEPTED}
        outcomes = await destination.deliver([first, later[-1], empty])
        assert [one.status for one in outcomes] == [
            DeliveryStatus.REFUSED,
            DeliveryStatus.ACCEPTED,
            DeliveryStatus.REFUSED,
        ]
        assert "out of order" in (outcomes[0].reason or "")
        assert "figures" in (outcomes[2].reason or "")
        assert [one["number"] for one in await peer.until(3)] == [1, 2, 3]


async def test_a_collector_may_reject_one_of_many(where: Surroundings) -> None:
    """A result whose data points were rejected is refused, and the others are accepted."""
    async with met("otlp", where) as (peer, destination):
        good = deliveries(4)
        bad = replace(good[2], body=json.dumps(document(REJECTED)).encode())
        outcomes = await destination.deliver([*good[:2], bad, good[3]])
        fates = [
            DeliveryStatus.ACCEPTED,
            DeliveryStatus.ACCEPTED,
            DeliveryStatus.REFUSED,
            DeliveryStatus.ACCEPTED,
        ]
        assert [one.status for one in outcomes] == fates
        assert outcomes[2].reason == "rejected: not this one"
        assert {one["number"] for one in await peer.until(3)} == {0, 1, 3}


async def test_kafka_parks_what_no_record_holds(where: Surroundings) -> None:
    """A document that exceeds a record is refused, and the others are delivered."""
    async with met("kafka", where) as (peer, destination):
        first, second, third = deliveries(3)
        long = replace(second, body=b'"' + b"x" * 1_000_000 + b'"')
        outcomes = await destination.deliver([first, long, third])
        assert [one.status for one in outcomes] == [
            DeliveryStatus.ACCEPTED,
            DeliveryStatus.REFUSED,
            DeliveryStatus.ACCEPTED,
        ]
        assert [one["number"] for one in await peer.until(2)] == [0, 2]
