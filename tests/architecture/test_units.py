"""The systemd units: valid, tightly confined, and consistent with the program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from node.execution.targets import LOOK_UPS_MAX
from node.model.errors import (
    DatabaseUnavailable,
    HostError,
    MovedAway,
    NoRoom,
    SchemaMismatch,
    WrongKey,
)
from node.runtime.settings import Settings
from tests.architecture.sources import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
EXPOSURE_MAX = {
    "parley-node.service": 1.5,
    "parley-lead.service": 1.5,
    "parley-api@.service": 1.5,
    "parley-follow.service": 1.6,  # programs of jq in templates get limits of their own
    "parley-tools.service": 2.0,  # it needs a capability, and loads programs before their instant
}
UNITS = tuple(EXPOSURE_MAX)
SERVICES = (
    "parley-node.service",
    "parley-lead.service",
    "parley-api@.service",
    "parley-follow.service",
)
SOCKET = "parley-tools.socket"
THREADS_MAX = 33
"""The event loop's, and the most that Python's own pool has."""
PROGRAMS = 150
THREADS_OF_PROGRAM = 5
"""Threads of iperf3 from 3.16 on with a few streams; nearly all other programs have one."""
COMMAND = re.compile(r"^ExecStart=(/opt/parley/bin/(\S+))(?: .*)?$", re.MULTILINE)
EXPOSURE = re.compile(r"Overall exposure level for \S+: (\d+\.\d+)")
SETTING = re.compile(r"^(?:#|Environment=)?PARLEY_([A-Z_]+)=", re.MULTILINE)

HOARDING = '[range(300) | ("x" * 2e3)] | add as $x | [range(9000) | $x + "y"]'
"""A jq program that soon exceeds its memory limit."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no running systemd."""
    program = shutil.which("systemd-analyze")
    assert program, "these tests need systemd-analyze: apt-get install systemd"
    argv = [program, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a unit with an existing program, which verify requires."""
    text = (DEPLOY / str(request.param)).read_text()
    copy = tmp_path / str(request.param)
    copy.write_text(COMMAND.sub("ExecStart=/bin/true", text))
    (tmp_path / SOCKET).write_text((DEPLOY / SOCKET).read_text())
    return copy


@pytest.mark.needs("systemd-analyze")
def test_systemd_has_no_complaint(unit: Path) -> None:
    """Each unit passes ``systemd-analyze verify`` without a complaint."""
    outcome = analyze("verify", "--man=no", "--recursive-errors=no", unit)
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze")
def test_units_are_tightly_closed(unit: Path) -> None:
    """According to systemd, each unit's exposure is at most this, out of 10."""
    outcome = analyze("security", "--offline=yes", "--no-pager", unit)
    found = EXPOSURE.search(outcome.stdout)
    assert found, outcome.stdout + outcome.stderr
    assert float(found.group(1)) <= EXPOSURE_MAX[unit.name]


@pytest.mark.parametrize("name", UNITS)
def test_units_start_what_is_installed(name: str) -> None:
    """The program a unit starts is one of the package's commands."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = COMMAND.search((DEPLOY / name).read_text())
    assert found is not None
    assert found.group(2) in project["scripts"]


def test_ping_keeps_its_capability() -> None:
    """Tools have CAP_NET_RAW, without which NoNewPrivileges prevents ping from running."""
    lines = (DEPLOY / "parley-tools.service").read_text().splitlines()
    assert {"NoNewPrivileges=yes", "AmbientCapabilities=CAP_NET_RAW"} <= set(lines)
    assert [line for line in lines if re.match(r"SystemCallFilter=~.*@privileged", line)] == []


@pytest.mark.parametrize("name", ["parley-node", "parley-lead", "parley-api@"])
def test_services_are_not_started_again_in_vain(name: str) -> None:
    """A service that no other start can help ends once: wrong settings, moved away, wrong keys."""
    text = (DEPLOY / f"{name}.service").read_text()
    [codes] = re.findall(r"^RestartPreventExitStatus=(.+)$", text, re.MULTILINE)
    useless = (click.UsageError.exit_code, MovedAway.exit_code, WrongKey.exit_code)
    assert [int(code) for code in codes.split()] == sorted(useless)
    temporary = (DatabaseUnavailable, NoRoom, SchemaMismatch, HostError)
    assert not {it.exit_code for it in temporary} & set(useless)


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_no_capability(name: str) -> None:
    """Node, lead, API and follower have no capability."""
    lines = (DEPLOY / name).read_text().splitlines()
    assert {"NoNewPrivileges=yes", "CapabilityBoundingSet="} <= set(lines)
    assert not any(line.startswith("AmbientCapabilities=") for line in lines)


def test_tools_are_another_account_without_the_nodes_files() -> None:
    """Tools have an account of their own, to which the node's files and databases are hidden."""
    tools, node = ((DEPLOY / f"parley-{name}.service").read_text() for name in ("tools", "node"))
    socket, accounts = ((DEPLOY / name).read_text() for name in (SOCKET, "parley.sysusers"))
    assert "\nUser=parley-tool\n" in tools
    assert "\nUser=parley\n" in node
    assert "\nSocketUser=parley\nSocketMode=0600\n" in socket
    assert re.findall(r"^u (\S+) ", accounts, re.MULTILINE) == ["parley", "parley-tool"]
    hidden = " ".join(re.findall(r"^InaccessiblePaths=(.+)$", tools, re.MULTILINE)).split()
    assert {"-/var/lib/parley", "-/etc/parley", "-/run/postgresql"} <= set(hidden)
    [path] = re.findall(r"^ListenSequentialPacket=(.+)$", socket, re.MULTILINE)
    assert f"PARLEY_TOOL_SOCKET={path}\n" in node


def test_units_are_limited_in_memory_and_processes() -> None:
    """Memory and processes are limited, with room for what a node starts."""
    for name, memory, tasks in (
        ("parley-node.service", "1G", LOOK_UPS_MAX + 2 * THREADS_MAX),
        ("parley-lead.service", "1G", 2 * THREADS_MAX),
        ("parley-api@.service", "1G", 2 * THREADS_MAX),
        ("parley-follow.service", "1G", THREADS_MAX),
        ("parley-tools.service", "2G", PROGRAMS * (1 + THREADS_OF_PROGRAM)),
    ):
        lines = (DEPLOY / name).read_text().splitlines()
        assert f"MemoryMax={memory}" in lines
        [most] = [int(line.partition("=")[2]) for line in lines if line.startswith("TasksMax=")]
        assert most >= tasks
        assert "OOMPolicy=continue" in lines or name not in {
            "parley-node.service",
            "parley-tools.service",
        }


@pytest.mark.parametrize(
    "name", ["parley-node.service", "parley-lead.service", "parley-api@.service", "parley.env"]
)
def test_settings_exist(name: str) -> None:
    """Every setting named in a unit or in the example exists in the program."""
    named = {setting.lower() for setting in SETTING.findall((DEPLOY / name).read_text())}
    assert named
    assert named - set(Settings.model_fields) == set()


@pytest.mark.needs("systemd-analyze", "jq")
@pytest.mark.parametrize(
    ("transform", "document", "said"),
    [
        ({"jq": "{b: .a}"}, {"b": 1}, None),
        ({"jq": HOARDING}, None, "cannot allocate memory"),
        ({"jmespath": "{b: a}"}, {"b": 1}, None),
    ],
    ids=["jq fits", "jq too much", "JMESPath fits"],
)
@pytest.mark.mostly_nightly
def test_transforms_work_in_the_unit(
    transform: dict[str, str], document: object, said: str | None
) -> None:
    """The system calls that the unit allows are enough for a child under its limits."""
    argv = [
        sys.executable,
        "-m",
        "tests.architecture.confined",
        str(DEPLOY / "parley-tools.service"),
    ]
    argv.append(json.dumps(transform))
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["confined"]
    assert found["document"] == document
    assert found["error"] is said or said in found["error"]


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize(
    ("forbidden", "loaded"), [((), "echo"), (("ptrace",), Path("/bin/sh").resolve().name)]
)
@pytest.mark.nightly
def test_tools_are_held_in_the_unit(forbidden: tuple[str, ...], loaded: str) -> None:
    """A tool is loaded before its instant, where tracing is allowed; elsewhere a shell waits."""
    argv = [sys.executable, "-m", "tests.architecture.held", str(DEPLOY / "parley-tools.service")]
    done = subprocess.run(
        [*argv, *forbidden], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [loaded, True, "begun\n"]


@pytest.mark.parametrize("name", ["parley-node", "parley-lead", "parley-api@"])
def test_services_wait_for_the_time(name: str) -> None:
    """A service that books instants starts after the clock was set, where a unit says when."""
    lines = (REPOSITORY / "deploy" / f"{name}.service").read_text().splitlines()
    for key in ("After", "Wants"):
        [wanted] = [line for line in lines if line.startswith(f"{key}=")]
        assert "time-sync.target" in wanted.partition("=")[2].split()
