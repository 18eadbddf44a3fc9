"""The programs that run owping and owampd, with programs of these names that only say what came."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from node.plugins.contracts import Command, Output, PartContext, Party
from node.plugins.tools.owping import TOOL
from tests.unit.plugins.parts import spec

SOURCE, DEST = 0, 1
OWPING = """#!/bin/sh
echo "Approximately 1.0 seconds until results available"
case $* in
*-t*) echo "0 17179869184000000000 1 0.0001 17179869184085899346 1 0.0001 252" ;;
*-f*) echo "0 17179869184000000000 1 0.0001 17179869184042949673 1 0.0001 255" ;;
esac
echo "$@" >> "$SEEN"
"""
OWAMPD = """#!/bin/sh
echo "$@" >> "$SEEN"
while [ "$1" != -c ]; do shift; done
cat "$2/owamp-server.conf" "$2/owamp-server.limits" >> "$SEEN"
echo "$2" >> "$SEEN"
[ -z "$READY" ] || echo "$2" > "$READY"
exec sleep 60
"""


@pytest.fixture(name="seen")
def _seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the programs were started with."""
    for name, text in (("owping", OWPING), ("owampd", OWAMPD)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


def part(participant: int, lasts_s: float) -> PartContext:
    """A part of a run whose preparation has just ended."""
    parties = (Party("a", "192.0.2.1", {"port": 8760}), Party("b", "2001:db8::2", {"port": 9000}))
    starts = time.time_ns() // 1000 - 1_000_000
    given = spec("latency", count=1)
    return PartContext(given, participant, parties, starts, starts + round(lasts_s * 1e6))


def started(command: Command) -> subprocess.Popen[bytes]:
    """The program."""
    return subprocess.Popen(command.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(program: subprocess.Popen[bytes]) -> Output:
    """What it printed."""
    stdout, stderr = program.communicate(timeout=20)
    return Output(program.returncode, stdout, stderr)


def test_the_client_runs_both_ways(seen: Path) -> None:
    """At once; each one's lines are of its own way."""
    asked = part(SOURCE, 20)
    result: dict[str, Any] = TOOL.read(asked, ended(started(TOOL.command(asked))))
    ways = result["delay_ms"]
    assert ways["forward"]["min"] == pytest.approx(20, abs=0.001)
    assert ways["backward"]["min"] == pytest.approx(10, abs=0.001)
    assert (result["hops_forward"], result["hops_backward"]) == (3, None)
    shared = "-S 192.0.2.1 -- [2001:db8::2]:9000"
    options = "-R -A O -c 1 -i 0.1f -L 1 -s 30"
    assert sorted(seen.read_text().splitlines()) == [
        f"{options} -f -P 8762-8763 {shared}",
        f"{options} -t -P 8760-8761 {shared}",
    ]


def test_the_server_serves_one_client_for_its_time(seen: Path) -> None:
    """On its ports; with its end its directory goes, and that we ended it is no failure."""
    asked = part(DEST, 2.4)
    result = TOOL.read(asked, ended(started(TOOL.command(asked))))
    assert result["clock"]["identity"]
    argv, *configured, place = seen.read_text().splitlines()
    foreground = " -f" if os.geteuid() == 0 else ""
    assert argv == (f"-Z -a O -c {place} -d {place} -R {place} -S [2001:db8::2]:9000{foreground}")
    assert configured == [
        "testports 9001-9003",
        "limit root with bandwidth=0, disk=0, delete_on_fetch=on, allow_open_mode=on",
        "limit nobody with parent=root, bandwidth=1, disk=1, allow_open_mode=off",
        "assign default nobody",
        "assign net 192.0.2.1/32 root",
    ]
    assert not Path(place).exists()


@pytest.mark.usefixtures("seen")
def test_a_server_that_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM ends owampd as well, and its directory goes."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    monkeypatch.setenv("READY", str(ready))
    program = started(TOOL.command(part(DEST, 60)))
    place = Path(ready.read_text().strip())
    assert place.exists()
    program.send_signal(signal.SIGTERM)
    told = json.loads(ended(program).stdout)
    assert (told["early"], told["exit_code"]) == (False, -signal.SIGTERM)
    assert not place.exists()


@pytest.mark.parametrize(("participant", "name"), [(SOURCE, "owping"), (DEST, "owampd")])
def test_programs_that_are_not_there(
    participant: int, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reason names the program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    output = ended(started(TOOL.command(part(participant, 20))))
    assert (output.exit_code, output.stdout) == (127, b"")
    assert output.stderr.decode() == f"{name}: No such file or directory\n"
