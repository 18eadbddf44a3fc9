"""Reaching a target that is not a node: its addresses, a connection, and a deadline.

A failure of the target is a result of its own; :class:`TargetUnreachable` holds it as a sentence.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import ssl
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from node.plugins.tools.programs.stamp_endpoint import SECOND_NS, Arguments, SocketAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.model.targets import TargetRules

Address = tuple[int, SocketAddress]
"""A family and a socket address."""

_PIECE_BYTES = 65_536
_FAMILIES = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}


class TargetUnreachable(Exception):
    """The target cannot be measured any further; the message is the reason."""


class Distrusted(TargetUnreachable):
    """The target's certificate is not trusted; the message is the library's reason."""


class Private:
    """The words of standard input: ``headers``, and ``rules`` for its targets.

    ``not_asked`` are the networks that are not asked by DNS whether they object to being measured;
    None if nobody is asked.
    """

    def __init__(self, arguments: Arguments) -> None:
        """Read it, if the arguments say with ``private`` that there is something."""
        document = json.load(sys.stdin) if arguments.get("private") else {}
        self.headers: dict[str, str] = document.get("headers", {})
        self.not_asked: list[str] | None = document.get("not_asked")
        self.rules: TargetRules | None = None
        if (rules := document.get("rules")) is not None:
            self.rules = _load_targets().TargetRules.of(rules)


def _load_targets() -> Any:
    """Return the module that judges targets. Loading it takes 20 ms, which own tasks need not."""
    from node.model import targets  # noqa: PLC0415 - see above

    return targets


class Deadline:
    """A deadline in monotonic time."""

    def __init__(self, nanoseconds: int) -> None:
        """Set the deadline ``nanoseconds`` from now."""
        self._allowed_s = nanoseconds / SECOND_NS
        self._at_ns = time.monotonic_ns() + nanoseconds

    def left(self, waited_for: str) -> float:
        """Return the seconds left, more than 0.

        :raises TargetUnreachable: the deadline is over; ``waited_for`` begins the reason.
        """
        left_ns = self._at_ns - time.monotonic_ns()
        if left_ns <= 0:
            raise self.over(waited_for)
        return left_ns / SECOND_NS

    def over(self, waited_for: str) -> TargetUnreachable:
        """Return the reason that it took too long."""
        return TargetUnreachable(f"{waited_for} within {self._allowed_s:g} s")


class Wire(io.RawIOBase):
    """The receiving side of a connection: records the first byte's time, enforces the deadline."""

    def __init__(self, endpoint: socket.socket, deadline: Deadline) -> None:
        """Read from a connected socket until the deadline."""
        self._endpoint = endpoint
        self._deadline = deadline
        self.first_ns: int | None = None

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come into the buffer, and return how many bytes; 0 at the end.

        :raises TargetUnreachable: the deadline is over.
        """
        waited_for = "the answer was not complete" if self.first_ns else "there was no answer"
        self._endpoint.settimeout(self._deadline.left(waited_for))
        try:
            count = self._endpoint.recv_into(buffer)
        except TimeoutError:
            raise self._deadline.over(waited_for) from None
        if self.first_ns is None:
            self.first_ns = time.monotonic_ns()
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a reader of bytes: the parser of answers calls this method of a socket."""
        return io.BufferedReader(self, _PIECE_BYTES)


def system_error_text(fault: OSError) -> str:
    """Return the system's message for a fault, without its number."""
    return fault.strerror or str(fault) or type(fault).__name__


def place(address: SocketAddress) -> str:
    """Return ``192.0.2.7 port 80``."""
    return f"{address[0]} port {address[1]}"


def look_up(
    host: str,
    port: int,
    ip_version: int | None,
    deadline: Deadline,
    rules: TargetRules | None = None,
) -> list[Address]:
    """Return the addresses of a host for TCP, best first.

    :raises TargetUnreachable: the name has none, the name service did not answer in time, or the
        rules forbid an address. Every connection is made to what this returns, so that a name that
        changes its address changes nothing.
    """
    found = _look_up(host, port, ip_version, deadline)
    if rules is not None:
        addresses = [address[0] for _, address in found]
        refusal = _load_targets().addresses_refusal(host, addresses, port, rules)
        if refusal is not None:
            raise TargetUnreachable(refusal)
    return found


def redirect_refusal(named: str, host: str, rules: TargetRules | None) -> str | None:
    """Return why a redirect to a host is not followed (:mod:`node.model.targets`), or None."""
    if rules is None:
        return None
    refusal: str | None = _load_targets().redirect_refusal(named, host, rules)
    return refusal


def objection(hosts: list[str], not_asked: list[str], patience_s: float) -> str | None:
    """Return which of these hosts has said by DNS that it does not want to be measured, or None.

    What asks is loaded here, in a tenth of a second: few measurements are sent on to another host.
    """
    import asyncio  # noqa: PLC0415 - see above
    import ipaddress  # noqa: PLC0415
    import site  # noqa: PLC0415

    site.main()  # this program has started without the place of libraries

    from node.runtime.opt_outs import OptOuts  # noqa: PLC0415

    networks = [ipaddress.ip_network(each) for each in not_asked]
    return asyncio.run(OptOuts(lambda: networks).refusal(hosts, patience_s))


