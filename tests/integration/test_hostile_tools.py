"""A hostile tool gets at nothing of the node, fills nothing up, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.cli.service_account import acting_for
from node.execution import process, proctable, tool_runner
from node.execution.process import Confinement, Needs, RunningProcess
from node.execution.tool_runner import ToolRunner
from node.model.errors import HostError
from node.plugins.contracts import Privilege
from node.postgres import PrivateCluster, ServerBinaries, locate
from node.postgres.cluster import PORT
from node.runtime.settings import Settings
from tests.support.needs import fixture_needs
from tests.support.patience import PATIENCE_S

ROOT = Path(tool_runner.__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
HOSTILE = (Path(__file__).parent / "hostile_tool.py").read_text()
NOBODY = pwd.getpwnam("nobody")
DURATION_S = 5.0
SETTINGS = Settings(
    tool_account="nobody", tool_processes=16, tool_memory=256, tool_disk=32, tool_file_size=8
)
CALLS = ["unshare", "clone", "clone3", "setns", "io_uring", "sniff", "keys", "type"]
"""Calls that no tool needs: namespaces, ways around filters, packets of others, …"""
NET_ADMIN, NET_RAW = 1 << 12, 1 << 13
TOKEN = f"hostile-tool-{os.getpid()}"
"""A word in the command of each hostile tool of these tests, and of the daemons that they leave."""
NODE = """
import asyncio
from node.execution import process, proctable, tool_runner
from node.execution.process import Confinement, Needs
from node.execution.tool_runner import ToolRunner
from node.runtime.settings import Settings
async def main():
    runner = ToolRunner(Settings(tool_account="nobody"))
    running = await process.start({argv}, confinement=Confinement(runner, Needs(60.0)))
    await running.wait_for_output(b"}}")
    print(running.pid, flush=True)
    await running.wait()
asyncio.run(main())
"""
"""A node that runs the hostile tool until it is killed."""
ACTIVATE = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execvp(sys.argv[2], sys.argv[2:])"
"""Makes a socket descriptor 3, as systemd does."""

pytestmark = pytest.mark.needs("root")


@dataclass
class Target:
    """A node that tools must not reach: files, sockets and process of a node, and its host's log.

    One of the sockets has a name outside the file system, and everybody may write to the log.
    """

    files: list[str]
    sockets: list[str]
    log: str
    process: subprocess.Popen[bytes]

    @property
    def attempts(self) -> dict[str, Any]:
        """Return what a hostile tool tries."""
        pid = self.process.pid
        elsewhere = ("/tmp", "/var/tmp", "/dev/shm", "/etc", "/run")
        return {
            "read": [
                *(*self.files, "/etc/shadow", "/proc/kcore", "/proc/1/cmdline"),
                *(f"/proc/{pid}/{it}" for it in ("environ", "mem", "cmdline", "status", "stat")),
            ],
            "list": [
                *(f"/proc/{pid}/cwd", f"/proc/{pid}", "/proc", "/run/netns"),
                *(str(Path(self.files[0]).parent), "/tmp", "/root"),
            ],
            "write": [*self.files, *(f"{place}/of-a-tool" for place in elsewhere)],
            "connect": [*self.sockets, self.log],
            "log": ["/dev/log", self.log],
            "call": CALLS,
            "attack": [pid],
        }


def _target(uid: int) -> Iterator[Target]:
    directory = Path(tempfile.mkdtemp())  # not beneath pytest's own, which is root's alone
    os.chown(directory, uid, -1)
    files = []
    for name in ("node.pem", "token"):
        path = directory / name
        path.write_text("secret")
        path.chmod(0o600)
        os.chown(path, uid, -1)
        files.append(str(path))
    place, log = directory / "s", Path(f"{directory}.log")
    abstract = f"\0{directory}"
    node = subprocess.Popen(
        ["/bin/sleep", "600"], env={"SECRET": "1"}, user=uid, start_new_session=True
    )
    with contextlib.ExitStack() as stack:
        for name, kind in (
            (str(place), socket.SOCK_STREAM),
            (abstract, socket.SOCK_STREAM),
            (str(log), socket.SOCK_DGRAM),
        ):
            it = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            it.bind(name)
            if kind is socket.SOCK_STREAM:
                it.listen()
        os.chown(place, uid, -1)
        log.chmod(0o666)
        yield Target(files, [str(place), abstract], str(log), node)
    node.kill()
    node.wait()
    log.unlink()
    shutil.rmtree(directory)


@pytest.fixture(name="target")
def _of_root() -> Iterator[Target]:
    """Return a node's things, all of them root's."""
    yield from _target(0)


@pytest.fixture(name="own")
def _of_the_same_account() -> Iterator[Target]:
    """Return a node's things, all of them of the account of its tools."""
    yield from _target(NOBODY.pw_uid)


