"""DNS questions by our own program, with the library dnspython. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, ForeignText
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, checking_program, result_of
from node.plugins.reading import document_of
from node.plugins.tests.dns import DnsRecord, DnsResult, DnsSpec

_PATH = "/dns-query"
_LOOK_UP = 2 * SECOND
"""Time for the name service, in case the server is a name."""


class _QueryOutput(Document):
    server: ForeignText | None = None
    tries: CountField
    time_ns: CountField | None = None
    total_ns: CountField
    rcode: ForeignText | None = None
    answers: Annotated[tuple[DnsRecord, ...], Field(max_length=100)] = ()
    authoritative: bool | None = None
    truncated: bool | None = None
    authenticated: bool | None = None
    recursion_available: bool | None = None
    failure: ForeignText | None = None


class DnspythonTool(ClientTool):
    """Our own DNS client."""

    name = "dnspython"
    tests: tuple[str, ...] = ("dns",)
    binds = EITHER
    checks_targets = True

    def duration(self, spec: DnsSpec) -> int:
        """Return set-up, resolving the server, all tries and wrap-up, in microseconds."""
        return AROUND + _LOOK_UP + spec.tries * spec.timeout

    def command(self, part: PartContext) -> Command:
        """Return our DNS client."""
        spec: DnsSpec = part.spec
        server = spec.server
        arguments = {
            "name": spec.name,
            "type": spec.type,
            "server": None if server is None else part.addresses.get(server, server),
            "port": spec.server_port,
            **source_arguments(part),
            "protocol": spec.protocol,
            "server_name": spec.server_name or server,
            "verify": spec.verify,
            "path": spec.path or _PATH,
            "agent": part.agent,
            "recurse": spec.recurse,
            "dnssec": spec.dnssec,
            "tries": spec.tries,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
            "lookup_ns": _LOOK_UP * MICROSECOND_NS,
            "first_ns": part.starts * MICROSECOND_NS,
        }
        return checking_program("dns_query.py", arguments, part.rules, libraries=True)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the answer; a missing answer is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        query = document_of(output, "dnspython", _QueryOutput)
        if (query.failure is None) != (query.time_ns is not None and query.rcode is not None):
            raise ToolOutputError("dnspython reports both an answer and a failure, or neither")
        if query.tries > part.spec.tries:
            raise ToolOutputError(f"dnspython reports {query.tries} tries of {part.spec.tries}")
        return result_of(DnsResult, query)


TOOL = DnspythonTool()
