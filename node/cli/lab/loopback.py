"""Loopback addresses for a lab without namespaces: ``127.1.LAB.NODE``, all with the same port.

A lab claims its number by binding, without listening, a guard address that no node uses; so two
labs on one host never share a number, and the kernel releases the claim with the process.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from node.model.errors import HostError

PORTS = range(8642, 8742)
LABS = range(256)
NODES_MAX = 250


@dataclass(frozen=True)
class LoopbackClaim:
    """Addresses whose ``port`` was free, reserved against other labs until :meth:`release`."""

    addresses: tuple[str, ...]
    port: int
    guard: socket.socket

    def release(self) -> None:
        """Release the number for the next lab; repeatable."""
        self.guard.close()


def claim(count: int) -> LoopbackClaim:
    """Claim ``count`` addresses.

    :raises HostError: ``count`` is out of range, or no addresses are free.
    """
    if not 0 < count <= NODES_MAX:
        raise HostError(f"a lab has 1 to {NODES_MAX} nodes, not {count}")
    for port, lab in itertools.product(PORTS, LABS):
        guard = _bind(f"127.1.{lab}.254", port)
        if guard is None:
            continue
        addresses = tuple(f"127.1.{lab}.{index + 1}" for index in range(count))
        if _are_all_free(addresses, port):
            return LoopbackClaim(addresses, port, guard)
        guard.close()
    raise HostError(
        f"none of the ports {PORTS[0]} to {PORTS[-1]} is free on the loopback addresses 127.1.x.y. "
        "Use ss -tlnp to see what listens there"
    )


def _are_all_free(addresses: Sequence[str], port: int) -> bool:
    with contextlib.ExitStack() as stack:
        for address in addresses:
            probe = _bind(address, port, reuse=True)
            if probe is None:
                return False
            stack.enter_context(probe)
    return True


def _bind(address: str, port: int, *, reuse: bool = False) -> socket.socket | None:
    """Bind a socket; return ``None`` if the address is taken; ``reuse`` ignores closed ones."""
    endpoint = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        endpoint.bind((address, port))
    except OSError as fault:
        endpoint.close()
        if fault.errno != errno.EADDRINUSE:
            raise HostError(f"{address}:{port} cannot be bound: {fault.strerror}") from fault
        return None
    return endpoint
