"""Keys that are replaced: others follow, over HTTP and TLS, and nothing else changes."""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from node.execution import process
from node.model import times
from node.model.errors import (
    Conflict,
    HostError,
    NotAuthenticated,
    NotReady,
    PeerAnswered,
    PeerUnreachable,
)
from node.model.wire.nodes import NodeAddition
from node.model.wire.tasks import Participant, Schedule
from node.peers.successions import Rekeyed
from node.runtime.clock import DOUBT, Clock, SystemClock
from node.store import notices
from node.trust.keys import NodeKey
from node.trust.lineage import OVERLAP
from node.trust.signer import Signer
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Served, fetching, know, served
from tests.support.worlds import commit_request, exchange_of, hold_request, introduce

NOW = 1_800_000_000 * times.SECOND

Pair = tuple[Served, Served]


@contextlib.asynccontextmanager
async def _pair(
    new_database: NewDatabase, folder: Path, clock: Clock, *, tls: bool
) -> AsyncIterator[Pair]:
    for name in "ab":
        (folder / name).mkdir()
    async with (
        served("a", await new_database(), clock, folder / "a", tls=tls) as a,
        served("b", await new_database(), clock, folder / "b", tls=tls) as b,
    ):
        await know(a, a, b)
        await know(b, b, a)
        if isinstance(clock, SystemClock):  # requests of the second of the start are refused
            await clock.sleep_until((clock.now() // times.SECOND + 1) * times.SECOND)
        yield a, b


@pytest.fixture(params=["http", "https"])
async def pair(
    request: pytest.FixtureRequest, new_database: NewDatabase, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return two nodes that know each other."""
    async with _pair(new_database, tmp_path, SystemClock(), tls=request.param == "https") as both:
        yield both


@pytest.fixture
async def timed(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Pair]:
    """Return two nodes that know each other, and whose clock the test moves."""
    async with _pair(new_database, tmp_path, ManualClock(NOW), tls=False) as both:
        yield both


async def _rekey(node: Served) -> Rekeyed:
    rekeyed = await node.successions.rekey()
    await node.renew_certificates()
    return rekeyed


def _known(here: Served, there: Served) -> tuple[str, ...]:
    lineage = here.directory.lineage(there.core.identity)
    assert lineage is not None
    return lineage.keys


def _keys(node: Served) -> tuple[str, ...]:
    assert node.core.signer is not None
    return node.core.signer.lineage.keys


async def _ask(here: Served, there: Served) -> None:
    known = here.directory.by_identity(there.core.identity)
    await here.peers.client_of(known.identity, known.name, known.url).limits()


def _with_key(node: Served, key: NodeKey) -> None:
    """Let a node send with another key, as a thief of it or a restored host does."""
    node.peers.signer = Signer(key, node.clock.now)


@pytest.mark.nightly
async def test_the_other_node_follows_at_once(pair: Pair) -> None:
    """A node that is rekeyed keeps its identity, and who knows it has the new key at once."""
    a, b = pair
    identity = a.core.identity
    rekeyed = await _rekey(a)
    assert rekeyed.told == ("b",)
    assert _known(b, a) == _known(a, a) == _keys(a) == rekeyed.lineage.keys
    assert len(_keys(a)) == 2
    assert a.core.identity == identity
    await _ask(a, b)
    await _ask(b, a)


@pytest.mark.nightly
async def test_a_node_that_was_away_follows_when_it_asks(pair: Pair) -> None:
    """A node that knows only the key of two replacements ago follows by the answer that it gets."""
    a, b = pair
    async with a.database.transaction() as connection:
        await connection.execute("UPDATE node SET url = 'http://127.0.0.1:9' WHERE NOT is_self")
    await a.directory.refresh()
    for _ in range(2):
        rekeyed = await _rekey(a)
        assert list(rekeyed.untold) == ["b"]
    assert len(_known(b, a)) == 1
    await _ask(b, a)
    assert _known(b, a) == _keys(a)


@pytest.mark.nightly
async def test_a_node_that_was_away_follows_when_it_is_asked(pair: Pair) -> None:
    """A node that knows only the key of two replacements ago follows by the request that comes."""
    a, b = pair
    file = a.successions._key
    assert file is not None
    for _ in range(2):
        file.replace(a.clock.now())
    await a.renew_certificates()
    assert len(_known(b, a)) == 1
    await _ask(a, b)
    assert _known(b, a) == _keys(a)


@pytest.mark.nightly
async def test_a_new_node_is_added_by_identity_or_by_its_key(
    pair: Pair, new_database: NewDatabase, tmp_path: Path
) -> None:
    """A node with a later key is added by its identity, or by the key of today, not by another."""
    a, _ = pair
    await _rekey(a)
    for name, expected in (("c", a.core.identity), ("d", _keys(a)[-1]), ("e", None)):
        folder = tmp_path / name
        folder.mkdir()
        tls = str(a.card.url).startswith("https:")
        if tls and expected is None:
            continue
        async with served(name, await new_database(), SystemClock(), folder, tls=tls) as new:
            stranger = NodeKey.generate().public_text
            with pytest.raises((PeerUnreachable, Conflict), match="the key"):
                await new.registration.add(NodeAddition(url=a.card.url, identity=stranger))
            known = await new.registration.add(NodeAddition(url=a.card.url, identity=expected))
            assert known.identity == a.core.identity
            assert _known(new, a) == _keys(a)


async def test_the_old_key_counts_for_a_day(timed: Pair) -> None:
    """Requests with the old key are answered for a day, and then refused with the new one."""
    a, b = timed
    clock = a.clock
    assert isinstance(clock, ManualClock)
    old = a.key
    await _rekey(a)
    _with_key(a, old)
    await _ask(a, b)
    clock.advance(OVERLAP)
    with pytest.raises(NotAuthenticated, match=r"was replaced at .*, and does not count any more"):
        await _ask(a, b)
    with pytest.raises(PeerAnswered, match="does not count any more"):
        await _ask(b, a)


@pytest.mark.parametrize("by", [times.HOUR, -NOW])
async def test_no_key_is_replaced_by_a_wrong_clock(timed: Pair, by: int) -> None:
    """A clock in doubt, or of 1970, dates no succession: the key stays, and the owner is told."""
    a, _ = timed
    clock = a.clock
    assert isinstance(clock, ManualClock)
    clock.confirmed = by < 0
    clock.step(by)
    with pytest.raises(NotReady, match=r"clock says .*, and may be wrong.*Set it right"):
        await a.successions.rekey()
    assert len(_keys(a)) == 1
    clock.step(-by)
    a.core.steps.look()
    clock.advance(DOUBT)
    assert len((await a.successions.rekey()).lineage.keys) == 2


async def test_a_key_replaced_by_a_clock_ahead_counts_for_a_day(timed: Pair) -> None:
    """Others count the day from when they heard of it: whoever has the old key has no more."""
    a, b = timed
    clock, old = a.clock, a.key
    assert isinstance(clock, ManualClock)
    file = a.successions._key
    assert file is not None
    file.replace(clock.now() + 40 * times.DAY)
    await _ask(a, b)
    _with_key(a, old)
    await _ask(a, b)
    clock.advance(OVERLAP)
    with pytest.raises(NotAuthenticated, match="does not count any more"):
        await _ask(a, b)


async def test_a_second_successor_is_refused(timed: Pair) -> None:
    """A thief of the old key cannot name another successor; the list of nodes tells it."""
    a, b = timed
    thief = a.key.succeeded_by(NodeKey.generate(), a.clock.now())
    await _rekey(a)
    _with_key(a, thief)
    with pytest.raises(NotAuthenticated, match="two keys claim to follow the key"):
        await _ask(a, b)
    await b.directory.refresh()
    last_error = b.directory.by_identity(a.core.identity).last_error
    assert last_error is not None
    assert "two have that key" in last_error
    assert _known(b, a) == _keys(a)


async def test_a_key_of_another_node_is_not_taken_over(timed: Pair) -> None:
    """A node cannot say that it has the key of another one, even if that one agrees."""
    a, b = timed
    _with_key(a, a.key.succeeded_by(b.key, a.clock.now()))
    with pytest.raises(NotAuthenticated, match="is that of another node"):
        await _ask(a, b)
    assert len(_known(b, a)) == 1


async def test_a_thief_does_not_rekey_the_node_itself(timed: Pair) -> None:
    """A node does not believe others about its own key."""
    a, b = timed
    _with_key(b, a.key.succeeded_by(NodeKey.generate(), a.clock.now()))
    with pytest.raises(NotAuthenticated, match="has another key than its own"):
        await _ask(b, a)
    assert len(_known(a, a)) == 1


async def test_a_database_that_is_behind_the_key_follows_at_the_start(timed: Pair) -> None:
    """A node that ended between its file and its database has the key of the file."""
    a, _ = timed
    file = a.successions._key
    assert file is not None
    file.replace(a.clock.now())
    async with a.database.transaction() as connection:
        await a.successions.keep_own(connection)
    await a.directory.refresh()
    assert _known(a, a) == _keys(a)


async def test_an_older_key_file_is_refused_at_the_start(timed: Pair, tmp_path: Path) -> None:
    """A node whose file has an earlier key than its database says so, and does not start."""
    a, _ = timed
    before = (tmp_path / "a" / "a.pem").read_bytes()
    await _rekey(a)
    (tmp_path / "a" / "a.pem").unlink()
    (tmp_path / "a" / "a.pem").write_bytes(before)
    (tmp_path / "a" / "a.pem").chmod(0o600)
    with pytest.raises(HostError, match=r"bring back the\s+latest node\.pem"):
        async with a.database.transaction() as connection:
            await a.successions.keep_own(connection)


async def test_a_node_in_pull_mode_follows_and_is_followed(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """A node that fetches its work gets requests by a new key, and its own new key is followed."""
    for name in "ab":
        (tmp_path / name).mkdir()
    clock = SystemClock()
    async with (
        served("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b", pull=True) as b,
    ):
        await know(a, a, b)
        await know(b, b, a)
        await clock.sleep_until((clock.now() // times.SECOND + 1) * times.SECOND)
        await _rekey(b)
        async with fetching(b):
            await a.successions.rekey()
            await _ask(a, b)
        assert _known(a, b) == _keys(b)
        assert _known(b, a) == _keys(a)


_REPLACING = """
import os, signal, sys
from pathlib import Path
from node.trust.key_files import KeyFile

file, left = KeyFile(Path(sys.argv[1])), int(sys.argv[2])

def killing(call):
    def step(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return step

for name in ("open", "fchmod", "fsync", "replace", "unlink", "close"):
    setattr(os, name, killing(getattr(os, name)))
file.replace(int(sys.argv[3]))
"""
"""A process that replaces the key of a node, and is killed before a step of that."""


class _Killed(BaseException):
    """The end of a process at some place."""


async def _replaced(node: Served, step: int) -> bool:
    """Replace the key in a process that is killed before this step; return whether it was not."""
    file = node.settings.state_dir / f"{node.settings.name}.pem"
    argv = [sys.executable, "-c", _REPLACING, str(file), str(step), str(node.clock.now())]
    ended = await (await process.start(argv)).wait()
    assert ended.exit_code in {0, -signal.SIGKILL}, ended.stderr
    return ended.exit_code == 0


async def _started_again(node: Served) -> None:
    """Do what the start of a node does about its key."""
    async with node.database.transaction() as connection:
        await node.successions.keep_own(connection)
    await node.directory.refresh()
    await node.renew_certificates()


async def _booked(lead: Served, there: Served) -> tuple[UUID, str]:
    """Book a run of an hour later at another node; return it with the identity of its lead."""
    at = NOW + times.HOUR
    listed = [
        Participant(
            node=each.card.identity,
            name=each.card.name,
            url=each.card.url,
            address=each.card.address,
            accepted=True,
            tools=("sleep",),
        )
        for each in (there, lead)
    ]
    task = introduce(listed, schedule=Schedule(start=at, slip=0))
    peer = lead.peer(there.card.identity)
    answer = await peer.introduce(task)
    assert answer.accepted, answer
    request = hold_request(task, [at])
    exchange = exchange_of(request)
    assert (await peer.hold(exchange, request)).held
    await peer.commit(exchange, commit_request(request))
    return request.runs[0].run, lead.core.identity


async def _usable(a: Served, b: Served, run: UUID, identity: str) -> None:
    """Require that a node speaks with another one by its identity, and that its run is booked."""
    await _ask(a, b)
    await _ask(b, a)
    assert _known(b, a) == _known(a, a) == _keys(a)
    assert (await a.peer(b.core.identity).booked_run(run)).lead == identity == a.core.identity


@pytest.mark.nightly
async def test_a_kill_at_any_step_of_the_file_leaves_one_key(timed: Pair) -> None:
    """A node that is killed while its key is replaced has the old or the new one, and its runs."""
    a, b = timed
    run, identity = await _booked(a, b)
    kept = []
    for step in itertools.count():
        before = len(_keys(a))
        whole = await _replaced(a, step)
        await _started_again(a)
        kept.append(len(_keys(a)) - before)
        await _usable(a, b, run, identity)
        if whole:
            break
    assert kept == sorted(kept)
    assert (kept[0], kept[-1], set(kept)) == (0, 1, {0, 1})
    assert len(kept) > 6


@pytest.mark.parametrize("place", ["keep_own", "notify", "refresh", "_tell"])
@pytest.mark.mostly_nightly
async def test_a_kill_at_any_step_after_the_file_leaves_the_new_key(
    timed: Pair, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A node that is killed between its file, its database and the others has the new key."""
    a, b = timed
    run, identity = await _booked(a, b)

    async def killed(*_: object) -> None:
        raise _Killed

    owners: dict[str, object] = {"notify": notices, "refresh": a.directory}
    with monkeypatch.context() as patched:
        patched.setattr(owners.get(place, a.successions), place, killed)
        with pytest.raises(_Killed):
            await a.successions.rekey()
    await _started_again(a)
    assert len(_keys(a)) == 2
    await _usable(a, b, run, identity)
