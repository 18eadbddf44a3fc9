"""HTTP/1.1 by our own program. Pure."""

from __future__ import annotations

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, ForeignText, texts
from node.plugins.figures import milliseconds
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import checking_program
from node.plugins.reading import document_of
from node.plugins.tests.http import HttpPhases, HttpResult, HttpSpec

_MICROSECOND_NS = 1000
_SET_UP = SECOND // 2
"""The delay of programs that start together on a busy host."""
_WRAP_UP = SECOND // 2  # the launcher ends what still runs 250 ms before the booked end


class _PhasesOutput(Document):
    name: CountField | None = None
    connect: CountField | None = None
    tls: CountField | None = None
    first_byte: CountField | None = None
    transfer: CountField | None = None


class _FetchOutput(Document):
    url: ForeignText
    address: ForeignText | None = None
    status: CountField | None = None
    protocol: ForeignText | None = None
    phases_ns: _PhasesOutput
    total_ns: CountField
    redirects: CountField
    redirect_ns: CountField
    body_bytes: CountField | None = Field(default=None, alias="bytes")
    complete: bool | None = None
    matched: bool | None = None
    failure: ForeignText | None = None


class FetchTool(ClientTool):
    """Our own HTTP client."""

    name = "fetch"
    tests = ("http",)
    preference = 1
    binds = EITHER
    checks_targets = True

    def duration(self, spec: HttpSpec) -> int:
        """Return set-up, the spec's timeout and wrap-up, in microseconds."""
        return _SET_UP + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our HTTP client; headers go to standard input, hidden from lists of processes."""
        spec: HttpSpec = part.spec
        arguments = {
            "url": spec.url,
            "address": part.addresses.get(spec.host, spec.host),
            "method": spec.method,
            **source_arguments(part),
            "redirects": spec.redirects_followed,
            "timeout_ns": spec.timeout * _MICROSECOND_NS,
            "bytes_max": spec.bytes_max,
            "text": spec.text,
            "verify": spec.verify,
            "agent": part.agent,
            "first_ns": part.starts * _MICROSECOND_NS,
        }
        private: dict[str, object] = {}
        if spec.headers:
            private["headers"] = texts(spec.headers)
        if spec.redirects_followed and part.not_asked is not None:
            private["not_asked"] = [str(network) for network in part.not_asked]
        return checking_program("http_fetch.py", arguments, part.rules, private)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the phases and the answer; a missing answer is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        document = document_of(output, "fetch", _FetchOutput)
        if document.failure is None and document.status is None:
            raise ToolOutputError("fetch reports neither an answer nor a failure")
        if (document.body_bytes or 0) > part.spec.bytes_max:
            raise ToolOutputError(f"fetch reports {document.body_bytes} bytes, too many")
        phases = document.phases_ns.model_dump()
        result = HttpResult(
            url=document.url,
            address=document.address,
            status=document.status,
            protocol=document.protocol,
            phases_ms=HttpPhases.model_validate(
                {
                    phase: None if spent_ns is None else milliseconds(spent_ns)
                    for phase, spent_ns in phases.items()
                }
            ),
            total_ms=milliseconds(document.total_ns),
            redirects=document.redirects,
            redirect_ms=milliseconds(document.redirect_ns),
            body_bytes=document.body_bytes,
            complete=document.complete,
            matched=document.matched,
            failure=document.failure,
        )
        return result.model_dump(mode="json")


TOOL = FetchTool()
