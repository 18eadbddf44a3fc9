"""Real programs, started and ended; no test leaves a process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from node.execution import process, proctable
from node.execution.process import FinishedProcess, RunningProcess
from node.model.errors import HostError
from tests.support.patience import PATIENCE_S

Start = Callable[..., Awaitable[RunningProcess]]

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)"
)


def alive(pid: int) -> bool:
    """Return whether a process runs; one that waits to be reaped does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def group_members(group: int) -> list[int]:
    """Return the running processes of a group."""
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            if os.getpgid(int(entry.name)) == group and alive(int(entry.name)):
                members.append(int(entry.name))
    return members


def descriptors() -> int:
    """Return the number of files that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def gone(pid: int) -> None:
    """Wait for the exit of a process that is not our child."""
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits([pid])


@pytest.fixture(name="start")
async def _start() -> AsyncIterator[Start]:
    started: list[RunningProcess] = []

    async def start(*argv: str, **options: object) -> RunningProcess:
        instants = iter(range(1_000_000))
        running = await process.start(argv, now=lambda: next(instants), **options)  # type: ignore[arg-type]
        started.append(running)
        return running

    yield start
    for running in started:
        await running.end(0)
        assert group_members(running.pid) == []


@pytest.fixture(autouse=True)
def _no_descriptor_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() <= before


async def test_output_and_exit_code_come_back(start: Start) -> None:
    """Both streams and the exit code are returned separately."""
    running = await start("sh", "-c", "echo out; echo err >&2; exit 3")
    assert await running.wait() == FinishedProcess(3, b"out\n", b"err\n", truncated=False)


async def test_start_is_stamped_by_the_callers_clock(start: Start) -> None:
    """The instant of the start is read from the given clock."""
    assert (await start("true")).started_at == 0


async def test_a_signal_shows_as_a_negative_exit_code(start: Start) -> None:
    """The exit code of a program ended by a signal is minus the signal's number."""
    assert (await (await start("sh", "-c", "kill -9 $$")).wait()).exit_code == -signal.SIGKILL


async def test_environment_is_minimal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets the path and the home directory of our environment and nothing else."""
    monkeypatch.setenv("SECRET", "1")
    output = (await (await start("env", env={"PORT": "5201"})).wait()).stdout.decode()
    assert {line.split("=")[0] for line in output.splitlines()} == {
        "PATH",
        "LANG",
        "HOME",
        "PORT",
    }


async def test_an_argument_is_never_read_by_a_shell(start: Start) -> None:
    """Arguments with a meaning to a shell or to setpriv arrive unchanged."""
    words = ("$(id)", "; ls", "--pdeathsig", "a b", "*")
    finished = await (await start("printf", "%s\\n", *words)).wait()
    assert finished.stdout.decode().splitlines() == list(words)


async def test_a_missing_program_is_named(start: Start) -> None:
    """A missing program is an error that names it, not an exit code."""
    with pytest.raises(HostError, match="no-such-program was not found"):
        await start("no-such-program")


async def test_the_program_leads_its_own_session(start: Start) -> None:
    """A program has a session of its own, so that Ctrl-C in our terminal does not reach it."""
    running = await start("sleep", "60")
    assert os.getsid(running.pid) == os.getpgid(running.pid) == running.pid


async def test_input_larger_than_a_pipe_is_read_to_its_end(start: Start) -> None:
    """Input of any size is accepted whether or not the program reads it."""
    finished = await (await start("wc", "-c", stdin=b"x" * 1_000_000)).wait()
    assert finished.stdout.strip() == b"1000000"
    assert (await (await start("true", stdin=b"x" * 1_000_000)).wait()).exit_code == 0


@pytest.mark.needs("root")
async def test_root_can_start_as_another_account(start: Start) -> None:
    """A program has the ids, groups and home of its account, and none of ours."""
    script = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME'])"
    running = await start(sys.executable, "-c", script, user="nobody")
    account = pwd.getpwnam("nobody")
    expected = f"{account.pw_uid} {account.pw_gid} [{account.pw_gid}] {account.pw_dir}"
    assert (await running.wait()).stdout.decode().strip() == expected


async def test_a_log_takes_both_streams(start: Start, tmp_path: Path) -> None:
    """With a log, output is appended to it and not kept in memory."""
    log = tmp_path / "log"
    for _ in range(2):
        finished = await (await start("sh", "-c", "echo a; echo b >&2", log=log)).wait()
        assert finished == FinishedProcess(0, b"", b"")
    assert log.read_text() == "a\nb\n" * 2


@pytest.mark.nightly
async def test_a_flood_does_not_grow_memory(start: Start) -> None:
    """Endless output on both streams is cut after the first bytes, and the cut is reported."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "head -c 1000000000 /dev/zero & head -c 1000000000 /dev/zero >&2; wait"
    finished = await (await start("sh", "-c", script, output_bytes_max=1000)).wait()
    assert (len(finished.stdout), len(finished.stderr)) == (1000, 1000)
    assert finished.truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000  # KiB


