"""One-way delay to and from a server of OWAMP (RFC 4656) that is no node: owampd, say. Pure.

Our own client speaks what perfSONAR's owping speaks (:mod:`node.plugins.owamp`).
"""

from __future__ import annotations

from node.model.errors import ToolOutputError
from node.model.reason import Reason
from node.model.times import SECOND
from node.plugins import owamp
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.oneway import SourcePart
from node.plugins.reading import failure, text_of
from node.plugins.tests.latency import LatencySpec

_WRAP_UP = SECOND


class OwpingTool(owamp.OwampTool):
    """Our own client of OWAMP, once."""

    name = "owping"
    tests: tuple[str, ...] = ("latency",)

    def duration(self, spec: LatencySpec) -> int:
        """Return opening, all packets, the last one's timeout, closing and wrap-up (µs)."""
        packets = spec.count * spec.interval + spec.timeout
        return owamp.OPENING + packets + owamp.CLOSING + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our client."""
        return owamp.command(part, part.starts + owamp.OPENING, part.spec.count, 1)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the figures of both ways.

        :raises ToolOutputError: the server refused, or did not answer; or the output is wrong.
        """
        record = text_of(output, owamp.PROGRAM).partition("\x1e")[2].partition("\n")[0]
        if not record:
            raise failure(output, owamp.PROGRAM, "it printed no figures")
        _, told = owamp.read_record(part.spec, record.encode(), part.spec.count)
        if isinstance(told, Reason):
            raise ToolOutputError(told)
        if not part.spec.histogram:
            told = told.model_copy(update={"histogram": None})
        return SourcePart.model_validate(told.model_dump()).model_dump(mode="json")


TOOL = OwpingTool()
