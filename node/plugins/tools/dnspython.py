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
from node.plugins.figures import milliseconds
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import checking_program
from node.plugins.reading import document_of
from node.plugins.tests.dns import DnsRecord, DnsResult, DnsSpec

_MICROSECOND_NS = 1000
_SET_UP = SECOND // 2
"""The delay of programs that start together on a busy host."""
_LOOK_UP = 2 * SECOND
"""Time for the name service, in case the server is a name."""
_WRAP_UP = SECOND // 2  # the launcher ends what still runs 250 ms before the booked end


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
    tests = ("dns",)
    binds = EITHER
    checks_targets = True

    def duration(self, spec: DnsSpec) -> int:
        """Return set-up, resolving the server, all tries and wrap-up, in microseconds."""
        return _SET_UP + _LOOK_UP + spec.tries * spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our DNS client."""
        spec: DnsSpec = part.spec
        server = spec.server
        arguments = {
            "name": spec.name,
            "type": spec.type,
            "server": None if server is None else part.addresses.get(server, server),
            "port": spec.port,
            **source_arguments(part),
            "protocol": spec.protocol,
            "recurse": spec.recurse,
            "dnssec": spec.dnssec,
            "tries": spec.tries,
            "timeout_ns": spec.timeout * _MICROSECOND_NS,
            "lookup_ns": _LOOK_UP * _MICROSECOND_NS,
            "first_ns": part.starts * _MICROSECOND_NS,
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
        result = DnsResult(
            server=query.server,
            rcode=query.rcode,
            time_ms=None if query.time_ns is None else milliseconds(query.time_ns),
            total_ms=milliseconds(query.total_ns),
            tries=query.tries,
            answers=query.answers,
            authoritative=query.authoritative,
            truncated=query.truncated,
            authenticated=query.authenticated,
            recursion_available=query.recursion_available,
            failure=query.failure,
        )
        return result.model_dump(mode="json")


TOOL = DnspythonTool()
