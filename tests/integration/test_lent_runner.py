"""A node that is not root does not become root by the runner that root has started for it."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.execution import process
from node.execution.process_marks import new_mark
from node.execution.tool_runner import BOOTSTRAP, OwnRunner, start_runner, terms_of
from node.runtime.settings import Settings
from tests.support.needs import fixture_needs
from tests.support.patience import PATIENCE_S

PYTHON = "/usr/bin/python3"
SCRIPT = Path(__file__).parent / "hostile_node.py"
NODE, TOOL = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
LIMITS = {"memory": 1 << 40, "processes": 9999, "file_size": 1 << 40, "disk": 1 << 40}
NET_RAW = 1 << 13
SHOWING = """
id -u; id -g; id -G
while read -r name value; do
    case $name in CapPrm: | NoNewPrivs: | Seccomp:) echo $name $value;; esac
done < /proc/$$/status
ulimit -n
cat /etc/shadow
ls /root
"""

pytestmark = pytest.mark.needs("root")


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """A directory that the node may write to, with a program of its own, and links."""
    place = Path(tempfile.mkdtemp())
    program = place / "evil"
    program.write_text("#!/bin/sh\nid -u\n")
    program.chmod(0o755)
    (place / "ping").symlink_to(program)
    os.chown(place, NODE.pw_uid, NODE.pw_gid)
    yield place
    shutil.rmtree(place)


@pytest.fixture(name="socket_of_root")
def _socket_of_root() -> Iterator[str]:
    """A socket with mode 0600 of root, in a directory that everybody may enter."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "s"))
        (directory / "s").chmod(0o600)
        listening.listen()
        yield str(directory / "s")
    shutil.rmtree(directory)


@pytest.fixture(name="lent")
def _lent(place: Path) -> Iterator[OwnRunner]:
    """A runner as ``parley up`` of root starts it."""
    runner = start_runner(Settings(tool_account="nobody", state_dir=place / "state"))
    yield runner
    runner.control.close()
    runner.program.popen.wait(PATIENCE_S)


def asked(*argv: str, **other: Any) -> dict[str, Any]:
    """Return a message that starts a program, with all that a node could once choose."""
    terms = {
        "accounts": ["root"],
        "programs": [],
        "readable": ["/"],
        "hidden": "/nowhere",
        "path": "/usr/bin:/bin",
        "namespaces": ["../../proc/1/ns/net"],
        "limits": LIMITS | {"open_files": 9999, "seconds": 60.0},
        "lent": False,
    }
    content = {
        "argv": argv,
        "mark": new_mark(),  # of a living process: nodes of other tests leave its tools alone
        "env": {"PATH": "/usr/bin:/bin"},
        "namespace": None,
        "held": False,
        "privilege": None,
        "network": False,
        "connects": True,
        "by_file": True,
        "seconds": 60.0,
        **terms,
        "terms": terms | {name: word for name, word in other.items() if name in terms},
    }
    then = other.pop("then", ())
    return {"start": content | other, "then": then}


