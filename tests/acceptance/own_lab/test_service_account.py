"""``parley up`` of root gives up being root."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

import aiohttp
import pytest

from node.cli.lab.nodes import module_environment
from node.cli.profiles import Profiles, read_profiles
from node.cli.service_account import acting_for, hand_over
from node.execution import process, proctable
from node.execution.process import RunningProcess
from node.model.errors import HostError, ParleyError
from node.postgres.access import present_database, served_database
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.needs("root"),
]

CLOCK = SystemClock()


@pytest.fixture(name="state")
def _state() -> Iterator[Path]:
    """A directory that every account may enter."""
    outside = Path(tempfile.mkdtemp(prefix="parley-test-"))
    outside.chmod(0o711)
    yield outside / "state"
    shutil.rmtree(outside)


async def _start(state: Path, port: int, **settings: str) -> RunningProcess:
    argv = [sys.executable, "-m", "node.cli.main", "up", "--listen", f"127.0.0.1:{port}"]
    return await process.start(
        [*argv, "--state-dir", str(state)],
        cwd=Path("/"),
        log=state.with_name("log"),
        env={**os.environ, **module_environment(), **settings},
    )


@asynccontextmanager
async def _up(state: Path, **settings: str) -> AsyncIterator[tuple[RunningProcess, str]]:
    """Run a node, and yield it with its URL once it is ready."""
    port = free_port()
    running = await _start(state, port, **settings)
    try:
        async with aiohttp.ClientSession() as session:
            while await _status(session, f"http://127.0.0.1:{port}/readyz") != 200:
                assert not running.ended, process.tail_of(state.with_name("log"), 20)
                await CLOCK.sleep(0.05)
        yield running, f"http://127.0.0.1:{port}"
    finally:
        await running.end(PATIENCE_S)


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.get(url) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


async def _measure(url: str, state: Path) -> str:
    """Measure with a program, and return how the run ended."""
    task = {"test": {"type": "rtt", "spec": {"dest": "127.0.0.1", "count": 2}}}
    token = (state / "token").read_text().strip()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        async with session.post(f"{url}/v1/tasks", json=task) as answer:
            created = await answer.json()
            assert answer.status == 201, created
        runs: list[dict[str, object]] = []
        while not runs or runs[0]["finished_at"] is None:
            async with session.get(f"{url}/v1/runs", params={"task": created["id"]}) as answer:
                runs = (await answer.json())["items"]
            await CLOCK.sleep(0.05)
    return str(runs[0]["state"])


def _status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: words.strip() for name, _, words in (line.partition(":") for line in lines)}


def _owners(directory: Path) -> set[int]:
    """Return whose a directory and all in it is; the database may remove files meanwhile."""
    owners = {directory.stat().st_uid}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            owners.add(path.stat().st_uid)
    return owners


@pytest.mark.nightly
async def test_root_becomes_the_account_of_the_node(state: Path) -> None:
    """A node that was root's goes on as the account, without capabilities, and measures."""
    async with _up(state, PARLEY_ACCOUNT="root") as (running, _):
        identity = (state / "node.pem").read_bytes()
        (state / "follows").mkdir(mode=0o711)  # as root's ``parley mesh follow`` leaves it
        assert _status_of(running.pid)["Uid"].split()[1] == "0"
    for _ in range(2):  # also where it is the account's already
        async with _up(state) as (running, url):
            account = str(pwd.getpwnam("parley").pw_uid)
            status = _status_of(running.pid)
            assert status["Uid"].split() == [account] * 4
            assert (int(status["CapPrm"], 16), status["NoNewPrivs"]) == (0, "1")
            assert status["Seccomp"] == "2"  # it does not type on the terminal of root
            assert _owners(state) == {int(account)}
            assert await _measure(url, state) == "finished"
    assert (state / "node.pem").read_bytes() == identity
    assert "stays root" not in state.with_name("log").read_text()


@pytest.mark.nightly
async def test_a_directory_with_others_in_it_stays_root_s(state: Path) -> None:
    """A directory that is not the node's own is not given away; the log has the reason."""
    state.mkdir(mode=0o711)
    (state / "somebody").mkdir()
    async with _up(state) as (running, _):
        assert _status_of(running.pid)["Uid"].split()[1] == "0"
    log = state.with_name("log").read_text()
    assert "this node stays root" in log
    assert "contains other directories (somebody)" in log
    assert state.stat().st_uid == 0


@pytest.mark.parametrize(
    "closed", ["limits.toml", pytest.param("state", marks=pytest.mark.nightly)]
)
@pytest.mark.nightly
async def test_an_account_that_was_asked_for_is_demanded(state: Path, closed: str) -> None:
    """A node with ``PARLEY_ACCOUNT`` does not start where that account cannot be used."""
    limits = state.with_name("limits.toml")
    limits.write_text("version = 1\n")
    limits.chmod(0o600 if closed == "limits.toml" else 0o644)
    if closed == "state":
        state.parent.chmod(0o700)
    running = await _start(state, 9, PARLEY_ACCOUNT="daemon", PARLEY_LIMITS=str(limits))
    assert (await running.wait()).exit_code != 0
    log = state.with_name("log").read_text()
    assert "the account daemon may not use" in log
    assert closed in log


