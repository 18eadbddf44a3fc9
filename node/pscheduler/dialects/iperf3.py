"""Throughput by iperf3 between a node of pScheduler and this one. Pure.

Participant 0 is the client, 1 the server, in both worlds. What iperf3 prints is the common ground:
pScheduler's part has it in ``diags``, ours is stored, so each side is read with its own eyes from
the other's print-out.

Authentication is an offer of the server, ``_auth`` in its data. This node makes none as a server.
As a client it says schema 1 in its data, and a server then demands none. A client of pScheduler
that reads of a server older than 3.17 adds an option of that authentication, which its own iperf3
refuses from 3.20 on; so no server here is said to be older.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from node.model.errors import HostError
from node.plugins.contracts import Output, PartContext, version_numbers
from node.plugins.tests.throughput import ThroughputInterval, ThroughputPart, ThroughputSpec
from node.plugins.tools.iperf3 import TOOL
from node.pscheduler.dialects.contract import Dialect, HeardPart, diagnostics, failure_of
from node.pscheduler.tests.contract import Document, PartOutcome

_CLIENT, _SERVER = 0, 1
_UNAUTHENTICATED_SCHEMA = 1
_SCHEMA = 3
_ALL = "SUM"
_WITHOUT_PADDING = "3.17"
_DOCUMENT = re.compile(r"^\{", re.MULTILINE)

_NAMES: Mapping[str, str] = {
    "socket": "stream-id",
    "start": "start",
    "end": "end",
    "bits_per_second": "throughput-bits",
    "bytes": "throughput-bytes",
    "omitted": "omitted",
    "retransmits": "retransmits",
    "snd_cwnd": "tcp-window-size",
    "rtt": "rtt",
    "mean_rtt": "rtt",
    "packets": "sent",
    "lost_packets": "lost",
    "jitter_ms": "jitter",
}
"""Members of iperf3's JSON, and what pScheduler calls them."""


class Iperf3Dialect(Dialect):
    """iperf3 at both ends."""

    tool = "iperf3"
    own = "iperf3"
    tests = ("throughput",)
    description = "Throughput test with iperf3"
    port_member = "server_port"
    port_usual = 5201

    def data(self, place: int, held: Mapping[str, int], version: str | None) -> Document:
        """Return the version of iperf3, and as a server the port, without authentication."""
        schema = _UNAUTHENTICATED_SCHEMA if place == _CLIENT else _SCHEMA
        told_version = _newest(version, _WITHOUT_PADDING) if place == _SERVER else version
        told = {"schema": schema, "iperf3-version": told_version or "0.0"}
        return {**told, **super().data(place, held, version)}

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:
        """Return the figures of this end from what iperf3 printed.

        Of output that was too long to be kept whole, the figures of all streams together are left.
        """
        base: Document = {"schema": 1, "diags": diagnostics(part)}
        if part.result is None or part.reason is not None:
            reason = part.reason or "The run has no result."
            return {**base, "succeeded": False, "error": reason}
        sends = _sends(place, reverse=bool(spec.get("reverse")))
        printed = printed_by_iperf3(part.output)
        if printed is not None:
            return {**base, "succeeded": True, **flat_document(printed, place=place, sends=sends)}
        return {
            **base,
            "succeeded": True,
            **summed_streams(ThroughputPart.model_validate(part.result)),
        }

    def heard_part(self, place: int, spec: Mapping[str, Any], part: Document | None) -> HeardPart:
        """Return another end's figures, read from the print-out in its diagnostics."""
        reason = failure_of(part)
        if reason is not None or part is None:
            return HeardPart(None, reason)
        printed = printed_by_iperf3(str(part.get("diags") or ""))
        if printed is None:
            return HeardPart(None, "its diagnostics lack what iperf3 printed")
        context = PartContext(ThroughputSpec.model_validate(spec), place, (), 0, 0)
        try:
            result = TOOL.read(context, Output(0, json.dumps(printed).encode(), b""))
        except HostError as fault:
            return HeardPart(None, fault.detail)
        return HeardPart(result)


def _newest(version: str | None, least: str) -> str:
    """Return a version, or ``least`` if it is older, unknown, or none."""
    if version is None or version_numbers(version) < version_numbers(least):
        return least
    return version


def printed_by_iperf3(text: str | None) -> Document | None:
    """Return the JSON document of iperf3 in a text that may have more before and after it.

    None if there is none, or if it was cut.
    """
    if text is None or (begin := _DOCUMENT.search(text)) is None:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(text, begin.start())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document.get("end"), dict) else None


