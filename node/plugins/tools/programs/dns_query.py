"""Sends one DNS query, retries it without an answer, and prints the answer and how long it took.

``dns_query.py '{"name": "a.example", "type": "A", "servers": ["192.0.2.53"], …}'``, see
:func:`measure`. One query to one server at a time: this is not a resolver.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
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
_HTTPS = 443
_ANSWER = "there was no answer"
_PAYLOAD_BYTES = 1232  # fits every path unfragmented; recommended by DNS flag day 2020


_FAULTS = (OSError, EOFError, ValueError, dns.exception.DNSException, target.TargetUnreachable)


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
        self._context = _context(arguments)
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
            except target.Distrusted as fault:
                raise target.TargetUnreachable(
                    f"{target.place(address)}: the certificate is not trusted: {fault}"
                ) from None
            except _FAULTS as fault:
                reason = self._reason(fault, address)
            else:
                self._result["time_ns"] = time.monotonic_ns() - asked_ns
                self._result |= _parse_answer(answer)
                return
        raise reason

    def _reason(
        self, fault: Exception, address: stamp_endpoint.SocketAddress
    ) -> target.TargetUnreachable:
        """Return why a try has no answer."""
        place = target.place(address)
        match fault:
            case dns.exception.Timeout() | TimeoutError():
                waited_s = self._arguments["timeout_ns"] / stamp_endpoint.SECOND_NS
                text = f"{place} did not answer within {waited_s:g} s"
            case target.TargetUnreachable():
                text = f"{place}: {fault}"
            case OSError():
                text = f"{place}: {target.system_error_text(fault)}"
            case EOFError():
                text = f"{place} closed the connection"
            case _:
                text = f"{place} sent a malformed answer: {type(fault).__name__}"
        return target.TargetUnreachable(text)

    def _ask(
        self, family: int, address: stamp_endpoint.SocketAddress, message: dns.message.QueryMessage
    ) -> dns.message.Message:
        deadline = target.Deadline(self._arguments["timeout_ns"])
        kind = socket.SOCK_DGRAM if self._arguments["protocol"] == "udp" else socket.SOCK_STREAM
        with contextlib.ExitStack() as opened:
            endpoint = opened.enter_context(target.endpoint_of(family, kind, self._arguments))
            endpoint.settimeout(deadline.left(_ANSWER))
            # Also for UDP: this reports ICMP errors, and filters packets of other senders.
            endpoint.connect(address)
            if self._context is not None:
                # Otherwise the query waits until TLS's last message has been acknowledged.
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                name = self._arguments["server_name"]
                secured = target.secure(self._context, endpoint, name, deadline)
                endpoint = opened.enter_context(secured)
            return self._exchange(endpoint, address, message, deadline)

    def _exchange(
        self,
        endpoint: socket.socket,
        address: stamp_endpoint.SocketAddress,
        message: dns.message.QueryMessage,
        deadline: target.Deadline,
    ) -> dns.message.Message:
        """Send the query on a connected socket, and return the answer."""
        if isinstance(endpoint, ssl.SSLSocket) and self._arguments["protocol"] == "https":
            message.id = 0  # so that caches on the way know it again (RFC 8484, section 4.1)
            name, path, agent = (self._arguments[it] for it in ("server_name", "path", "agent"))
            https = _load_https()
            resource = https.Resource(_authority(name, address[1]), path, agent)
            octets = https.exchange(endpoint, resource, message.to_wire(), deadline)
            answer = dns.message.from_wire(octets)
            if not message.is_response(answer):
                raise dns.query.BadResponse
            return answer
        left_s, where, port = deadline.left(_ANSWER), address[0], address[1]
        endpoint.settimeout(0)
        if endpoint.type == socket.SOCK_STREAM:
            return dns.query.tcp(message, where, left_s, port, sock=endpoint)
        return dns.query.udp(
            message, where, left_s, port, sock=endpoint, ignore_unexpected=True, ignore_errors=True
        )


def _context(arguments: stamp_endpoint.Arguments) -> ssl.SSLContext | None:
    """Return the settings of TLS; None over UDP and TCP."""
    protocol = arguments["protocol"]
    if protocol not in {"tls", "https"}:
        return None
    above = ["dot"] if protocol == "tls" else _load_https().PROTOCOLS
    return target.judging_context(above, verify=arguments["verify"])


def _load_https() -> Any:
    """Return the module that asks over HTTPS. Loading it takes 40 ms, which others need not."""
    from node.plugins.tools.programs import dns_over_https  # noqa: PLC0415 - see above

    return dns_over_https


def _authority(host: str, port: int) -> str:
    """Return a host as in a URL: with its port, unless that is the usual one."""
    named = stamp_endpoint.host_and_port(host, port)
    return named.removesuffix(f":{_HTTPS}") if port == _HTTPS else named


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
    from, or null), ``protocol`` (udp, tcp, tls, or https), ``server_name`` (in the certificate),
    ``verify`` (whether it must be trusted), ``path`` and ``agent`` (of https), ``recurse``,
    ``dnssec`` (whether to request signatures), ``tries``, ``timeout_ns`` (of each try),
    ``lookup_ns`` (for the server's name), ``first_ns`` (the instant to begin), ``private`` (see
    :class:`.target.Private`).
    Result: the server asked last, tries, nanoseconds of the answered try and in all, the code, the
    flags and the records of the answer; ``failure`` if there was none.
    """
    _load_parsers(arguments["type"])
    rules = target.Private(arguments).rules
    stamp_endpoint.wait_until(arguments["first_ns"])
    return DnsQuestion(arguments, rules).run()


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
