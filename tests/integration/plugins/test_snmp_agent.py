"""The interface of loopback, as a real agent of SNMP tells it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins.contracts import Merged
from tests.integration.plugins.targets import measured
from tests.support.loopback import free_port

pytestmark = [pytest.mark.needs("snmpd", "snmpget"), pytest.mark.timeout(60)]

CONFIGURATION = """\
agentAddress udp:127.0.0.1:{port}
rocommunity lab-community 127.0.0.1
createUser watcher SHA-256 "authentic-secret" AES "private-secret"
rouser watcher priv
"""
BOTH = {"authentication": "authentic-secret", "privacy": "private-secret"}
USER: dict[str, Any] = {"version": "3", "user": "watcher"}
CACHED = "PT7S"
"""A time longer than the one for which the agent remembers counters."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Run an agent, and return its port."""
    port = free_port()
    configuration = tmp_path / "snmpd.conf"
    configuration.write_text(CONFIGURATION.format(port=port))
    configuration.chmod(0o600)
    argv = ["snmpd", "-f", "-C", "-c", str(configuration), "-Lo", "-I", "-smux"]
    environment = {
        "PATH": os.environ["PATH"],
        "MIBS": "",
        "SNMPCONFPATH": str(tmp_path),
        "SNMP_PERSISTENT_DIR": str(tmp_path / "kept"),
    }
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as agent:
        assert agent.stdout is not None
        try:
            assert any("NET-SNMP version" in line for line in agent.stdout)
            yield port
        finally:
            agent.terminate()


def asked(port: int, **fields: Any) -> Merged:
    """Ask the agent for the traffic of loopback."""
    given: dict[str, Any] = {
        "dest": "127.0.0.1",
        "port": port,
        "interface": "lo",
        "duration": "PT1S",
    }
    return measured("snmp", "snmpget", **(given | fields))


@contextlib.contextmanager
def sending() -> Iterator[None]:
    """Send a kilobyte each hundredth of a second over loopback, until the end of the block."""
    over = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind(("127.0.0.1", 0))
            while not over.wait(0.01):
                here.sendto(bytes(1_000), here.getsockname())

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


@pytest.mark.nightly
def test_a_rate_is_told_with_a_community(port: int) -> None:
    """The traffic of loopback is what was sent over it, in both directions alike."""
    with sending():
        run = asked(port, credentials={"community": "lab-community"}, duration=CACHED)
    assert run.reason is None
    result = run.result or {}
    assert (result["interface"], result["status"], result["counter_bits"]) == ("lo", "up", 64)
    assert result["received"]["bytes"] > 100_000
    assert result["sent"]["packets"] > 100
    assert result["received"]["rate_bps"] == result["sent"]["rate_bps"]


@pytest.mark.nightly
def test_a_user_is_authenticated_and_encrypted(port: int) -> None:
    """The third version takes passphrases, and tells when one of them is wrong."""
    run = asked(port, credentials=BOTH, **USER)
    assert run.reason is None
    assert (run.result or {})["received"]["bytes"] is not None
    with pytest.raises(ToolOutputError, match="Authentication failure"):
        asked(port, credentials={**BOTH, "authentication": "another-secret"}, **USER)
    with pytest.raises(ToolOutputError, match="Unknown user name"):
        asked(port, credentials=BOTH, **{**USER, "user": "nobody"})


def test_what_an_agent_does_not_tell_is_a_reason(port: int) -> None:
    """A wrong community is not answered; an unknown interface has the names of the others."""
    brief: dict[str, Any] = {"timeout": "PT0.4S"}
    with pytest.raises(ToolOutputError, match=r"no answer within 0\.4 s: nothing speaks SNMP"):
        asked(port, credentials={"community": "wrong"}, **brief)
    with pytest.raises(ToolOutputError, match=r"no interface nope; it has: .*lo"):
        asked(port, credentials={"community": "lab-community"}, interface="nope")