async def test_output_at_the_limit_is_not_truncated(start: Start) -> None:
    """Output of exactly the limit is not reported as truncated."""
    running = await start("head", "-c", "1000", "/dev/zero", output_bytes_max=1000)
    assert not (await running.wait()).truncated


async def test_a_grandchild_with_the_pipe_does_not_hold_up_the_wait(start: Start) -> None:
    """A descendant that keeps the output open after the leader's exit is killed."""
    running = await start("sh", "-c", "sleep 60 & echo done")
    async with asyncio.timeout(PATIENCE_S):
        finished = await running.wait()
    assert finished == FinishedProcess(0, b"done\n", b"")
    assert group_members(running.pid) == []


async def test_one_that_left_the_group_does_not_hold_up_the_wait(start: Start) -> None:
    """The wait is bounded even for a process outside the group, which is not killed."""
    script = (
        "import os, time\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.write(write, b'out')\n"
        "    time.sleep(60)\n"
        "os.read(read, 3)\n"
    )
    running = await start(sys.executable, "-c", script)
    async with asyncio.timeout(PATIENCE_S):
        stranger = int((await running.wait()).stdout)
    assert alive(stranger)
    os.kill(stranger, signal.SIGKILL)
    await gone(stranger)


async def test_one_that_left_the_group_is_chased(start: Start) -> None:
    """Daemons that a measuring program starts, and their children, do not outlive it."""
    script = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    read, write = os.pipe()\n"
        "    if os.fork():\n"
        "        break\n"
        "    os.setsid()\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.write(write, b'out')\n"
        "else:\n"
        "    for fd in (0, 1, 2): os.close(fd)\n"
        "    os.execvp('sleep', ['sleep', '60'])\n"
        "os.read(read, 3)\n"
    )
    running = await start(sys.executable, "-c", script, chased=True)
    bystander = await start("sleep", "60", chased=True)
    daemons = [int(word) for word in (await running.wait()).stdout.split()]
    assert len(daemons) == 3
    assert not any(map(alive, daemons))
    assert not bystander.ended


async def test_late_output_of_a_grandchild_is_collected(start: Start) -> None:
    """Output of a forked child after the leader's exit is collected."""
    script = (
        "import os\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(write)\n"
        "    os.read(read, 1)  # the end of file that the parent's exit makes\n"
        "    print('late')\n"
    )
    running = await start(sys.executable, "-c", script)
    assert (await running.wait()).stdout == b"late\n"


async def test_a_line_can_be_waited_for(start: Start) -> None:
    """A server's ready line is seen while the server runs."""
    running = await start("sh", "-c", "echo starting; echo ready; exec sleep 60")
    await running.wait_for_output(b"ready\n")
    assert not running.ended


async def test_a_line_that_never_comes_is_an_error(start: Start) -> None:
    """The error of a program that ends before it is ready contains its last output."""
    running = await start("sh", "-c", "echo 'no port' >&2; exit 4")
    with pytest.raises(HostError, match=r"exit code 4 before it was ready: no port"):
        await running.wait_for_output(b"ready")


async def test_term_is_enough_for_the_polite(start: Start) -> None:
    """A program that obeys TERM ends by it, long before the grace period is over."""
    running = await start("sleep", "60")
    await running.end(60)
    assert (await running.wait()).exit_code == -signal.SIGTERM


async def test_kill_comes_after_the_grace(start: Start) -> None:
    """A program that ignores TERM is killed, and its output is kept."""
    running = await start(sys.executable, "-c", f"{STUBBORN}; time.sleep(60)")
    await running.wait_for_output(b"up")
    await running.end(0.1)
    assert await running.wait() == FinishedProcess(-signal.SIGKILL, b"up\n", b"")


