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

from node.plugins.contracts import Output
from node.plugins.ownprograms import AttendanceReport, attended_command, split_attendance
from node.plugins.tools.programs.attended import congestion
from tests.support.patience import PATIENCE_S


def started(argv: list[str], until_s: float | None = None) -> subprocess.Popen[bytes]:
    """Start the program, attending ``argv`` from now on."""
    now = time.time_ns() // 1000
    until = None if until_s is None else now + round(until_s * 1_000_000)
    command = attended_command(argv, now, until)
    return subprocess.Popen(command.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(program: subprocess.Popen[bytes]) -> tuple[Output, AttendanceReport]:
    """Return its output, split."""
    stdout, stderr = program.communicate(timeout=PATIENCE_S)
    return split_attendance(Output(program.returncode, stdout, stderr), "it")


def python(text: str) -> list[str]:
    """Return the argv of a program that runs this text."""
    return [sys.executable, "-I", "-S", "-c", text]


def test_output_and_exit_code_are_the_programs() -> None:
    """The tool's output stays as it is, and the report of the clock follows it."""
    printed, report = ended(started(python("print('hello'); raise SystemExit(3)")))
    assert (printed.stdout, printed.exit_code) == (b"hello\n", 3)
    assert report.congestion is None
    assert report.clock.clock.stepped_ms == pytest.approx(0, abs=1)


def test_it_ends_what_does_not_end() -> None:
    """A tool that does not end is terminated at its instant."""
    _, report = ended(started(python("import time; time.sleep(60)"), until_s=0.3))
    assert report.exit_code == -signal.SIGTERM


def test_the_report_is_printed_on_term() -> None:
    """The launcher's TERM is passed on, and the report is still printed."""
    program = started(python("print('ready', flush=True); import time; time.sleep(60)"))
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    program.send_signal(signal.SIGTERM)
    _, report = ended(program)
    assert report.exit_code == -signal.SIGTERM


def test_a_program_that_is_not_there() -> None:
    """A missing program is reported on standard error, like other programs' errors."""
    program = started(["/nowhere/it"])
    assert program.communicate(timeout=PATIENCE_S) == (
        b"",
        b"/nowhere/it: No such file or directory\n",
    )
    assert program.returncode == 127


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_congestion_control_of_a_connection(family: int, host: str) -> None:
    """Each end has the congestion control that was set there."""
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
    """The report follows an RS, so that the tool's output cannot be mistaken for it."""
    stdout, _ = started(python("print('{}')")).communicate(timeout=PATIENCE_S)
    added = stdout.partition(b"\x1e")[2]
    assert set(json.loads(added)) == {"congestion", "clock", "exit_code"}
