"""Reads the counters of an interface twice from an agent of SNMP, by net-snmp's own programs.

``snmp_counters.py '{"address": "192.0.2.1", "port": 161, …}'``, see :func:`measure`. What nobody
may see comes on standard input, and goes to the programs by a file in a directory that only this
user can read, since arguments are in the list of processes; both are gone before it ends.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_MIB = ".1.3.6.1.2.1."
_UPTIME = f"{_MIB}1.3.0"
_NAMES = f"{_MIB}31.1.1.1.1"
_DESCRIPTIONS = f"{_MIB}2.2.1.2"
_SIX = 6
_LINE = re.compile(r"^(\.[0-9.]+) = (?:[A-Za-z0-9]+: )?(.*)$")
_PRINTED_MAX = 8_000_000
_GRACE_S = 1.0

_SETTINGS = {
    "version": "defVersion",
    "community": "defCommunity",
    "user": "defSecurityName",
    "level": "defSecurityLevel",
    "authentication_protocol": "defAuthType",
    "authentication": "defAuthPassphrase",
    "privacy_protocol": "defPrivType",
    "privacy": "defPrivPassphrase",
}
"""The tokens of snmp.conf by what we call them."""


_SECRETS = frozenset({"community", "authentication", "privacy"})


class AgentFailure(Exception):
    """The agent did not tell what it was asked; the message is the reason."""


def measure(arguments: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the number of the interface, and two readings with their instants.

    ``arguments`` have the ``address`` and the ``port`` of the agent, with an ``ip_version`` if it
    is a name, the name of the ``interface``, the ``columns`` by name, and the times in nanoseconds:
    ``first_ns`` of the wall clock, the time ``between_ns`` the readings, and ``timeout_ns`` of one
    answer.

    :raises AgentFailure: the agent does not answer, or does not know the interface.
    """
    with _agent(target_of(arguments), settings, arguments["timeout_ns"]) as agent:
        stamp_endpoint.wait_until(arguments["first_ns"])
        index = agent.index_of(arguments["interface"])
        columns = {name: f"{_MIB}{at}.{index}" for name, at in arguments["columns"].items()}
        columns["uptime"] = _UPTIME
        first = agent.read(columns)
        later_s = (first["at_ns"] + arguments["between_ns"] - time.monotonic_ns()) / 1e9
        time.sleep(max(0.0, later_s))
        return {"index": index, "readings": [first, agent.read(columns)]}


def target_of(arguments: Mapping[str, Any]) -> str:
    """Return the agent as net-snmp writes it.

    >>> target_of({"address": "2001:db8::1", "port": 161, "ip_version": None})
    'udp6:[2001:db8::1]:161'
    """
    address, port = arguments["address"], arguments["port"]
    if ":" in address:
        return f"udp6:[{address}]:{port}"
    return f"udp{'6' if arguments['ip_version'] == _SIX else ''}:{address}:{port}"


class _Agent:
    def __init__(self, target: str, environment: Mapping[str, str], timeout_s: float) -> None:
        self._target, self._environment, self._timeout_s = target, environment, timeout_s

    def index_of(self, name: str) -> int:
        """Return the number of the interface of this name."""
        known: dict[str, int | str | None] = {}
        for column in (_NAMES, _DESCRIPTIONS):
            known |= _lines(self._run(["snmpbulkwalk", "-Cr50"], [column], self._timeout_s))
            for at, told in known.items():
                if told == name:
                    return int(at.rpartition(".")[2])
        names = ", ".join(sorted({str(it) for it in known.values() if it is not None})[:20])
        raise AgentFailure(f"the agent has no interface {name}; it has: {names or 'none'}")

    def read(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return the values by name, and the instant of the question's middle (monotonic)."""
        asked_ns = time.monotonic_ns()
        told = _lines(self._run(["snmpget"], list(columns.values()), self._timeout_s))
        at_ns = (asked_ns + time.monotonic_ns()) // 2
        return {"at_ns": at_ns, "values": {name: told.get(at) for name, at in columns.items()}}

    def _run(self, argv: Sequence[str], asked: Sequence[str], timeout_s: float) -> str:
        half_s = max(0.1, self._timeout_s / 2)
        options = ["-On", "-Oe", "-Ot", "-r", "1", "-t", f"{half_s:.2f}"]
        try:
            program = subprocess.Popen(  # noqa: S603 - an argv
                [*argv, *options, self._target, *asked],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(self._environment),
            )  # fmt: skip
        except OSError as fault:
            raise AgentFailure(f"{argv[0]}: {fault.strerror}") from None
        ending = threading.Timer(timeout_s + _GRACE_S, program.kill)
        ending.start()
        with program:
            printed = program.stdout.read(_PRINTED_MAX) if program.stdout else b""
            if len(printed) == _PRINTED_MAX:
                program.kill()
        ending.cancel()
        if len(printed) == _PRINTED_MAX:
            raise AgentFailure(f"it printed more than {_PRINTED_MAX} bytes")
        text = printed.decode("utf-8", "replace")
        if program.returncode < 0:
            raise AgentFailure(f"no answer within {timeout_s:g} s")
        if program.returncode != 0:
            raise AgentFailure(_reason(text, self._timeout_s))
        return text


@contextmanager
def _agent(target: str, settings: Mapping[str, str], timeout_ns: int) -> Iterator[_Agent]:
    with tempfile.TemporaryDirectory(prefix="parley-snmp-") as place:  # only we can read it
        words = [f"{_SETTINGS[name]} {_quoted(name, value)}\n" for name, value in settings.items()]
        Path(place, "snmp.conf").write_text("".join(words), encoding="ascii")
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "LC_ALL": "C",
            "HOME": place,
            "MIBS": "",
            "SNMPCONFPATH": place,
            "SNMP_PERSISTENT_DIR": place,
        }
        yield _Agent(target, environment, timeout_ns / stamp_endpoint.SECOND_NS)


def _quoted(name: str, value: str) -> str:
    return f'"{value}"' if name in _SECRETS else value


def _lines(text: str) -> dict[str, int | str | None]:
    """Return what net-snmp printed by its numbers: counts, texts, None for what is not there.

    >>> _lines('.1.4.1 = STRING: "lo"')
    {'.1.4.1': 'lo'}
    """
    told: dict[str, int | str | None] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        value = match[2]
        if value.startswith('"'):
            told[match[1]] = value.strip('"')[:255]
        elif value.isdecimal() and len(value) <= len(str(2**64)):
            told[match[1]] = int(value)
        else:
            told[match[1]] = None
    return told


def _reason(printed: str, timeout_s: float) -> str:
    """Return why a program of net-snmp failed, in words."""
    lines = [line for line in printed.splitlines() if not line.startswith("Created directory")]
    if any(line.startswith("Timeout: No Response") for line in lines):
        return (
            f"no answer within {timeout_s:g} s: nothing speaks SNMP there, or not with these "
            "credentials, or not to this host"
        )
    reasons = [line for line in lines if line.startswith("Reason: ")] or lines[-1:]
    told = reasons[0] if reasons else "it failed without a reason"
    return (told.partition(": ")[2] or told)[:300]


def main(document: str) -> int:
    """Print one JSON document with the readings, or with the ``failure``."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the directory is removed
    settings = json.load(sys.stdin)
    try:
        told = measure(json.loads(document), settings)
    except AgentFailure as failure:
        told = {"failure": str(failure)}
    print(json.dumps(told, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
