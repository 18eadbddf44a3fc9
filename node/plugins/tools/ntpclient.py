"""Packets to NTP servers by our own program. Pure.

Why no library: those that there are were last released years ago, ask once, from no chosen address,
and do not check that an answer belongs to the question.
"""

from __future__ import annotations

from statistics import median
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, Finite, ForeignText
from node.plugins.figures import delay_figures, milliseconds, share
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, ClockOutput, checking_program, measured_output
from node.plugins.tests.ntp import Leap, NtpResult, NtpSpec

_Nanoseconds = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_LEAPS: tuple[Leap, ...] = ("none", "insert", "delete", "unsynchronised")


class _ServerOutput(Document):
    """The server's clock, as its last answer says."""

    leap: Annotated[int, Field(ge=0, lt=len(_LEAPS))]
    stratum: Annotated[int, Field(ge=0, le=255)]
    reference: ForeignText
    root_delay_ns: _Nanoseconds
    root_dispersion_ns: CountField
    precision_ns: Finite


class _NtpOutput(Document):
    address: ForeignText | None = None
    sent: CountField = 0
    answers: Annotated[tuple[tuple[_Nanoseconds, _Nanoseconds], ...], Field(max_length=100)] = ()
    server: _ServerOutput | None = None
    kiss: ForeignText | None = None
    clock: ClockOutput
    failure: ForeignText | None = None


class NtpClientTool(ClientTool):
    """Our own NTP client."""

    name = "ntpclient"
    tests: tuple[str, ...] = ("ntp",)
    binds = EITHER
    checks_targets = True

    def duration(self, spec: NtpSpec) -> int:
        """Return resolving, all packets, the last timeout and wrap-up, in microseconds."""
        return AROUND + (spec.count - 1) * spec.interval + 2 * spec.timeout

    def command(self, part: PartContext) -> Command:
        """Return our NTP client."""
        spec: NtpSpec = part.spec
        arguments = {
            "host": part.addresses.get(spec.dest, spec.dest),
            "port": spec.port,
            **source_arguments(part),
            "count": spec.count,
            "interval_ns": spec.interval * MICROSECOND_NS,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
            "first_ns": part.starts * MICROSECOND_NS,
        }
        return checking_program("ntp_client.py", arguments, part.rules)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read offsets and round trips; a server that does not answer is a result as well.

        :raises ToolOutputError: the program crashed, or contradicts itself.
        """
        told = measured_output(output, "ntpclient", _NtpOutput)
        received = len(told.answers)
        if received > told.sent or told.sent > part.spec.count:
            raise ToolOutputError(
                f"ntpclient reports {received} answers to {told.sent} of {part.spec.count} packets"
            )
        if received and told.server is None:
            raise ToolOutputError("ntpclient reports answers, and not what they say")
        best = min(told.answers, key=lambda it: it[1], default=None)
        offsets = [milliseconds(offset) for offset, _ in told.answers]
        fields = {
            "address": told.address,
            "sent": told.sent,
            "received": received,
            "loss": share(told.sent - received, told.sent),
            "offset_ms": None if best is None else milliseconds(best[0]),
            "bound_ms": None if best is None else max(0.0, milliseconds(best[1])) / 2,
            "offset_median_ms": median(offsets) if offsets else None,
            "round_trip_ms": delay_figures([milliseconds(delay) for _, delay in told.answers]),
            "clock": told.clock.clock,
            "kiss": told.kiss,
            "failure": told.failure,
        }
        return NtpResult.model_validate(fields | _server_fields(told.server)).model_dump(
            mode="json"
        )


def _server_fields(server: _ServerOutput | None) -> dict[str, object]:
    """Return what a server says of its clock, in the units of results."""
    if server is None:
        names = ("stratum", "reference", "leap", "root_distance_ms", "precision_ms")
        return dict.fromkeys(names)
    distance_ns = server.root_dispersion_ns + max(0, server.root_delay_ns) // 2
    return {
        "stratum": server.stratum,
        "reference": server.reference,
        "leap": _LEAPS[server.leap],
        "root_distance_ms": milliseconds(distance_ns),
        "precision_ms": server.precision_ns / 1e6,
    }


TOOL = NtpClientTool()
