"""The command lines of irtt's server and client, for single runs and streams. Pure.

Uses only the standard library: our programs use it too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Protocol

_MICROSECOND_NS = 1000
_CLIENT = ("irtt", "client", "-Q", "-o", "-")


class _Party(Protocol):
    @property
    def address(self) -> str: ...


class _Packets(Protocol):
    @property
    def interval(self) -> int: ...

    @property
    def timeout(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def ip_version(self) -> int | None: ...


def server_command(dest: _Party, port: int, spec: _Packets, idle: int = 0) -> list[str]:
    """Return ``irtt server -b ADDRESS:PORT …``; clients silent for ``idle`` µs are forgotten."""
    own = f"{_own_address(dest)}:{port}"
    # No minimum interval: packets that were delayed somewhere arrive closer than they were sent.
    return [
        "irtt",
        "server",
        "-b",
        own,
        "-i",
        "0",
        "-l",
        str(spec.length),
        f"--timeout={_idle_option(idle)}",
    ]


def client_command(
    source: _Party, dest: _Party, port: int, spec: _Packets, openings_ms: Sequence[int]
) -> list[str]:
    """Return ``irtt client … ADDRESS:PORT`` without ``-d``, which sets for how long it sends.

    ``openings_ms``: how long it waits for the server's reply to its first packet, its second …
    """
    argv = [*_CLIENT, "-i", f"{spec.interval * _MICROSECOND_NS}ns"]
    # With only these, a packet of the shortest length, 44, holds everything that is requested.
    argv += ["-l", str(spec.length), "--stats=both", "--tstamp=both", "--clock=wall"]
    argv += [f"--wait={spec.timeout * _MICROSECOND_NS}ns"]
    argv += [f"--timeouts={','.join(f'{wait_ms}ms' for wait_ms in openings_ms)}"]
    argv += [f"--local={_own_address(source)}"] if _own_address(source) else []
    argv += [f"-{spec.ip_version}"] if spec.ip_version else []
    return [*argv, "--", f"{_bracketed(dest.address)}:{port}"]


def with_sending_time(argv: Sequence[str], lasts_ns: int) -> list[str]:
    """Return the client's command line with how long it sends."""
    after = len(_CLIENT) + 2
    return [*argv[:after], "-d", f"{lasts_ns}ns", *argv[after:]]


def _idle_option(idle: int) -> str:
    return f"{idle * _MICROSECOND_NS}ns" if idle else "0"


def _own_address(party: _Party) -> str:
    """Return the party's address; empty for a name, which may resolve differently on its host."""
    try:
        ipaddress.ip_address(party.address)
    except ValueError:
        return ""
    return _bracketed(party.address)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