def test_nothing_that_is_somebody_else_s_is_handed_over(state: Path) -> None:
    """Links, and files with another name elsewhere, stay whose they are."""
    state.mkdir()
    foreign = state.with_name("foreign")
    foreign.write_text("")
    (state / "postgres").mkdir()
    for directory in (state, state / "postgres"):
        (directory / "hard").hardlink_to(foreign)
        (directory / "soft").symlink_to(foreign)
        (directory / "own").write_text("")
    entry = pwd.getpwnam("nobody")
    hand_over(state, (entry.pw_uid, entry.pw_gid))
    assert foreign.stat().st_uid == 0
    owned = {path for path in state.rglob("*") if path.lstat().st_uid == entry.pw_uid}
    assert {state / "own", state / "postgres", state / "postgres/own"} <= owned
    assert state.stat().st_uid == entry.pw_uid


def test_a_directory_in_use_is_not_handed_over(state: Path) -> None:
    """The files of a private Postgres that runs keep their owner."""
    (state / "postgres").mkdir(parents=True)
    with (state / "postgres" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HostError, match="in use by another Parley"):
            hand_over(state, (1, 1))
    assert state.stat().st_uid == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_handed_over_has_no_trap(state: Path, kind: str) -> None:
    """Root opens no link, and waits for no pipe, that the account has put in place of the lock."""
    lock, foreign = state / "postgres" / "lock", state.with_name("foreign")
    lock.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(lock)
    else:
        foreign.write_text("of root")
        lock.symlink_to(foreign)
        os.chown(lock, 1, 1, follow_symlinks=False)
    with pytest.raises(HostError, match=r"is not a file|is a link of another account"):
        hand_over(state, (1, 1))
    assert state.stat().st_uid == 0


@pytest.mark.parametrize("name", ["lock", pytest.param("log", marks=pytest.mark.nightly)])
@pytest.mark.nightly
async def test_root_follows_no_link_of_the_account(state: Path, name: str) -> None:
    """Commands of root act for the account in its directory, its private Postgres included."""
    entry = pwd.getpwnam("nobody")
    foreign = state.with_name("foreign")
    foreign.write_text("of root")
    foreign.chmod(0o600)
    state.mkdir()
    os.chown(state, entry.pw_uid, entry.pw_gid)
    settings = Settings(state_dir=state)
    with acting_for(settings) as account:
        async with served_database(settings, CLOCK):
            [server] = proctable.working_in(state / "postgres" / "data")[:1]
            assert _status_of(server)["Uid"].split() == [str(entry.pw_uid)] * 4
            assert int(_status_of(server)["CapPrm"], 16) == 0
    assert account == "nobody"
    assert _owners(state) == {entry.pw_uid}
    trap = state / "postgres" / name
    trap.unlink()
    trap.symlink_to(foreign)
    for acting in (acting_for(settings), nullcontext()):  # and as root itself
        with acting, pytest.raises((ParleyError, OSError)):
            async with present_database(settings):
                pass
    assert foreign.read_text() == "of root"


async def test_root_keeps_its_database_in_no_place_of_a_link(state: Path) -> None:
    """Root changes no mode of a directory to which the account has put a link."""
    foreign = state.with_name("foreign")
    foreign.mkdir(mode=0o700)
    state.mkdir()
    os.chown(state, 1, 1)
    (state / "postgres").symlink_to(foreign)
    os.chown(state / "postgres", 1, 1, follow_symlinks=False)
    with pytest.raises(HostError, match="is a link of another account"):
        async with served_database(Settings(state_dir=state), CLOCK):
            pass
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o700


@pytest.mark.parametrize("named", ["HOME", "XDG_CONFIG_HOME"])
def test_root_acts_for_an_account_at_home_there(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Commands of root do not look for its profiles, which the account may not read."""
    entry = pwd.getpwnam("nobody")
    state.mkdir()
    os.chown(state, entry.pw_uid, entry.pw_gid)
    config = tmp_path / (".config" if named == "HOME" else "") / "parley/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("broken")
    tmp_path.chmod(0o700)
    monkeypatch.setenv(named, str(tmp_path))
    before = dict(os.environ)
    settings = Settings(dsn="postgresql:///", state_dir=state)
    with acting_for(settings) as account:
        assert account == "nobody"
        assert read_profiles() == Profiles(None, {})
        assert (Path.home(), os.environ["USER"]) == (state, "nobody")
    assert dict(os.environ) == before