@pytest.fixture(name="runner")
async def _runner() -> AsyncIterator[ToolRunner]:
    """Return what a node that is root starts its tools with."""
    runner = ToolRunner(SETTINGS)
    yield runner
    await runner.close()


async def start(
    runner: ToolRunner,
    asked: dict[str, Any],
    privilege: Privilege | None = None,
    duration_s: float = DURATION_S,
    congestion: str | None = None,
    *,
    connects: bool = True,
) -> RunningProcess:
    """Start the hostile tool."""
    argv = [PYTHON, "-I", "-S", "-c", HOSTILE, json.dumps({"token": TOKEN, **asked})]
    needs = Needs(duration_s, privilege, congestion, connects)
    return await process.start(argv, confinement=Confinement(runner, needs))


async def found(
    runner: ToolRunner,
    asked: dict[str, Any],
    privilege: Privilege | None = None,
    congestion: str | None = None,
    *,
    connects: bool = True,
) -> dict[str, Any]:
    """Let the hostile tool try, and return what became of it."""
    async with asyncio.timeout(PATIENCE_S):
        running = await start(runner, asked, privilege, congestion=congestion, connects=connects)
        finished = await running.wait()
    assert finished.exit_code == 0, finished.stderr.decode()
    outcomes: dict[str, Any] = json.loads(finished.stdout)
    return outcomes


def done(outcomes: dict[str, Any]) -> list[str]:
    """Return what a hostile tool has managed to do."""
    return [what for what, became in outcomes.items() if became == "done"]


def left() -> list[int]:
    """Return the processes that hostile tools of these tests have left, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == NOBODY.pw_uid:
                is_ours = TOKEN.encode() in (entry / "cmdline").read_bytes()
                found += [int(entry.name)] if is_ours else []
        except OSError:
            continue
    return found


async def test_a_tool_gets_at_nothing_of_the_node(runner: ToolRunner, target: Target) -> None:
    """A tool runs as another account, and reads, writes, traces and reaches nothing of the node."""
    outcomes = await found(runner, target.attempts)
    rights = outcomes["rights"]
    assert done(outcomes) == []
    assert target.process.poll() is None
    assert rights["uid"] == NOBODY.pw_uid
    assert rights["capabilities"] == f"{0:016x}"
    assert rights["no_new"] == "1"
    assert rights["environment"] == ["HOME", "LANG", "PARLEY_PART", "PATH", "TMPDIR"]
    assert rights["descriptors"] == [0, 1, 2, 3]  # 3 is the directory that it lists
    assert (rights["directory"], rights["core"]) == ([], 0)


async def test_a_tool_has_the_capability_that_it_declares(runner: ToolRunner) -> None:
    """Raw sockets are for tools that declare them, and the only capability of these."""
    outcomes = await found(runner, {"call": CALLS}, Privilege.RAW)
    assert outcomes["rights"]["capabilities"] == f"{NET_RAW:016x}"
    assert outcomes["rights"]["no_new"] == "1"
    assert done(outcomes) == []


async def test_a_tool_connects_only_if_it_declares_it(runner: ToolRunner) -> None:
    """A tool that needs no connection gets no socket for one, and UDP all the same."""
    asked = {"call": ["connection", "messages", "datagrams"]}
    assert done(await found(runner, asked)) == ["call connection", "call datagrams"]
    assert done(await found(runner, asked, connects=False)) == ["call datagrams"]


async def test_a_tool_that_sets_a_congestion_control_may(runner: ToolRunner) -> None:
    """CAP_NET_ADMIN is for a tool whose congestion control is not open to all, and for no other."""
    outcomes = await found(runner, {}, congestion="closed-to-users")
    assert outcomes["rights"]["capabilities"] == f"{NET_ADMIN:016x}"
    outcomes = await found(runner, {}, congestion="reno")
    assert outcomes["rights"]["capabilities"] == f"{0:016x}"


async def test_a_tool_fills_nothing_up(runner: ToolRunner) -> None:
    """Files are limited and removed, and memory that belongs to no process is refused."""
    outcomes = await found(runner, {"fill": True})
    assert outcomes["long"] == "OSError"
    assert outcomes["files"] <= SETTINGS.tool_disk
    assert outcomes["open"] <= SETTINGS.tool_open_files
    assert outcomes["root"] == outcomes["trace"] == "PermissionError"
    assert outcomes["nameless"] == outcomes["by key"] == "PermissionError"
    again = await found(runner, {"fill": True})
    assert again["files"] == outcomes["files"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"hoard": 100}, "used more than 256 MiB of memory"),
        ({"memory": True}, "used more than 256 MiB of memory"),
        ({"crowd": 30}, "had more than 16 processes"),
        ({"long": True}, "wrote a file of more than 8 MiB"),
    ],
    ids=["together", "alone", "processes", "file"],
)
@pytest.mark.mostly_nightly
async def test_a_tool_beyond_a_limit_is_killed(
    runner: ToolRunner, asked: dict[str, Any], said: str
) -> None:
    """A tool that takes too much is killed with all it has started, and the reason says so."""
    async with asyncio.timeout(PATIENCE_S):
        finished = await (await start(runner, asked)).wait()
    assert finished.killed == said
    assert finished.exit_code != 0
    assert left() == []


async def test_a_tool_is_ended_even_if_its_node_does_not_do_it(
    runner: ToolRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that runs longer than its run is killed by its keeper."""
    monkeypatch.setattr(tool_runner, "_SLACK_S", 0.0)
    async with asyncio.timeout(PATIENCE_S):
        finished = await (await start(runner, {"stay": True}, duration_s=0.5)).wait()
    assert finished.killed == "ran longer than 0.5 s"


