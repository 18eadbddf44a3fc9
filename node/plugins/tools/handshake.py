"""TLS connections by our own program, with Python's own library. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import DAY, SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, ForeignText
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, checking_program, in_milliseconds, result_of
from node.plugins.reading import document_of
from node.plugins.tests.tls import Certificate, TlsPhases, TlsResult, TlsSpec


class _HandshakeOutput(Document):
    address: ForeignText | None = None
    name_ns: CountField | None = None
    connect_ns: CountField | None = None
    handshake_ns: CountField | None = None
    version: ForeignText | None = None
    cipher: ForeignText | None = None
    cipher_bits: CountField | None = None
    alpn: ForeignText | None = None
    verified: bool | None = None
    distrust: ForeignText | None = None
    name_matches: bool | None = None
    chain: Annotated[tuple[Certificate, ...], Field(max_length=10)] = ()
    ends_s: Annotated[int, Field(ge=-(10**12), le=10**12)] | None = None
    failure: ForeignText | None = None


class HandshakeTool(ClientTool):
    """Our own TLS client."""

    name = "handshake"
    tests: tuple[str, ...] = ("tls",)
    binds = EITHER
    checks_targets = True

    def duration(self, spec: TlsSpec) -> int:
        """Return set-up, the spec's timeout and wrap-up, in microseconds."""
        return AROUND + spec.timeout

    def command(self, part: PartContext) -> Command:
        """Return our TLS client."""
        spec: TlsSpec = part.spec
        arguments = {
            "host": part.addresses.get(spec.dest, spec.dest),
            "port": spec.port,
            **source_arguments(part),
            "server_name": spec.server_name or spec.dest,
            "alpn": spec.alpn,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
            "first_ns": part.starts * MICROSECOND_NS,
        }
        return checking_program("tls_handshake.py", arguments, part.rules, libraries=True)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read times, negotiated parameters and certificates; a failure is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        handshake = document_of(output, "handshake", _HandshakeOutput)
        if handshake.failure is None and (
            handshake.handshake_ns is None or handshake.verified is None
        ):
            raise ToolOutputError("handshake reports neither a handshake nor a failure")
        left = None if handshake.ends_s is None else handshake.ends_s * SECOND - part.starts
        phases = in_milliseconds(
            {phase: getattr(handshake, f"{phase}_ns") for phase in TlsPhases.model_fields}
        )
        days_left = None if left is None else round(left / DAY, 2)
        return result_of(TlsResult, handshake, phases_ms=phases, days_left=days_left)


TOOL = HandshakeTool()
