"""Asks one DNS question, again if there is no answer, and tells what came and how long it took.

``dns_query.py '{"name": "a.example", "type": "A", "servers": ["192.0.2.53"], …}'``, see
:func:`measure`. One question to one server at a time: this is no resolver.
"""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import socket
import sys
import time
from pathlib import Path
from typing import Any

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

if __name__ == "__main__":  # started by its path and in isolated mode: only libraries are there
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

_RESOLVERS = Path("/etc/resolv.conf")
_SERVERS_MAX = 3  # as many as the C library asks
_ANSWERS_MAX = 100
_PAYLOAD_BYTES = 1232  # what passes every path unfragmented; the advice of DNS flag day 2020
_SECOND_NS = 1_000_000_000


def resolvers(text: str) -> list[str]:
    """The servers that a ``resolv.conf`` names; without any, this host itself (resolv.conf(5))."""
    lines = [line.split() for line in text.splitlines()]
    named = [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1]
    return named[:_SERVERS_MAX] or ["127.0.0.1"]


class DnsQuestion:
    """What is asked, whom, and what came of it."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Nothing is sent yet."""
        self._arguments = arguments
        self._told: dict[str, Any] = {"tries": 0}

    def run(self) -> dict[str, Any]:
        """Ask until there is an answer, or all tries are used up."""
        began_ns = time.monotonic_ns()
        try:
            servers = self._servers()
            message = _message(self._arguments)
            self._try(servers, message)
        except target.TargetUnreachable as reason:
            self._told["failure"] = str(reason)
        self._told["total_ns"] = time.monotonic_ns() - began_ns
        return self._told

    def _servers(self) -> list[target.Address]:
        wanted = self._arguments
        names = [wanted["server"]]
        if wanted["server"] is None:
            with contextlib.suppress(OSError):
                names = resolvers(_RESOLVERS.read_text(errors="replace"))
        deadline = target.Deadline(wanted["lookup_ns"])
        found: list[target.Address] = []
        refused: target.TargetUnreachable | None = None
        for name in names:
            try:
                found += target.look_up(name, wanted["port"], wanted["ip_version"], deadline)[:1]
            except target.TargetUnreachable as reason:
                refused = reason
        if not found and refused is not None:
            raise refused
        return found

    def _try(self, servers: list[target.Address], message: dns.message.QueryMessage) -> None:
        reason = target.TargetUnreachable("nobody was asked")
        for number in range(self._arguments["tries"]):
            family, address = servers[number % len(servers)]
            self._told |= {"tries": number + 1, "server": address[0]}
            asked_ns = time.monotonic_ns()
            try:
                answer = self._ask(family, address, message)
            except (dns.exception.Timeout, TimeoutError):
                waited_s = self._arguments["timeout_ns"] / _SECOND_NS
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
                    f"{target.place(address)} sent what is no answer: {type(fault).__name__}"
                )
            else:
                self._told["time_ns"] = time.monotonic_ns() - asked_ns
                self._told |= _told(answer)
                return
        raise reason

    def _ask(
        self, family: int, address: stamp_endpoint.SocketAddress, message: dns.message.QueryMessage
    ) -> dns.message.Message:
        timeout_s = self._arguments["timeout_ns"] / _SECOND_NS
        until_s = time.monotonic() + timeout_s
        over_tcp = self._arguments["protocol"] == "tcp"
        kind = socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM
        with target.endpoint_of(family, kind, self._arguments) as endpoint:
            endpoint.settimeout(timeout_s)
            # UDP too: only so is it told that nothing listens there, and only so others are not.
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


def _load(kind: str) -> None:
    """Load in advance what reading an answer needs: the library would while its time is taken."""
    number = dns.rdatatype.from_text(kind)
    dns.rdata.get_rdata_class(dns.rdataclass.IN, number)  # type: ignore[no-untyped-call]
    dns.message.from_wire(dns.message.make_query(".", kind, use_edns=0).to_wire())


def _message(arguments: stamp_endpoint.Arguments) -> dns.message.QueryMessage:
    """The question.

    :raises target.Unreached: the name cannot be asked for.
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
        raise target.TargetUnreachable(f"{name} cannot be asked for: {fault}") from None
    if not arguments["recurse"]:
        message.flags &= ~dns.flags.RD
    return message


def _told(answer: dns.message.Message) -> dict[str, Any]:
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
    """As in a zone file; texts in one piece and without quotes, as people think of them."""
    if rdata.rdtype == dns.rdatatype.TXT:
        return b"".join(rdata.strings).decode(errors="replace")
    return str(rdata.to_text())


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """One question.

    Arguments: ``name``, ``type``, ``server`` (an address or a name; null: this host's resolvers in
    turn), ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (from where, or null),
    ``protocol`` (udp or tcp), ``recurse``,
    ``dnssec`` (whether to ask for signatures), ``tries``, ``timeout_ns`` (of each try),
    ``lookup_ns`` (for the server's name), ``first_ns`` (the instant to begin).
    Result: the server asked last, tries, nanoseconds of the one that was answered and in all, the
    code, the flags and the records of the answer; ``failure`` if there was none.
    """
    _load(arguments["type"])
    stamp_endpoint.wait_until(arguments["first_ns"])
    return DnsQuestion(arguments).run()


if __name__ == "__main__":
    gc.disable()  # nothing here makes many cycles, and a collection would delay an answer
    sys.exit(stamp_endpoint.run(measure))