@pytest.mark.nightly
async def test_a_tool_can_be_ended_as_soon_as_it_is_started(runner: ToolRunner) -> None:
    """A signal reaches a tool that was forked a moment ago and has no group of its own yet."""
    for _ in range(30):
        argv = ["sleep", "600"]
        confinement = Confinement(runner, Needs(DURATION_S))
        running = await process.start(argv, confinement=confinement, held=True)
        async with asyncio.timeout(PATIENCE_S):
            await running.end(0)


async def test_a_tool_leaves_nothing_behind(runner: ToolRunner) -> None:
    """A daemon of its own session and without its environment is ended with its tool."""
    await found(runner, {"daemon": True})
    assert left() == []


@pytest.mark.nightly
async def test_a_fork_bomb_is_limited_and_ended(runner: ToolRunner) -> None:
    """A tool that forks without end is killed, and nothing of it is left."""
    running = await start(runner, {"bomb": True})
    async with asyncio.timeout(PATIENCE_S):
        finished = await running.wait()
    assert finished.killed == "had more than 16 processes"
    assert left() == []


async def test_a_tool_does_not_outlive_its_run(runner: ToolRunner) -> None:
    """A tool that ignores the signal that ends its run is killed."""
    running = await start(runner, {"stay": True})
    await running.wait_for_output(b"}")
    await running.end(0.1)
    assert (await running.wait()).exit_code == -signal.SIGKILL


