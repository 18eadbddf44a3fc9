"""A stream by irtt, for :mod:`.tests.latencybg`: one server, and a client for each interval. Pure.

See ``tools/programs/irttbg_client.py`` and ``irttbg_server.py``. A client sends a few packets more
than are counted, so that the answers to them show what became of the last counted ones; the next
client is already sending by then. Because the server of one run still listens for those when the
server of the next run starts, runs alternate between the assigned port and the port after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins import irttprogram
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.irttprogram import PACKETS_MAX
from node.plugins.oneway import DestPart
from node.plugins.ownprograms import MICROSECOND_NS, ClockOutput, own_program
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

LEAD_IN = 200 * MILLISECOND
"""The first packet leaves this long after the start: the server's clock may be that late."""
_OPENINGS_MS = (500, 500)
"""Waits of a client for the server's reply to its first packet, and to its second."""
_EXTRA = 4
_EXTRA_LAST_MAX = 2 * SECOND
"""Extra packets after the counted ones; fewer if they would take longer than this."""
_WRAP_UP = SECOND
"""Time for the last figures, before the launcher ends what still runs."""
_MARGIN = 500 * MILLISECOND
"""The server is ended this long before that, whatever the clients do."""
_FORGOTTEN = 10 * SECOND
"""Maximum time that a client takes beyond its interval; the server forgets clients that are silent
for that long, strangers' included."""
_EACH_MIN = 5 * SECOND
_DURATION_MIN = 10 * SECOND
"""Minimum duration: the server of the run before last has ended by then."""
_PORT_MAX = 65_534


class _ClientRecord(SenderRecord):
    received_at_dest: CountField | None
    duplicates_backward: CountField | None


class _ServerRecord(Document):
    interval: CountField
    clock: ClockOutput


def refusal(spec: LatencyBgSpec) -> str | None:
    """Refuse too many or too few packets per interval, short intervals and short runs."""
    if spec.each // spec.interval > PACKETS_MAX:
        return f"irtt prints more than can be read for more than {PACKETS_MAX} packets in each"
    if spec.interval > _EXTRA_LAST_MAX:
        return "irtt as a stream sends at least one packet each PT2S"
    if spec.each < _EACH_MIN or spec.duration < _DURATION_MIN:
        return "irtt is started anew for each interval: each is at least PT5S, duration PT10S"
    if spec.port is not None and spec.port > _PORT_MAX:
        return "irtt as a stream also uses the port after the one in the spec"
    return None


def overtime(spec: LatencyBgSpec) -> int:
    """Return how long after the booked end it waits for what is under way, in microseconds."""
    late = LEAD_IN + sum(_OPENINGS_MS) * MILLISECOND + _extra(spec) * spec.interval
    return late + spec.timeout + _WRAP_UP


def _extra(spec: LatencyBgSpec) -> int:
    return min(_EXTRA, _EXTRA_LAST_MAX // spec.interval)


def command(part: PartContext) -> Command:
    """Return our program that starts the clients at source, or the server at dest."""
    spec: LatencyBgSpec = part.spec
    source, dest = part.parties
    port = (spec.port or int(dest.data["port"])) + part.starts // spec.duration % 2
    shared: dict[str, object] = {
        "intervals": spec.duration // spec.each,
        "first_ns": (part.starts + LEAD_IN) * MICROSECOND_NS,
    }
    if part.participant == _SOURCE:
        program = own_program(
            "irttbg_client.py",
            shared
            | {
                "argv": irttprogram.client_command(source, dest, port, spec, _OPENINGS_MS),
                "packets": spec.each // spec.interval,
                "extra": _extra(spec),
                "interval_ns": spec.interval * MICROSECOND_NS,
                "timeout_ns": spec.timeout * MICROSECOND_NS,
                "opening_ns": sum(_OPENINGS_MS) * MILLISECOND * MICROSECOND_NS,
                "length": spec.length,
            },
        )
    else:
        until = part.ends + overtime(spec) - _MARGIN
        program = own_program(
            "irttbg_server.py",
            shared
            | {
                "argv": irttprogram.server_command(dest, port, spec, spec.each + _FORGOTTEN),
                "at_ns": part.starts * MICROSECOND_NS,
                "until_ns": until * MICROSECOND_NS,
                "each_ns": spec.each * MICROSECOND_NS,
            },
        )
    return replace(program, streams=True, overtime=overtime(spec))


def read_interval(part: PartContext, record: bytes) -> Interval:
    """Read what this end saw in one interval: everything at source, only the clock at dest.

    :raises ToolOutputError: it is not a record of this end, or is impossible.
    """
    if part.participant == _DEST:
        server_record = record_of(record, "irtt's server", _ServerRecord)
        part_of_dest = DestPart.without_figures(server_record.clock.clock)
        return Interval(server_record.interval, part_of_dest.model_dump(mode="json"))
    client_record = record_of(record, "irtt's clients", _ClientRecord)
    packets = part.spec.each // part.spec.interval
    check(client_record, packets, "irtt")
    arrived = client_record.received_at_dest
    answers = client_record.received_back + client_record.late
    if arrived is not None and not answers <= arrived <= client_record.sent:
        raise ToolOutputError("irtt reports more packets back than there, or more than were sent")
    if not client_record.sent:
        return Interval(client_record.interval, None, explain_unsent(client_record))
    counts: Mapping[str, int | None] = {
        "received_at_dest": arrived,
        "unreachable": None,
        "duplicates_forward": None,
        "duplicates_backward": client_record.duplicates_backward,
        "hops_forward": None,
        "hops_backward": None,
    }
    reason = (
        f"{client_record.complaint}; {client_record.unsent} of {packets} packets were not sent"
        if client_record.complaint
        else None
    )
    result = source_interval(client_record, dict(counts)).model_dump(mode="json")
    return Interval(client_record.interval, result, reason)


def read(part: PartContext, output: Output) -> Result:
    """Return how many intervals it reported.

    :raises ToolOutputError: irtt's server ended, or our program; its own reason first.
    """
    if output.exit_code > 0 and part.participant == _DEST and output.stderr.strip():
        raise failure_of(output, "its server ended")
    return stream_end(output, "irtt")


def failure_of(output: Output, otherwise: str) -> ToolOutputError:
    """Return why irtt failed, in its own words if it printed any."""
    message = output.stderr.removeprefix(b"Error: ")
    return failure(replace(output, stderr=message), "irtt", otherwise)