def flat_document(printed: Document, *, place: int, sends: bool) -> Document:
    """Return what iperf3 printed as intervals and a summary in pScheduler's words.

    At a server only one direction was seen: what it ``sends``, or else what came.
    """
    end = _object(printed.get("end"))
    shown: Document = {
        "intervals": [
            {
                "streams": [_renamed_members(each) for each in _objects(interval.get("streams"))],
                "summary": _renamed_members(_object(interval.get("sum")), _ALL),
            }
            for interval in _objects(printed.get("intervals"))
        ],
        "summary": {
            "streams": [
                _summed_stream(
                    _merged_total(each, "sender", "receiver", place=place, sends=sends), printed
                )
                for each in _objects(end.get("streams"))
            ],
            "summary": _merged_total(
                end, "sum_sent", "sum_received", place=place, sends=sends, name=_ALL
            ),
        },
    }
    start = _object(printed.get("start"))
    mss, window = start.get("tcp_mss_default"), start.get("sock_bufsize")
    if _is_number(mss):
        shown["mss"] = mss
    if _is_number(window) and window:
        shown["requested-tcp-window-size"] = window
    return shown


def _merged_total(
    of: Document,
    sent: str,
    received: str,
    *,
    place: int,
    sends: bool,
    name: str | None = None,
) -> Document:
    """Return a total: the sender's with the receiver's rate, as far as this end knows them."""
    sender, receiver = _object(of.get(sent)), _object(of.get(received))
    datagrams = _object(of.get("udp")) or _object(of.get("sum"))
    if not sender and not receiver:
        return _renamed_members(datagrams, name)
    if place == _SERVER:
        # What a server prints of the other end is made up.
        return _renamed_members(sender if sends else receiver, name)
    total = _renamed_members({**datagrams, **sender}, name)
    if _is_number(rate := receiver.get("bits_per_second")):
        total["receiver-throughput-bits"] = rate
    if "lost_packets" in receiver:
        told = _renamed_members(receiver, name)
        total |= {member: told[member] for member in ("lost", "jitter") if member in told}
    return total


def _summed_stream(stream: Document, printed: Document) -> Document:
    """Return a stream's total, summed up from its intervals where iperf3 has left it at 0.

    A server that receives datagrams does so.
    """
    if stream.get("throughput-bytes") != 0:
        return stream
    course = [
        each
        for interval in _objects(printed.get("intervals"))
        for each in map(_renamed_members, _objects(interval.get("streams")))
        if each.get("stream-id") == stream.get("stream-id") and not each.get("omitted")
    ]
    octets = sum(each.get("throughput-bytes", 0) for each in course)
    seconds = sum(each.get("end", 0) - each.get("start", 0) for each in course)
    if seconds <= 0:
        return stream
    return {**stream, "throughput-bytes": octets, "throughput-bits": octets * 8 / seconds}


def _renamed_members(entry: Document, name: str | None = None) -> Document:
    renamed = {
        _NAMES[member]: value for member, value in entry.items() if _is_figure(member, value)
    }
    return renamed if name is None else {"stream-id": name, **renamed}


def _is_figure(member: str, value: object) -> bool:
    return member in _NAMES and (
        _is_number(value) or (member == "omitted" and value in (True, False))
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Document]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _sends(place: int, *, reverse: bool) -> bool:
    return place == (_SERVER if reverse else _CLIENT)


def summed_streams(part: ThroughputPart) -> Document:
    """Return the figures of all streams together, as our own part has them."""
    own = part.sent or part.received
    total: Document = {"stream-id": _ALL}
    if own is not None:
        total |= {
            "start": 0,
            "end": own.duration_ms / 1000,
            "throughput-bits": own.rate_bps,
            "throughput-bytes": own.bytes,
        }
    if part.sent is not None and part.sent.retransmits is not None:
        total["retransmits"] = part.sent.retransmits
    if part.sent is not None and part.received is not None:
        total["receiver-throughput-bits"] = part.received.rate_bps
    if part.datagrams is not None:
        total |= {"sent": part.datagrams.packets, "lost": part.datagrams.lost}
    intervals = [_summed_interval(each) for each in part.intervals]
    return {
        "intervals": [{"streams": [each], "summary": each} for each in intervals],
        "summary": {"streams": [total], "summary": total},
    }


def _summed_interval(interval: ThroughputInterval) -> Document:
    length_ms = interval.end_ms - interval.start_ms
    entry: Document = {
        "stream-id": _ALL,
        "start": interval.start_ms / 1000,
        "end": interval.end_ms / 1000,
        "throughput-bits": interval.rate_bps,
        "throughput-bytes": round(interval.rate_bps * length_ms / 8000),
        "omitted": interval.omitted,
    }
    if interval.retransmits is not None:
        entry["retransmits"] = interval.retransmits
    return entry


DIALECT = Iperf3Dialect()
