"""The programs that run owping and owampd, with fakes of these that only record their arguments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from node.plugins.contracts import Command, Output, PartContext, Party
from node.plugins.tools.owping import TOOL
from tests.support.patience import PATIENCE_S
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
[ -z "$DEAF" ] || trap "" TERM
[ -z "$READY" ] || echo "$2" > "$READY"
exec sleep 60
"""


@pytest.fixture(name="seen")
def _seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the arguments that the fakes were started with."""
    for name, text in (("owping", OWPING), ("owampd", OWAMPD)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


def part(participant: int, lasts_s: float, source: str = "192.0.2.1") -> PartContext:
    """Return a part of a run whose preparation has just ended."""
    parties = (Party("a", source, {"port": 8760}), Party("b", "2001:db8::2", {"port": 9000}))
    starts = time.time_ns() // 1000 - 1_000_000
    task_spec = spec("latency", count=1)
    return PartContext(task_spec, participant, parties, starts, starts + round(lasts_s * 1e6))


def started(command: Command) -> subprocess.Popen[bytes]:
    """Start the program."""
    return subprocess.Popen(command.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(program: subprocess.Popen[bytes]) -> Output:
    """Return its output."""
    stdout, stderr = program.communicate(timeout=PATIENCE_S)
    return Output(program.returncode, stdout, stderr)


def test_the_client_runs_both_ways(seen: Path) -> None:
    """Both directions run at once, and their lines are kept apart."""
    client_part = part(SOURCE, 20)
    result: dict[str, Any] = TOOL.read(client_part, ended(started(TOOL.command(client_part))))
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
    """The server uses its ports, removes its directory, and a planned end is not a failure."""
    server_part = part(DEST, 2.4)
    result = TOOL.read(server_part, ended(started(TOOL.command(server_part))))
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


def test_a_client_that_is_named_is_served_at_its_addresses(seen: Path) -> None:
    """A client given by name is served at its addresses, and no other host is."""
    server_part = part(DEST, 2.4, source="localhost")
    TOOL.read(server_part, ended(started(TOOL.command(server_part))))
    assigned = [line for line in seen.read_text().splitlines() if line.startswith("assign")]
    assert assigned[0] == "assign default nobody"
    assert {"assign net 127.0.0.1/32 root", "assign net ::1/128 root"} >= set(assigned[1:])
    assert assigned[1:]


def test_a_client_that_nobody_knows_is_not_served(seen: Path) -> None:
    """An unknown client name is the reason of the failure, and owampd is not started."""
    output = ended(started(TOOL.command(part(DEST, 20, source="nobody.invalid"))))
    assert (output.exit_code, output.stdout) == (1, b"")
    assert output.stderr.decode().startswith("owampd: nobody.invalid: ")
    assert not seen.exists()


TOLD_WHILE_STARTING = """
import os, signal, sys
from node.plugins.tools.programs import owamp_server
owamp_server._configure = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
owamp_server.main(sys.argv[1])
"""
TOLD_AS_IT_IS_STARTED = """
import os, signal, subprocess, sys
from node.plugins.tools.programs import owamp_server

class Popen(subprocess.Popen):
    def _get_devnull(self):  # a step in the middle of the start
        os.kill(os.getpid(), signal.SIGTERM)
        return super()._get_devnull()

owamp_server.subprocess.Popen = Popen
sys.exit(owamp_server.main(sys.argv[1]))
"""


def test_a_server_that_is_told_to_end_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is removed even if TERM arrives before owampd is started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    params = TOOL.command(part(DEST, 20)).argv[-1]
    argv = [sys.executable, "-c", TOLD_WHILE_STARTING, params]
    assert subprocess.run(argv, check=False).returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("seen")
def test_a_server_that_is_told_to_end_while_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is ended and its report given although TERM arrives in the middle of its start."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    params = TOOL.command(part(DEST, 60)).argv[-1]
    program = subprocess.Popen(
        [sys.executable, "-c", TOLD_AS_IT_IS_STARTED, params], stdout=subprocess.PIPE
    )
    report = json.loads(ended(program).stdout)
    assert (report["early"], report["exit_code"]) == (False, -signal.SIGTERM)
    assert list(place.iterdir()) == []


@pytest.mark.usefixtures("seen")
def test_a_server_that_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignores TERM is killed in time for its directory to be removed."""
    monkeypatch.setenv("DEAF", "1")
    report = json.loads(ended(started(TOOL.command(part(DEST, 2.4)))).stdout)
    assert (report["early"], report["exit_code"]) == (False, -signal.SIGKILL)


@pytest.mark.usefixtures("seen")
def test_a_server_that_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM also ends owampd, and its directory is removed."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    monkeypatch.setenv("READY", str(ready))
    program = started(TOOL.command(part(DEST, 60)))
    place = Path(ready.read_text().strip())
    assert place.exists()
    program.send_signal(signal.SIGTERM)
    report = json.loads(ended(program).stdout)
    assert (report["early"], report["exit_code"]) == (False, -signal.SIGTERM)
    assert not place.exists()


@pytest.mark.parametrize(("participant", "name"), [(SOURCE, "owping"), (DEST, "owampd")])
def test_programs_that_are_not_there(
    participant: int, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing program is named in the reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    output = ended(started(TOOL.command(part(participant, 20))))
    assert (output.exit_code, output.stdout) == (127, b"")
    assert output.stderr.decode() == f"{name}: No such file or directory\n"
