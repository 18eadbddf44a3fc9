"""DNS questions by our own program, with the library dnspython. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.fields import CountField, ForeignText
from node.plugins.figures import milliseconds
from node.plugins.ownprograms import own_program
from node.plugins.reading import document_of
from node.plugins.single_participant import LoneTool
from node.plugins.tests.dns import DnsRecord, DnsResult, DnsSpec

_MICROSECOND_NS = 1000
_SET_UP = SECOND // 2
"""Programs that start together on a busy host may be so late."""
_LOOK_UP = 2 * SECOND
"""For the name service, should the server be a name."""
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


class DnspythonTool(LoneTool):
    """Our own asker of questions."""

    name = "dnspython"
    tests: tuple[str, ...] = ("dns",)
    preference = 0
    binds = EITHER
    requirement: Requirement | None = None
    tried: tuple[str, ...] = ()

    def duration(self, spec: DnsSpec) -> int:
        """Set-up, the server's name, all tries and wrap-up, in microseconds."""
        return _SET_UP + _LOOK_UP + spec.tries * spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Our asker of questions."""
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
        return own_program("dns_query.py", arguments, libraries=True)

    def read(self, part: PartContext, output: Output) -> Result:
        """The answer; that there was none is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        told = document_of(output, "dnspython", _QueryOutput)
        if (told.failure is None) != (told.time_ns is not None and told.rcode is not None):
            raise ToolOutputError("dnspython tells neither of an answer nor of a failure, or both")
        if told.tries > part.spec.tries:
            raise ToolOutputError(f"dnspython tells of {told.tries} tries of {part.spec.tries}")
        result = DnsResult(
            server=told.server,
            rcode=told.rcode,
            time_ms=None if told.time_ns is None else milliseconds(told.time_ns),
            total_ms=milliseconds(told.total_ns),
            tries=told.tries,
            answers=told.answers,
            authoritative=told.authoritative,
            truncated=told.truncated,
            authenticated=told.authenticated,
            recursion_available=told.recursion_available,
            failure=told.failure,
        )
        return result.model_dump(mode="json")


TOOL = DnspythonTool()
