"""One text over TCP by our own programs. Pure.

The programs are in ``programs/``; they are started ahead of time and wait for their instant.
"""

from __future__ import annotations

from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import MICROSECOND_NS, measured_output, own_program, result_of
from node.plugins.tests.simplestream import (
    ReceivingPart,
    SendingPart,
    SimplestreamSpec,
    StreamText,
)

_SENDER, _RECEIVER = 0, 1
_LEAD_IN = 200 * MILLISECOND
"""The sender begins this long after the start: the receiver's clock may be that late."""
_WRAP_UP = SECOND // 2
"""Time for the output; the launcher ends what still runs 250 ms before the booked end."""


class _SenderOutput(Document):
    sent: StreamText
    dawdled_ns: CountField


class _ReceiverOutput(Document):
    received: StreamText
    elapsed_ns: CountField


class SimplestreamerTool(OwnTool):
    """Our own sender and receiver."""

    name = "simplestreamer"
    tests: tuple[str, ...] = ("simplestream",)
    listener = _RECEIVER
    binds = EITHER

    def duration(self, spec: SimplestreamSpec) -> int:
        """Return lead-in, dawdling, the time to try, and wrap-up, in microseconds."""
        return _LEAD_IN + spec.dawdle + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our sender at source, our receiver at dest."""
        spec: SimplestreamSpec = part.spec
        party = part.parties[part.participant]
        shared: dict[str, object] = {
            "address": part.parties[_RECEIVER].address,
            "port": spec.port or int(part.parties[_RECEIVER].data["port"]),
            "ip_version": spec.ip_version,
            "device": party.device,
            "begin_ns": part.starts * MICROSECOND_NS,
            "deadline_ns": (part.ends - _WRAP_UP) * MICROSECOND_NS,
        }
        if part.participant == _RECEIVER:
            return own_program("stream_receiver.py", shared)
        sending = {
            "source": party.address,
            "text": spec.text,
            "dawdle_ns": spec.dawdle * MICROSECOND_NS,
            "begin_ns": (part.starts + _LEAD_IN) * MICROSECOND_NS,
        }
        return own_program("stream_sender.py", shared | sending)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read what was sent, or what has arrived.

        :raises ToolOutputError: nobody connected, or the program says what else went wrong.
        """
        if part.participant == _SENDER:
            return result_of(SendingPart, measured_output(output, "simplestreamer", _SenderOutput))
        return result_of(ReceivingPart, measured_output(output, "simplestreamer", _ReceiverOutput))


TOOL = SimplestreamerTool()
