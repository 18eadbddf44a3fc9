"""Delay each way by irtt: its server at dest, its client at source. Pure.

The server prints no figures; what it received it tells the client in its answers, which is how
irtt's client knows on which way a packet was lost. That knowledge comes with later answers, so a
few more packets are sent than are counted. What neither end tells is null: packets out of order or
doubled on the way there, hops, strangers' packets, ICMP errors.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

from pydantic import RootModel

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins import irttdocument
from node.plugins.attending import Told, attended, told
from node.plugins.contracts import Command, Output, PartContext, Party, Requirement, Result
from node.plugins.oneway import DestPart, SourcePart, delays_and_jitter
from node.plugins.reading import document_of, failure, text_of
from node.plugins.tests.latency import LatencySpec

_SOURCE, _DEST = 0, 1
_MICROSECOND_NS = 1000

_CLIENT_DELAY = SECOND
"""The server must listen by then: its node's clock may be late, and its start slow."""
_OPENING_MS = (500, 500, 1000, 1000, 1000)
"""How long the client waits for the server's word at its first packet, its second …"""
_EXTRA = 4
"""More packets than are counted: an answer to one of them tells what became of the last ones."""
_WRAP_UP = SECOND
"""For the output; the launcher ends what still runs 250 ms before the booked end."""
_MARGIN = 400 * MILLISECOND
"""The server is ended this long before the booked end, so that it is not the launcher's doing."""
_PACKETS_MAX = 10_000
"""irtt's output has some 700 bytes for each packet."""

_Document = RootModel[dict[str, Any]]


class IrttTool:
    """irtt."""

    name = "irtt"
    tests: tuple[str, ...] = ("latency",)
    preference = -1
    requirement: Requirement | None = Requirement(
        "irtt", "irtt", ("irtt", "version"), r"irtt version: (\d+(?:\.\d+)+)"
    )
    tried: tuple[str, ...] = ("0.9.0",)
    binds = frozenset({"address"})

    def can(self, spec: LatencySpec) -> str | None:
        """Not so many packets that its output could not be read."""
        if spec.count > _PACKETS_MAX:
            return f"irtt prints more than can be read for more than {_PACKETS_MAX} packets"
        return None

    def duration(self, spec: LatencySpec) -> int:
        """The opening, all packets, the last one's timeout and wrap-up, in microseconds."""
        opening = _CLIENT_DELAY + sum(_OPENING_MS) * MILLISECOND
        return opening + (spec.count + _EXTRA) * spec.interval + spec.timeout + _WRAP_UP

    def needs_port(self, spec: LatencySpec, participant: int) -> bool:
        """The server's node gives out a port, unless the spec names one."""
        return participant == _DEST and spec.port is None

    def command(self, part: PartContext) -> Command:
        """``irtt client … ADDRESS:PORT``, a second later than ``irtt server`` at the other one."""
        spec: LatencySpec = part.spec
        source, dest = part.parties
        port = spec.port or int(dest.data["port"])
        if part.participant == _DEST:
            own = f"{_own(dest)}:{port}"
            # No least interval: packets that were held up somewhere come closer than they were sent
            argv = ["irtt", "server", "-b", own, "-i", "0", "-l", str(spec.length), "--timeout=0"]
            return attended(argv, part.starts, part.ends - _MARGIN)
        argv = ["irtt", "client", "-Q", "-o", "-", "-i", f"{spec.interval * _MICROSECOND_NS}ns"]
        argv += ["-d", f"{(spec.count + _EXTRA) * spec.interval * _MICROSECOND_NS}ns"]
        # With these alone a packet of the shortest length, 44, holds all that is asked for.
        argv += ["-l", str(spec.length), "--stats=both", "--tstamp=both", "--clock=wall"]
        argv += [f"--wait={spec.timeout * _MICROSECOND_NS}ns"]
        argv += [f"--timeouts={','.join(f'{wait_ms}ms' for wait_ms in _OPENING_MS)}"]
        argv += [f"--local={_own(source)}"] if _own(source) else []
        argv += [f"-{spec.ip_version}"] if spec.ip_version else []
        argv += ["--", f"{_bracketed(dest.address)}:{port}"]
        return attended(argv, part.starts + _CLIENT_DELAY)

    def read(self, part: PartContext, output: Output) -> Result:
        """Delays and counts from the client, from the server only that it was there.

        :raises ToolOutputError: irtt failed, or says what cannot be; its own reason first.
        """
        printed, known = told(output, "irtt")
        if part.participant == _DEST:
            if "[ListenerStart] starting " not in text_of(printed, "irtt"):
                raise _refused(printed, "its server did not start")
            return _dest_part(known).model_dump(mode="json")
        if printed.exit_code != 0:
            raise _refused(printed, "it failed without a reason")
        document = document_of(printed, "irtt", _Document)
        return _source_part(part.spec, document.root, known).model_dump(mode="json")


def _own(party: Party) -> str:
    """The party's address; nothing for a name, which may mean another address on its own host."""
    try:
        ipaddress.ip_address(party.address)
    except ValueError:
        return ""
    return _bracketed(party.address)


def _refused(output: Output, otherwise: str) -> ToolOutputError:
    said = output.stderr.removeprefix(b"Error: ")
    return failure(replace(output, stderr=said), "irtt", otherwise)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _dest_part(known: Told) -> DestPart:
    return DestPart(
        received=None,
        duplicates=None,
        reordered=None,
        strays=None,
        unsent=None,
        clock=known.clock.clock,
    )


def _source_part(spec: LatencySpec, document: dict[str, Any], known: Told) -> SourcePart:
    try:
        told = irttdocument.told(document, spec.interval * _MICROSECOND_NS, spec.length)
    except ValueError as reason:
        raise ToolOutputError(str(reason)) from None
    counted = told.trips[: spec.count]
    seen = irttdocument.reading(counted, spec.timeout * _MICROSECOND_NS)
    delays, jitters = delays_and_jitter(seen.in_time)
    return SourcePart(
        sent=len(counted),
        unsent=spec.count - len(counted),
        received_back=len(seen.in_time),
        received_at_dest=seen.at_dest,
        late=seen.late,
        unreachable=None,
        duplicates_forward=None,
        # It counts them without saying where they were doubled.
        duplicates_backward=None if told.duplicates else 0,
        reordered_backward=seen.reordered,
        delay_ms=delays,
        jitter_ms=jitters,
        hops_forward=None,
        hops_backward=None,
        clock=known.clock.clock,
    )


TOOL = IrttTool()
