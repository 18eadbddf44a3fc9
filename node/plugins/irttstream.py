"""A stream by irtt, for :mod:`.tests.latencybg`: one server, and a client for each interval. Pure.

See ``tools/programs/irttbg_client.py`` and ``irttbg_server.py``. A client sends a few packets more
than are counted, so that answers to them tell what became of the last ones; the next client sends
already. The server of one run still listens for those when that of the next run begins: one run
takes the port that was given out, the next one the port after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins import irttargv
from node.plugins.attendance import ClockOutput
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.irttdocument import PACKETS_MAX
from node.plugins.oneway import DestPart
from node.plugins.ownprograms import own_program
from node.plugins.reading import failure, record_of
from node.plugins.sendrecords import (
    SenderRecord,
    check,
    explain_unsent,
    source_interval,
    stream_end,
)
from node.plugins.tests.latencybg import LatencyBgSpec

_SOURCE, _DEST = 0, 1
_MICROSECOND_NS = 1000

LEAD_IN = 200 * MILLISECOND
"""The first packet leaves this long after the start: the server's clock may be that late."""
_OPENINGS_MS = (500, 500)
"""How long a client waits for the server's word at its first packet, and at its second."""
_EXTRA = 4
_EXTRA_LAST_MAX = 2 * SECOND
"""More packets than are counted; fewer where so many would take longer than this."""
_WRAP_UP = SECOND
"""For the last figures, before the launcher ends what still runs."""
_MARGIN = 500 * MILLISECOND
"""The server is ended this long before, whatever the clients do."""
_FORGOTTEN = 10 * SECOND
"""A client lasts no longer than its interval and this; the server forgets one that is silent for so
long, be it a stranger's."""
_EACH_MIN = 5 * SECOND
_DURATION_MIN = 10 * SECOND
"""The server of the run before last has ended by then."""
_PORT_MAX = 65_534


class _ClientRecord(SenderRecord):
    received_at_dest: CountField | None
    duplicates_backward: CountField | None


class _ServerRecord(Document):
    interval: CountField
    clock: ClockOutput


def can(spec: LatencyBgSpec) -> str | None:
    """Neither many packets in an interval, nor few, nor short intervals, nor short runs."""
    if spec.each // spec.interval > PACKETS_MAX:
        return f"irtt prints more than can be read for more than {PACKETS_MAX} packets in each"
    if spec.interval > _EXTRA_LAST_MAX:
        return "irtt as a stream sends a packet each PT2S at least"
    if spec.each < _EACH_MIN or spec.duration < _DURATION_MIN:
        return "irtt is started anew for each interval: each is PT5S at least, duration PT10S"
    if spec.port is not None and spec.port > _PORT_MAX:
        return "irtt as a stream takes the port after the one given, too"
    return None


def overtime(spec: LatencyBgSpec) -> int:
    """How long after the booked end it waits for what is under way, in microseconds."""
    late = LEAD_IN + sum(_OPENINGS_MS) * MILLISECOND + _extra(spec) * spec.interval
    return late + spec.timeout + _WRAP_UP


def _extra(spec: LatencyBgSpec) -> int:
    return min(_EXTRA, _EXTRA_LAST_MAX // spec.interval)


def command(part: PartContext) -> Command:
    """Our program that starts the clients at source, our program with the server at dest."""
    spec: LatencyBgSpec = part.spec
    source, dest = part.parties
    port = (spec.port or int(dest.data["port"])) + part.starts // spec.duration % 2
    shared: dict[str, object] = {
        "intervals": spec.duration // spec.each,
        "first_ns": (part.starts + LEAD_IN) * _MICROSECOND_NS,
    }
    if part.participant == _SOURCE:
        program = own_program(
            "irttbg_client.py",
            shared
            | {
                "argv": irttargv.client(source, dest, port, spec, _OPENINGS_MS),
                "packets": spec.each // spec.interval,
                "extra": _extra(spec),
                "interval_ns": spec.interval * _MICROSECOND_NS,
                "timeout_ns": spec.timeout * _MICROSECOND_NS,
                "opening_ns": sum(_OPENINGS_MS) * MILLISECOND * _MICROSECOND_NS,
                "length": spec.length,
            },
        )
    else:
        until = part.ends + overtime(spec) - _MARGIN
        program = own_program(
            "irttbg_server.py",
            shared
            | {
                "argv": irttargv.server(dest, port, spec, spec.each + _FORGOTTEN),
                "at_ns": part.starts * _MICROSECOND_NS,
                "until_ns": until * _MICROSECOND_NS,
                "each_ns": spec.each * _MICROSECOND_NS,
            },
        )
    return replace(program, streams=True, overtime=overtime(spec))


def read_interval(part: PartContext, record: bytes) -> Interval:
    """What this end saw in one interval: all of it at source, at dest only its clock.

    :raises ToolOutputError: it is not a record of this end, or tells what cannot be.
    """
    if part.participant == _DEST:
        served = record_of(record, "irtt's server", _ServerRecord)
        return Interval(
            served.interval, DestPart.without_figures(served.clock.clock).model_dump(mode="json")
        )
    told = record_of(record, "irtt's clients", _ClientRecord)
    packets = part.spec.each // part.spec.interval
    check(told, packets, "irtt")
    arrived = told.received_at_dest
    if arrived is not None and not told.received_back + told.late <= arrived <= told.sent:
        raise ToolOutputError("irtt tells of more packets back than there, or of more than sent")
    if not told.sent:
        return Interval(told.interval, None, explain_unsent(told))
    counts: Mapping[str, int | None] = {
        "received_at_dest": arrived,
        "unreachable": None,
        "duplicates_forward": None,
        "duplicates_backward": told.duplicates_backward,
        "hops_forward": None,
        "hops_backward": None,
    }
    reason = (
        f"{told.complaint}; {told.unsent} of {packets} packets were not sent"
        if told.complaint
        else None
    )
    result = source_interval(told, dict(counts)).model_dump(mode="json")
    return Interval(told.interval, result, reason)


def read(part: PartContext, output: Output) -> Result:
    """How many intervals it told of.

    :raises ToolOutputError: irtt's server ended, or our program; its own reason first.
    """
    if output.exit_code > 0 and part.participant == _DEST and output.stderr.strip():
        raise refused(output, "its server ended")
    return stream_end(output, "irtt")


def refused(output: Output, otherwise: str) -> ToolOutputError:
    """Why irtt did not do it, in its own words where it has any."""
    said = output.stderr.removeprefix(b"Error: ")
    return failure(replace(output, stderr=said), "irtt", otherwise)
