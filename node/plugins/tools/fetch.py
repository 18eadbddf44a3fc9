"""HTTP/1.1 by our own program. Pure."""

from __future__ import annotations

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, ForeignText, texts
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, checking_program, in_milliseconds, result_of
from node.plugins.reading import document_of
from node.plugins.tests.http import HttpResult, HttpSpec


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
    tests: tuple[str, ...] = ("http",)
    preference = 1
    binds = EITHER
    checks_targets = True

    def duration(self, spec: HttpSpec) -> int:
        """Return set-up, the spec's timeout and wrap-up, in microseconds."""
        return AROUND + spec.timeout

    def command(self, part: PartContext) -> Command:
        """Return our HTTP client; headers go to standard input, hidden from lists of processes."""
        spec: HttpSpec = part.spec
        arguments = {
            "url": spec.url,
            "address": part.addresses.get(spec.host, spec.host),
            "method": spec.method,
            **source_arguments(part),
            "redirects": spec.redirects_followed,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
            "bytes_max": spec.bytes_max,
            "text": spec.text,
            "verify": spec.verify,
            "agent": part.agent,
            "first_ns": part.starts * MICROSECOND_NS,
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
        phases = in_milliseconds(document.phases_ns.model_dump())
        return result_of(HttpResult, document, phases_ms=phases)


TOOL = FetchTool()
