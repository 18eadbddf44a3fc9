"""TCP connections by our own program. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, ForeignText
from node.plugins.figures import delay_figures, milliseconds, share
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, checking_program, result_of
from node.plugins.reading import document_of
from node.plugins.tests.tcp import TcpResult, TcpSpec


class _ConnectorOutput(Document):
    address: ForeignText | None = None
    name_ns: CountField | None = None
    connected: tuple[tuple[CountField, CountField], ...] = ()
    failures: Annotated[tuple[tuple[ForeignText, CountField], ...], Field(max_length=20)] = ()
    banner: ForeignText | None = None
    banner_ns: CountField | None = None
    failure: ForeignText | None = None


class ConnectTool(ClientTool):
    """Our own TCP client."""

    name = "connect"
    tests: tuple[str, ...] = ("tcp",)
    binds = EITHER
    checks_targets = True

    def duration(self, spec: TcpSpec) -> int:
        """Return resolving, all attempts, the last timeout, banner and wrap-up, in microseconds."""
        waits = 3 if spec.banner else 2
        return AROUND + (spec.count - 1) * spec.interval + waits * spec.timeout

    def command(self, part: PartContext) -> Command:
        """Return our TCP client."""
        spec: TcpSpec = part.spec
        arguments = {
            "host": part.addresses.get(spec.dest, spec.dest),
            "port": spec.port,
            **source_arguments(part),
            "count": spec.count,
            "interval_ns": spec.interval * MICROSECOND_NS,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
            "banner": spec.banner,
            "first_ns": part.starts * MICROSECOND_NS,
        }
        return checking_program("tcp_connect.py", arguments, part.rules)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read times and failures; a run without a connection is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        document = document_of(output, "connect", _ConnectorOutput)
        spec: TcpSpec = part.spec
        attempts = len(document.connected) + sum(count for _, count in document.failures)
        if attempts != (0 if document.failure is not None else spec.count):
            raise ToolOutputError(f"connect reports {attempts} attempts of {spec.count}")
        return result_of(
            TcpResult,
            document,
            attempts=attempts,
            connected=len(document.connected),
            loss=share(attempts - len(document.connected), attempts),
            connect_ms=delay_figures([milliseconds(delay) for _, delay in document.connected]),
            failures=[{"reason": why, "count": many} for why, many in document.failures],
        )


TOOL = ConnectTool()
