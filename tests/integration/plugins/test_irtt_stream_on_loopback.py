"""A running stream by irtt: on loopback, run after run, and without a server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.execution.proctable import living_members
from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Output, PartContext
from node.plugins.irttstream import LEAD_IN
from node.plugins.tools.irtt import TOOL
from tests.integration.plugins.streams import (
    run_after_run,
    soon,
    start,
    stream,
    told,
    wait_until,
)
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

COUNTS = ("sent", "received_at_dest", "received_back")


def now() -> int:
    """Return the current instant, for programs that may begin late."""
    return time.time_ns() // 1000


@contextlib.contextmanager
def served(part: PartContext) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server's program in a process group of its own, which is killed at the end."""
    program = subprocess.Popen(
        TOOL.command(part).argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.needs("irtt")
@pytest.mark.nightly
def test_no_packet_is_lost_between_two_runs() -> None:
    """Intervals and runs follow each other, and every packet of each comes back."""
    for intervals in run_after_run(TOOL):
        assert [(each.number, each.reason) for each in intervals] == [(0, None), (1, None)]
        for each in intervals:
            result = each.result or {}
            # irtt skips a packet if it gets the CPU only after the packet's time is over.
            assert 0 < result["sent"] <= 100
            assert len({result[name] for name in COUNTS}) == 1
            assert 0 < result["delay_ms"]["round_trip"]["median"] < 50
            assert result["clocks_synchronised"] == (result["clock_error_ms"] is not None)


@pytest.mark.needs("irtt")
@pytest.mark.nightly
def test_a_server_that_comes_late_is_found() -> None:
    """Packets that were due before the server listened count as not sent, and not as lost."""
    parts = stream(TOOL, soon(), free_port(), 4, each="PT4S")
    clients = start(TOOL, parts[0])
    wait_until(parts[0].starts + LEAD_IN + SECOND // 2)
    with served(parts[1]):
        [interval] = told(TOOL, parts[0], clients)
    result = interval.result or {}
    assert 20 <= result["sent"] < 390
    assert result["received_back"] == result["received_at_dest"] == result["sent"]
    assert result["unsent"] >= 400 - result["sent"]
    assert "connection refused; " in (interval.reason or "")


@pytest.mark.needs("irtt")
@pytest.mark.nightly
def test_without_a_server_there_is_a_gap() -> None:
    """An interval in which the server never answered has the reason, and no figures."""
    parts = stream(TOOL, soon(), free_port(), 4, each="PT4S")
    [interval] = told(TOOL, parts[0], start(TOOL, parts[0]))
    assert interval.result is None
    assert (interval.reason or "").startswith("no packet could be sent: irtt: read udp4 ")


@pytest.mark.needs("irtt")
def test_a_server_whose_port_is_taken_says_so() -> None:
    """A server whose port is taken reports that in its own words."""
    parts = stream(TOOL, now(), free_port(), 5)
    with served(parts[1]) as first:
        assert first.stdout is not None
        first.stdout.readline()  # its first interval is over: it listens
        with served(parts[1]) as second:
            stdout, stderr = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    assert living_members(second.pid) == []
    with pytest.raises(ToolOutputError, match=r"irtt: listen .* address already in use$"):
        TOOL.read(parts[1], Output(second.returncode, stdout, stderr))


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("echo nonsense", "irtt printed something that is not a document"),
        ("echo 'Error: no' >&2; exit 2", "irtt: no"),
        ("exec cat /dev/zero", "irtt printed too much to be read"),
        pytest.param(
            "exec cat /dev/zero >&2", "irtt did not end in time", marks=pytest.mark.nightly
        ),
        ("exec tail -f /dev/null", "irtt did not end in time"),
    ],
)
def test_a_misbehaving_irtt_makes_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, reason: str
) -> None:
    """A client that prints garbage or hangs makes a gap with the cause."""
    program = tmp_path / "irtt"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    parts = stream(TOOL, soon(), free_port(), 4, each="PT4S")
    [interval] = told(TOOL, parts[0], start(TOOL, parts[0]))
    assert interval.result is None
    assert (interval.reason or "").startswith("no packet could be sent: ")
    assert (interval.reason or "").endswith(reason)


def test_without_irtt_there_is_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If irtt was uninstalled since the run was booked, both ends say so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for part in stream(TOOL, now(), free_port(), 1):
        program = start(TOOL, part)
        stdout, _ = program.communicate(timeout=PATIENCE_S)
        with pytest.raises(ToolOutputError, match="irtt: irtt: No such file or directory"):
            TOOL.read(part, Output(program.returncode, stdout, b""))
