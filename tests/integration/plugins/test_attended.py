"""The program that attends others: real processes and a real connection on loopback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from node.plugins.attendance import AttendanceReport, attended_command, split_attendance
from node.plugins.contracts import Output
from node.plugins.tools.programs.attended import congestion


def started(argv: list[str], until_s: float | None = None) -> subprocess.Popen[bytes]:
    """The program, attending ``argv`` from now on."""
    now = time.time_ns() // 1000
    until = None if until_s is None else now + round(until_s * 1_000_000)
    command = attended_command(argv, now, until)
    return subprocess.Popen(command.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(program: subprocess.Popen[bytes]) -> tuple[Output, AttendanceReport]:
    """What it printed, taken apart."""
    stdout, stderr = program.communicate(timeout=20)
    return split_attendance(Output(program.returncode, stdout, stderr), "it")


def python(text: str) -> list[str]:
    """A program that does this."""
    return [sys.executable, "-I", "-S", "-c", text]


def test_output_and_exit_code_are_the_programs() -> None:
    """What it prints stays as it is, and what is known of the clock comes after it."""
    printed, known = ended(started(python("print('hello'); raise SystemExit(3)")))
    assert (printed.stdout, printed.exit_code) == (b"hello\n", 3)
    assert known.congestion is None
    assert known.clock.clock.stepped_ms == pytest.approx(0, abs=1)


def test_it_ends_what_does_not_end() -> None:
    """At its instant, with TERM."""
    _, known = ended(started(python("import time; time.sleep(60)"), until_s=0.3))
    assert known.exit_code == -signal.SIGTERM


def test_it_tells_all_when_it_is_ended() -> None:
    """The launcher's TERM is passed on, and what is known is still printed."""
    program = started(python("print('ready', flush=True); import time; time.sleep(60)"))
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    program.send_signal(signal.SIGTERM)
    _, known = ended(program)
    assert known.exit_code == -signal.SIGTERM


def test_a_program_that_is_not_there() -> None:
    """The reason is on standard error, as of every other program."""
    program = started(["/nowhere/it"])
    assert program.communicate(timeout=20) == (b"", b"/nowhere/it: No such file or directory\n")
    assert program.returncode == 127


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_congestion_control_of_a_connection(family: int, host: str) -> None:
    """The kernel tells of each end its own, as it was set there."""
    with socket.socket(family) as listening, socket.socket(family) as client:
        listening.bind((host, 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert congestion(port, own=True) is None
        client.connect((host, port))
        server, _ = listening.accept()
        with server:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
            used: Any = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert congestion(port, own=False) == "reno"
            assert congestion(port, own=True) == used.rstrip(b"\0").decode()


def test_the_line_that_is_added_is_one_document() -> None:
    """After an RS, so that nothing a tool prints is taken for it."""
    stdout, _ = started(python("print('{}')")).communicate(timeout=20)
    added = stdout.partition(b"\x1e")[2]
    assert set(json.loads(added)) == {"congestion", "clock", "exit_code"}
