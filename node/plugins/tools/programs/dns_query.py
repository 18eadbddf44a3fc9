"""Sends one DNS query, retries it without an answer, and prints the answer and how long it took.

``dns_query.py '{"name": "a.example", "type": "A", "servers": ["192.0.2.53"], …}'``, see
:func:`measure`. One query to one server at a time: this is not a resolver.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.reversename
import dns.rrset

if __name__ == "__main__":  # started by its path and in isolated mode: only libraries can be found
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

if TYPE_CHECKING:
    from node.model.targets import TargetRules

_RESOLVERS = Path("/etc/resolv.conf")
_SERVERS_MAX = 3  # as many as the C library uses
_ANSWERS_MAX = 100
_PAYLOAD_BYTES = 1232  # fits every path unfragmented; recommended by DNS flag day 2020


def resolvers(text: str) -> list[str]:
    """Return the servers in a ``resolv.conf``; without any, this host itself (resolv.conf(5))."""
    lines = [line.split() for line in text.splitlines()]
    named = [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1]
    return named[:_SERVERS_MAX] or ["127.0.0.1"]


class DnsQuestion:
    """One query, its servers, and its result."""

    def __init__(
        self, arguments: stamp_endpoint.Arguments, rules: TargetRules | None = None
    ) -> None:
        """Store the arguments of :func:`measure`; nothing is sent yet."""
        self._arguments = arguments
        self._rules = rules
        self._result: dict[str, Any] = {"tries": 0}

    def run(self) -> dict[str, Any]:
        """Query until there is an answer, or all tries are used up."""
        began_ns = time.monotonic_ns()
        try:
            servers = self._servers()
            message = _message(self._arguments)
            self._try(servers, message)
        except target.TargetUnreachable as reason:
            self._result["failure"] = str(reason)
        self._result["total_ns"] = time.monotonic_ns() - began_ns
        return self._result

    def _servers(self) -> list[target.Address]:
        arguments = self._arguments
        names, rules = [arguments["server"]], self._rules
        if arguments["server"] is None:
            rules = None  # the owner's own choice; they are often on loopback
            with contextlib.suppress(OSError):
                names = resolvers(_RESOLVERS.read_text(errors="replace"))
        deadline = target.Deadline(arguments["lookup_ns"])
        servers: list[target.Address] = []
        refused: target.TargetUnreachable | None = None
        for name in names:
            try:
                addresses = target.look_up(
                    name, arguments["port"], arguments["ip_version"], deadline, rules
                )
                servers += addresses[:1]
            except target.TargetUnreachable as reason:
                refused = reason
        if not servers and refused is not None:
            raise refused
        return servers

    def _try(self, servers: list[target.Address], message: dns.message.QueryMessage) -> None:
        reason = target.TargetUnreachable("no server was asked")
        for number in range(self._arguments["tries"]):
            family, address = servers[number % len(servers)]
            self._result |= {"tries": number + 1, "server": address[0]}
            asked_ns = time.monotonic_ns()
            try:
                answer = self._ask(family, address, message)
            except (dns.exception.Timeout, TimeoutError):
                waited_s = self._arguments["timeout_ns"] / stamp_endpoint.SECOND_NS
                reason = target.TargetUnreachable(
                    f"{target.place(address)} did not answer within {waited_s:g} s"
                )
            except OSError as fault:
                reason = target.TargetUnreachable(
                    f"{target.place(address)}: {target.system_error_text(fault)}"
                )
            except EOFError:
                reason = target.TargetUnreachable(f"{target.place(address)} closed the connection")
            except (dns.exception.DNSException, ValueError) as fault:
                reason = target.TargetUnreachable(
                    f"{target.place(address)} sent a malformed answer: {type(fault).__name__}"
                )
            else:
                self._result["time_ns"] = time.monotonic_ns() - asked_ns
                self._result |= _parse_answer(answer)
                return
        raise reason

    def _ask(
        self, family: int, address: stamp_endpoint.SocketAddress, message: dns.message.QueryMessage
    ) -> dns.message.Message:
        timeout_s = self._arguments["timeout_ns"] / stamp_endpoint.SECOND_NS
        until_s = time.monotonic() + timeout_s
        over_tcp = self._arguments["protocol"] == "tcp"
        kind = socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM
        with target.endpoint_of(family, kind, self._arguments) as endpoint:
            endpoint.settimeout(timeout_s)
            # Also for UDP: this reports ICMP errors, and filters packets of other senders.
            endpoint.connect(address)
            endpoint.settimeout(0)
            left_s = max(0.0, until_s - time.monotonic())
            where, port = address[0], address[1]
            if over_tcp:
                return dns.query.tcp(message, where, left_s, port, sock=endpoint)
            return dns.query.udp(
                message, where, left_s, port, sock=endpoint, ignore_unexpected=True,
                ignore_errors=True,
            )  # fmt: skip


def _load_parsers(kind: str) -> None:
    """Load in advance what parsing needs: the library would load it while the time is measured."""
    number = dns.rdatatype.from_text(kind)
    dns.rdata.get_rdata_class(dns.rdataclass.IN, number)  # type: ignore[no-untyped-call]
    dns.message.from_wire(dns.message.make_query(".", kind, use_edns=0).to_wire())


def _message(arguments: stamp_endpoint.Arguments) -> dns.message.QueryMessage:
    """Return the query.

    :raises target.TargetUnreachable: the name cannot be queried.
    """
    name, kind = arguments["name"], arguments["type"]
    try:
        if kind == "PTR":
            with contextlib.suppress(ValueError):
                name = dns.reversename.from_address(str(ipaddress.ip_address(name)))
        message = dns.message.make_query(
            name, kind, use_edns=0, payload=_PAYLOAD_BYTES, want_dnssec=arguments["dnssec"]
        )
    except (dns.exception.DNSException, ValueError) as fault:
        raise target.TargetUnreachable(f"{name} cannot be queried: {fault}") from None
    if not arguments["recurse"]:
        message.flags &= ~dns.flags.RD
    return message


def _parse_answer(answer: dns.message.Message) -> dict[str, Any]:
    answers = [each for rrset in answer.answer for each in _records(rrset)]
    return {
        "rcode": dns.rcode.to_text(answer.rcode()),
        "answers": answers[:_ANSWERS_MAX],
        "authoritative": bool(answer.flags & dns.flags.AA),
        "truncated": bool(answer.flags & dns.flags.TC),
        "authenticated": bool(answer.flags & dns.flags.AD),
        "recursion_available": bool(answer.flags & dns.flags.RA),
    }


def _records(rrset: dns.rrset.RRset) -> list[dict[str, Any]]:
    kind = dns.rdatatype.to_text(rrset.rdtype)
    return [
        {"name": rrset.name.to_text(), "type": kind, "ttl_s": rrset.ttl, "value": _value(each)}
        for each in rrset
    ]


def _value(rdata: Any) -> str:
    """Return a value as in a zone file; a TXT as one text without quotes, as people expect it."""
    if rdata.rdtype == dns.rdatatype.TXT:
        return b"".join(rdata.strings).decode(errors="replace")
    return str(rdata.to_text())


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one query.

    Arguments: ``name``, ``type``, ``server`` (an address or a name; null: this host's resolvers in
    turn), ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (the address to send
    from, or null), ``protocol`` (udp or tcp), ``recurse``, ``dnssec`` (whether to request
    signatures), ``tries``, ``timeout_ns`` (of each try), ``lookup_ns`` (for the server's name),
    ``first_ns`` (the instant to begin), ``private`` (see :class:`.target.Private`).
    Result: the server asked last, tries, nanoseconds of the answered try and in all, the code, the
    flags and the records of the answer; ``failure`` if there was none.
    """
    _load_parsers(arguments["type"])
    rules = target.Private(arguments).rules
    stamp_endpoint.wait_until(arguments["first_ns"])
    return DnsQuestion(arguments, rules).run()


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