async def test_a_tool_ends_with_its_keeper(runner: ToolRunner) -> None:
    """If what watches a tool is killed, the tool ends, its run says so, and the next one starts."""
    running = await start(runner, {"stay": True})
    await running.wait_for_output(b"}")
    keeper = int(Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(HostError, match="what ran this tool was killed"):
        await running.wait()
    assert left() == []
    assert (await found(runner, {}))["rights"]["uid"] == NOBODY.pw_uid


async def test_tools_outlive_the_program_that_starts_them(runner: ToolRunner) -> None:
    """If the runner is killed, its tools go on, and the next tool starts by another one."""
    running = await start(runner, {"stay": True})
    await running.wait_for_output(b"}")
    assert runner._server is not None
    os.kill(runner._server.pid, signal.SIGKILL)
    await runner._server.wait()
    assert (await found(runner, {}))["rights"]["uid"] == NOBODY.pw_uid
    assert not running.ended
    await running.end(0)


@pytest.mark.nightly
async def test_tools_end_with_their_node(target: Target) -> None:
    """If the node is killed, its tools end, whatever they do against it."""
    asked = json.dumps({"token": TOKEN, "stay": True, "daemon": True})
    script = NODE.format(argv=[PYTHON, "-I", "-S", "-c", HOSTILE, asked])
    node = await process.start([sys.executable, "-c", script], cwd=Path.cwd())
    await node.wait_for_output(b"\n")
    [pid] = map(int, bytes(node._stdout.kept).split())  # type: ignore[union-attr]
    node.send(signal.SIGKILL)
    await node.wait()
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits([pid, *left()])
    assert left() == []


@pytest.fixture(scope="module", name="installed")
def _installed() -> Iterator[Path]:
    """Return a place of the program that every account reads, as root's home is not."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    shutil.copytree(ROOT / "node", place / "node", ignore=shutil.ignore_patterns("__pycache__"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(name="socket_activated")
def _socket_activated(installed: Path) -> Iterator[ToolRunner]:
    """Return what a node starts its tools with where systemd starts the runner."""
    bootstrap = tool_runner.BOOTSTRAP.replace(str(ROOT), str(installed))
    directory = Path(tempfile.mkdtemp())
    path = directory / "tools.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        capability = ["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"]
        account = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        command = ["setpriv", *account, *capability, "--bounding-set=-all,+net_raw"]
        command += ["--no-new-privs", PYTHON, "-I", "-S", "-c", bootstrap]
        server = subprocess.Popen(
            [PYTHON, "-c", ACTIVATE, str(listening.fileno()), *command],
            pass_fds=[listening.fileno()],
            env={"PATH": os.environ["PATH"], "LISTEN_FDS": "1"},
            start_new_session=True,
        )
    yield ToolRunner(SETTINGS.model_copy(update={"tool_socket": path}))
    server.kill()
    server.wait()
    shutil.rmtree(directory)


@pytest.mark.nightly
async def test_tools_of_a_unit_are_contained(socket_activated: ToolRunner, target: Target) -> None:
    """Tools of a runner that systemd starts have its account, and get at nothing of the node."""
    rights = await socket_activated.rights()
    assert (rights.account, rights.separate, rights.weaker) == ("nobody", True, ())
    outcomes = await found(socket_activated, target.attempts)
    assert done(outcomes) == []
    assert outcomes["rights"]["capabilities"] == f"{0:016x}"
    outcomes = await found(socket_activated, {"daemon": True}, Privilege.RAW)
    assert outcomes["rights"]["capabilities"] == f"{NET_RAW:016x}"
    finished = await (await start(socket_activated, {"bomb": True})).wait()
    assert finished.killed == "had more than 16 processes"
    assert left() == []


async def test_without_the_unit_no_tool_runs() -> None:
    """A node whose socket cannot be reached says so, and starts no tool itself."""
    absent = Path("/run/parley-absent.sock")
    runner = ToolRunner(SETTINGS.model_copy(update={"tool_socket": absent}))
    with pytest.raises(HostError, match=r"start parley-tools\.socket"):
        await start(runner, {})


@pytest.fixture
@fixture_needs("root")
def _as_a_user(monkeypatch: pytest.MonkeyPatch, installed: Path) -> None:
    """Let the runner be started by an ordinary user, with a program that it can read."""
    start = process.start

    async def as_user(argv: Any, **options: Any) -> RunningProcess:
        if "channel" in options:
            options["user"] = "nobody"
        return await start(argv, **options)

    bootstrap = tool_runner.BOOTSTRAP.replace(str(ROOT), str(installed))
    monkeypatch.setattr(process, "start", as_user)
    monkeypatch.setattr(tool_runner, "BOOTSTRAP", bootstrap)
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": ""})


@pytest.mark.usefixtures("_as_a_user")
async def test_a_state_directory_among_the_programs_is_hidden(own: Target) -> None:
    """A tool of the node's own account does not read its files where it may read all around."""
    directory = Path(own.files[0]).parent
    beside = directory.parent / f"{directory.name}-beside"
    beside.write_text("public")
    settings = SETTINGS.model_copy(update={"state_dir": directory})
    runner = ToolRunner(settings)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{os.environ['PATH']}:{directory.parent}")
            outcomes = await found(runner, {"read": [*own.files, str(beside)]})
        assert done(outcomes) == [f"read {beside}"]
    finally:
        await runner.close()
        beside.unlink()


@pytest.mark.usefixtures("_as_a_user")
@pytest.mark.nightly
async def test_an_ordinary_users_tool_does_not_reach_its_database() -> None:
    """The socket of a private Postgres is open to its account, but to no tool of that account."""
    directory = Path(tempfile.mkdtemp())
    state = directory / "state"
    directory.chmod(0o711)
    state.mkdir()
    os.chown(state, NOBODY.pw_uid, NOBODY.pw_gid)
    settings = SETTINGS.model_copy(update={"state_dir": state})
    runner = ToolRunner(settings)
    with acting_for(settings):
        server = locate()
        assert isinstance(server, ServerBinaries)
        cluster = await PrivateCluster.create(state / "postgres", server)
        await cluster.start()
    try:
        place = str(cluster.socket / f".s.PGSQL.{PORT}")
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({place!r})"
        by_another = await process.finish([PYTHON, "-c", connect], timeout_s=60, user="nobody")
        assert by_another.exit_code == 0
        assert done(await found(runner, {"connect": [place], "read": [str(cluster.log)]})) == []
    finally:
        await cluster.stop()
        await runner.close()
        shutil.rmtree(directory)


@pytest.mark.usefixtures("_as_a_user")
async def test_an_ordinary_users_tool_is_contained_by_landlock(own: Target) -> None:
    """A tool of the node's own account gets at no file, process or socket of it."""
    runner = ToolRunner(SETTINGS)
    try:
        outcomes = await found(runner, own.attempts)
        assert done(outcomes) == []
        assert own.process.poll() is None
        finished = await (await start(runner, {"fill": True, "daemon": True, "stay": True})).wait()
        assert finished.killed == "kept more than 32 MiB of files"
    finally:
        await runner.close()
    assert left() == []