def _look_up(host: str, port: int, ip_version: int | None, deadline: Deadline) -> list[Address]:
    answers: list[list[Address] | OSError] = []

    def ask() -> None:
        try:
            answers.append(_resolve(host, port, ip_version, 0))
        except OSError as fault:
            answers.append(fault)

    with contextlib.suppress(socket.gaierror):
        return _resolve(host, port, ip_version, socket.AI_NUMERICHOST)  # needs no name service
    # The library's own timeout is half a minute and cannot be changed; a thread can be abandoned.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(deadline.left(f"no address was found for {host}"))
    if not answers:
        raise deadline.over(f"no address was found for {host}")
    if isinstance(answers[0], OSError):
        raise TargetUnreachable(f"{host}: {system_error_text(answers[0])}")
    return answers[0]


def _resolve(host: str, port: int, ip_version: int | None, flags: int) -> list[Address]:
    # As bytes: a str would first load the codec for internationalised names.
    octets, family = host.encode("ascii"), _FAMILIES[ip_version]
    entries = socket.getaddrinfo(octets, port, family, socket.SOCK_STREAM, flags=flags)
    return [(entry[0], entry[4]) for entry in entries]


def endpoint_of(family: int, kind: int, arguments: Arguments) -> socket.socket:
    """Return a socket bound to the interface ``device`` and the address ``source``, if not null.

    If it cannot be bound, that is not a result of the target: this program exits with the reason.
    """
    device, source = arguments.get("device"), arguments.get("source")
    endpoint = socket.socket(family, kind)
    try:
        if device is not None:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if source is not None:
            endpoint.bind((source, 0))
    except OSError as fault:
        sys.exit(f"cannot measure from {device or source}: {system_error_text(fault)}")
    return endpoint


def connect(addresses: list[Address], deadline: Deadline, arguments: Arguments) -> socket.socket:
    """Connect to the first address that accepts; each may use its share of the time left.

    Arguments: ``device``, ``source`` (see :func:`endpoint_of`).

    :raises TargetUnreachable: none accepts; the reason is that of the last one.
    """
    reason = TargetUnreachable("there is no address")
    for at, (family, address) in enumerate(addresses):
        waited_for = f"{place(address)} did not answer"
        share_s = deadline.left(waited_for) / (len(addresses) - at)
        try:
            return _connect_to(family, address, share_s, arguments)
        except TimeoutError:
            reason = deadline.over(waited_for)
        except OSError as fault:
            reason = TargetUnreachable(f"{place(address)}: {system_error_text(fault)}")
    raise reason


def _connect_to(
    family: int, address: SocketAddress, timeout_s: float, arguments: Arguments
) -> socket.socket:
    endpoint = endpoint_of(family, socket.SOCK_STREAM, arguments)
    try:
        endpoint.settimeout(timeout_s)
        endpoint.connect(address)
        # Otherwise a request after TLS's last message waits until that has been acknowledged.
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        endpoint.close()
        raise
    return endpoint


def judging_context(protocols: Sequence[str] = (), *, verify: bool = True) -> ssl.SSLContext:
    """Return a client's TLS settings that judge a certificate alike on all hosts.

    It offers these protocols (ALPN). Without ``verify`` any certificate will do.

    From Python 3.13 on a default context also refuses chains that lack what RFC 5280 asks of
    authorities, as many private ones do; browsers and OpenSSL do not.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if protocols:
        context.set_alpn_protocols([*protocols])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secure(
    context: ssl.SSLContext, endpoint: socket.socket, server_name: str, deadline: Deadline
) -> ssl.SSLSocket:
    """Return the connection with TLS on it.

    :raises Distrusted: the certificate is not what the context requires.
    :raises TargetUnreachable: the handshake failed, or took too long.
    """
    waited_for = "the TLS handshake was not over"
    endpoint.settimeout(deadline.left(waited_for))
    try:
        return context.wrap_socket(endpoint, server_hostname=server_name)
    except ssl.SSLCertVerificationError as fault:
        raise Distrusted(fault.verify_message) from None
    except TimeoutError:
        raise deadline.over(waited_for) from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
        raise TargetUnreachable("the connection was closed during the TLS handshake") from None
    except ssl.SSLError as fault:
        reason = (fault.reason or str(fault)).replace("_", " ").lower()
        raise TargetUnreachable(f"no agreement on TLS: {reason}") from None
    except OSError as fault:
        raise TargetUnreachable(f"TLS: {system_error_text(fault)}") from None
    except ValueError as fault:  # a name that cannot be sent
        raise TargetUnreachable(f"TLS: {fault}") from None