def became(lent: OwnRunner, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a node of an ordinary account gets for each of these messages."""
    control = lent.control.fileno()
    done = subprocess.run(
        [PYTHON, "-I", "-S", "-c", SCRIPT.read_text(), str(control), json.dumps(messages)],
        pass_fds=[control],
        user=NODE.pw_uid,
        group=NODE.pw_gid,
        extra_groups=[],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize(
    "chosen",
    [
        {"accounts": ["root"]},
        {"accounts": ["no-such-account"]},
        {"accounts": ["daemon"]},
        {"programs": ["/nowhere"]},
        {"limits": LIMITS},
        {"held": True, "then": [{"release": {"at": 0, "latest": 1 << 62}}]},
        {"privilege": "raw"},
        {"network": True},
    ],
    ids=json.dumps,
)
@pytest.mark.mostly_nightly
def test_no_message_chooses_the_account_or_what_it_has(
    lent: OwnRunner, chosen: dict[str, Any]
) -> None:
    """A program has the account of tools, confined and limited, whatever a node sends."""
    [outcome] = became(lent, asked("sh", "-c", SHOWING, **chosen))
    said = outcome["printed"].split()
    expected = NET_RAW if chosen.get("privilege") else 0
    assert said[:3] == [str(TOOL.pw_uid), str(TOOL.pw_gid), str(TOOL.pw_gid)]
    assert said[3:9] == ["CapPrm:", f"{expected:016x}", "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert said[9] == str(Settings().tool_open_files)
    assert outcome["printed"].count("Permission denied") == 2
    assert "root:" not in outcome["printed"]


def test_no_program_is_root(lent: OwnRunner, socket_of_root: str) -> None:
    """A node gets no program as root, whatever the program is, nor at a socket of root."""
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({socket_of_root!r})"
    *refused, reached = became(
        lent,
        asked("sh", "-c", "id -u", privilege="root"),
        asked("scamper", "-c", "trace", privilege="root"),
        asked(PYTHON, "-c", "print(1)", privilege="root"),
        asked(PYTHON, "-c", connect),
    )
    assert [it["answers"] for it in refused] == [["failed"]] * 3
    assert reached["ended"]["exit_code"] == 1
    assert "PermissionError" in reached["printed"]


def test_programs_are_on_the_path_that_root_had(lent: OwnRunner, place: Path) -> None:
    """Programs elsewhere are refused: absolute, relative, by links, or on another PATH."""
    own = f"{place}/evil"
    names = [own, str(place / "ping"), f"..{own}", f"/usr/bin/../..{own}"]
    messages = [asked(name) for name in names]
    messages += [asked("evil", path=str(place), env={"PATH": str(place)})]
    assert [it.get("failed") for it in became(lent, *messages)] == ["it is not on the PATH"] * 5


def test_a_message_puts_nothing_into_the_environment(lent: OwnRunner, place: Path) -> None:
    """A node gives a program no variable but the mark."""
    chosen = {"LD_PRELOAD": str(place / "evil"), "PATH": str(place), "PYTHONPATH": str(place)}
    [outcome] = became(lent, asked("env", env=chosen))
    given = dict(line.split("=", 1) for line in outcome["printed"].splitlines())
    assert sorted(given) == ["HOME", "LANG", "PARLEY_PART", "PATH", "TMPDIR"]
    assert given["PATH"] == os.environ["PATH"]
    assert Path(given["HOME"]).name.startswith("parley-tool-")


@pytest.mark.parametrize("name", ["../../proc/1/ns/net", "/proc/1/ns/net", "of-somebody", ""])
@pytest.mark.mostly_nightly
def test_only_allowed_networks_are_entered(lent: OwnRunner, name: str) -> None:
    """A node enters no network namespace that ``PARLEY_CONTEXTS`` does not name."""
    [outcome] = became(lent, asked("id", namespace=name))
    assert outcome["failed"].startswith("its owner does not allow the network namespace")


@pytest.fixture(name="network")
@fixture_needs("root", "ip")
def _network() -> Iterator[str]:
    """A network namespace with nothing but loopback."""
    name = f"parley-{os.getpid()}-lent"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


def test_an_allowed_network_is_entered(place: Path, network: str) -> None:
    """A tool enters the namespace of ``PARLEY_CONTEXTS``, and is no less confined there."""
    context = f"namespace:{network}=192.0.2.1"
    settings = Settings(tool_account="nobody", state_dir=place / "state", contexts=context)
    lent = start_runner(settings)
    [outcome, account] = became(
        lent,
        asked("cat", "/proc/net/dev", namespace=network),
        asked("id", "-u", namespace=network),
    )
    interfaces = [line.split(":")[0].strip() for line in outcome["printed"].splitlines()[2:]]
    assert interfaces == ["lo"]
    assert account["printed"].strip() == str(TOOL.pw_uid)
    lent.control.close()
    lent.program.popen.wait(PATIENCE_S)


def test_signals_reach_nothing_but_the_tool(lent: OwnRunner) -> None:
    """A message that names another process, or no signal, ends the tool and nothing else."""
    victim = subprocess.Popen(["sleep", "60"])
    signals = [
        {"signal": {"pid": victim.pid, "number": 9, "group": False}},
        {"signal": {"number": "KILL", "group": True}},
        {"release": {"at": "now", "latest": []}},
        {"signal": [victim.pid]},
    ]
    outcomes = became(lent, *(asked("sleep", "60", then=[it]) for it in signals))
    assert all("started" in it["answers"] for it in outcomes)
    assert victim.poll() is None
    victim.kill()
    victim.wait()
    [after] = became(lent, asked("id", "-u"))
    assert after["printed"].strip() == str(TOOL.pw_uid)


def test_a_node_does_not_fill_the_host_with_programs_of_root(place: Path) -> None:
    """Each connection costs a process of root, so there are only so many, until others end."""
    settings = Settings(tool_account="nobody", state_dir=place / "state")
    terms = replace(terms_of(settings, lent=True), at_once=5)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, terms.as_argument()]
        lent = OwnRunner(control, process.start_companion(argv, theirs.fileno()))
    kept = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
    for ours, its in kept:
        ours.settimeout(PATIENCE_S)
        socket.send_fds(control, [b"t"], [its.fileno()])
        its.close()
    for ours, _ in kept[5:]:
        assert json.loads(ours.recv(1000)) == {"failed": "6 programs run already"}  # and a releaser
    for ours, _ in kept:
        ours.close()
    while became(lent, asked("id"))[0]["answers"] == ["failed"]:
        continue  # until the keepers have noticed
    control.close()
    lent.program.popen.wait(PATIENCE_S)


TYPING = """
import contextlib, fcntl, os, pty, sys, termios
from node.execution import confinement
child, terminal = pty.fork()
if child:
    with contextlib.suppress(OSError):  # of a terminal that nobody has open any more
        while said := os.read(terminal, 100):
            print(said.decode(), end="")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
confinement.forbid_new_privileges()
confinement.forbid_typing()
for request in (termios.TIOCSTI, 0x541C):
    try:
        fcntl.ioctl(0, request, b"x")
    except OSError as fault:
        print(fault.errno, end=" ")
sys.stdout.flush()
"""


def test_a_node_does_not_type_on_the_terminal_of_root() -> None:
    """A process that gave up root puts nothing into the terminal that root has started it from."""
    argv = [sys.executable, "-c", TYPING]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=True, cwd=Path.cwd())
    assert done.stdout.split() == [str(errno.EPERM).encode()] * 2


def test_the_runner_of_root_has_only_the_capabilities_it_uses(lent: OwnRunner) -> None:
    """Root's runner keeps none for the kernel's modules, devices, boot, or network."""
    assert became(lent, asked("id"))[0]["ended"]["exit_code"] == 0
    status = Path(f"/proc/{lent.program.popen.pid}/status").read_text().splitlines()
    [mask] = [int(line.split()[1], 16) for line in status if line.startswith("CapPrm:")]
    for kept_from in (9, 12, 16, 17, 18, 22, 27, 32, 33, 34, 39):
        assert not mask >> kept_from & 1, kept_from