async def test_a_hidden_stubborn_child_is_gone_too(start: Start) -> None:
    """A forked child that closed its output and ignores TERM does not outlive the end."""
    script = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    print(os.getpid(), flush=True)\n"
        "    for fd in (0, 1, 2): os.close(fd)\n"
        "time.sleep(60)\n"
    )
    running = await start(sys.executable, "-c", script)
    await running.wait_for_output(b"\n")
    await running.end(5)
    hidden = int((await running.wait()).stdout)
    assert not alive(hidden)
    assert group_members(running.pid) == []


async def test_ending_twice_is_the_same_as_once(start: Start) -> None:
    """Repeated and concurrent ends return once the program has ended."""
    running = await start("sleep", "60")
    await asyncio.gather(running.end(5), running.end(5))
    await running.end(5)
    assert running.ended


async def test_giving_up_a_wait_does_not_end_the_program(start: Start) -> None:
    """A cancelled wait leaves the program running, and it can be awaited again."""
    running = await start("sleep", "60")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.wait(), 0.01)
    assert alive(running.pid)


async def test_a_cancelled_end_kills_at_once(start: Start) -> None:
    """A cancelled end kills the program at once."""
    running = await start(sys.executable, "-c", f"{STUBBORN}; time.sleep(60)")
    await running.wait_for_output(b"up")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.end(60), 0.01)
    assert (await running.wait()).exit_code == -signal.SIGKILL


def test_closing_the_event_loop_kills_what_still_runs() -> None:
    """A program does not outlive the event loop that watched it."""

    async def forget() -> int:
        return (await process.start(["sleep", "60"], now=lambda: 0)).pid

    assert not alive(asyncio.run(forget()))


OWNER = (
    "import asyncio, sys\n"
    "from node.execution import process\n"
    "async def main():\n"
    "    user = sys.argv[1] or None\n"
    "    argv = ['sh', '-c', 'echo up; exec sleep 60']\n"
    "    running = await process.start(argv, now=lambda: 0, user=user)\n"
    "    await running.wait_for_output(b'up')\n"
    "    print(running.pid, flush=True)\n"
    "    await running.wait()\n"
    "asyncio.run(main())\n"
)


@pytest.mark.parametrize("user", ["", pytest.param("nobody", marks=pytest.mark.needs("root"))])
async def test_the_program_dies_with_its_owner(start: Start, user: str) -> None:
    """SIGKILL of the owner kills the program, even one of another account."""
    owner = await start(sys.executable, "-c", OWNER, user, cwd=Path.cwd())
    await owner.wait_for_output(b"\n")
    owner.send(signal.SIGKILL)
    pid = int((await owner.wait()).stdout)
    await gone(pid)
    assert not alive(pid)


def test_a_name_with_blanks_and_brackets_is_no_trap(tmp_path: Path) -> None:
    """The start tick is parsed correctly for any program name."""
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as program, subprocess.Popen(["sleep", "60"]) as plain:
        assert abs(proctable.identity(program.pid) - proctable.identity(plain.pid)) < 1000
        program.kill()
        plain.kill()


def test_exit_code_and_output_come_back() -> None:
    """A failing program gives a value with its output, not an exception."""
    finished = process.run(["sh", "-c", "cat; exit 2"], timeout_s=5, stdin=b"in")
    assert finished == FinishedProcess(2, b"in", b"")


def test_one_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    """After the timeout the whole group is killed, and the error names the timeout."""
    note = tmp_path / "pid"
    with pytest.raises(HostError, match=r"did not finish within 0\.3 s"):
        process.run(["sh", "-c", f"echo $$ >{note}; sleep 60 & sleep 60"], timeout_s=0.3)
    assert group_members(int(note.read_text())) == []


async def test_finish_is_run_for_the_event_loop() -> None:
    """``finish`` gives the outcome and the error of ``run`` on the event loop."""
    assert await process.finish(["sh", "-c", "exit 2"], timeout_s=5) == FinishedProcess(2, b"", b"")
    with pytest.raises(HostError, match=r"did not finish within 0\.1 s"):
        await process.finish(["sleep", "60"], timeout_s=0.1)


@pytest.mark.needs("root")
def test_it_can_run_as_another_account() -> None:
    """Root can run a command as another account."""
    assert process.run(["id", "-un"], timeout_s=5, user="nobody").stdout == b"nobody\n"
