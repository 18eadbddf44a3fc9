"""Results of tasks that hosts of pScheduler lead themselves, as parts of our tests. Pure.

A part has what the result tells, and nothing else: figures that pScheduler does not keep are
computed from what it does, or absent.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from node.model.errors import ToolOutputError
from node.model.wire.fields import is_address
from node.plugins.distribution import jitter
from node.plugins.figures import delay_figures, share
from node.plugins.hops import Probe, assemble_path
from node.plugins.tests.dns import DnsRecord, DnsResult, DnsSpec
from node.plugins.tests.http import HttpPhases, HttpResult, HttpSpec
from node.plugins.tests.idle import IdlePart
from node.plugins.tests.rtt import RttResult
from node.plugins.tests.trace import TraceSpec
from node.pscheduler.dialects.contract import HeardPart, failure_of
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.dns import SOA
from node.pscheduler.times import parse_milliseconds

_ERRORS_MAX = 10
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that reading a result of another form raises."""


def part_of_result(test: str, spec: Mapping[str, Any], result: Any) -> HeardPart:
    """Return a merged result as the part of our test with the spec ``spec``."""
    document = result if isinstance(result, dict) else None
    reason = failure_of(document)
    if reason is not None or document is None:
        return HeardPart(None, reason)
    try:
        return HeardPart(_READERS[test](spec, document))
    except ToolOutputError as fault:
        return HeardPart(None, fault.detail)
    except _UNREADABLE as fault:
        said = str(fault).strip() or type(fault).__name__
        return HeardPart(None, f"its result is not understood: {said.splitlines()[0]}"[:300])


def is_readable(test: str) -> bool:
    """Return whether results of a test of ours can be read from pScheduler's."""
    return test in _READERS


def _idle(spec: Mapping[str, Any], result: Document) -> Document:  # noqa: ARG001 - one of several
    return IdlePart(slept_ms=parse_milliseconds(result["duration"])).model_dump(mode="json")


def _rtt(spec: Mapping[str, Any], result: Document) -> Document:
    trips: Sequence[Document] = result["roundtrips"]
    answered = {
        int(each["seq"]): parse_milliseconds(each["rtt"]) for each in trips if each.get("rtt")
    }
    sent = int(result.get("sent", max(len({each["seq"] for each in trips}), 1)))
    received = int(result.get("received", len(answered)))
    errors = dict.fromkeys(str(each["error"]) for each in trips if each.get("error"))
    part = RttResult(
        address=next((str(each["ip"]) for each in trips if each.get("ip")), str(spec["dest"])),
        sent=sent,
        received=received,
        late=0,
        loss=share(sent - received, sent),
        rtt_ms=delay_figures(list(answered.values())),
        jitter_ms=jitter(answered),
        duplicates=int(result.get("duplicates", 0)),
        reordered=int(result.get("reorders", 0)),
        errors=tuple(each[:300] for each in list(errors)[:_ERRORS_MAX]),
    )
    return part.model_dump(mode="json")


def _trace(spec: Mapping[str, Any], result: Document) -> Document:
    paths: Sequence[Sequence[Document]] = result["paths"]
    ours = TraceSpec.model_validate(spec)
    packets = [
        Probe(
            ttl=ttl,
            address=str(hop["ip"]) if hop.get("ip") else None,
            rtt_ms=parse_milliseconds(hop["rtt"]) if hop.get("rtt") else 0.0,
            name=hop.get("hostname"),
            as_numbers=(int(hop["as"]["number"]),) if hop.get("as") else (),
        )
        for path in paths
        for ttl, hop in enumerate(path, start=1)
    ]
    return assemble_path("trace", ours, _end_of(ours, packets), packets, paris=False)


def _dns(spec: Mapping[str, Any], result: Document) -> Document:
    ours = DnsSpec.model_validate(spec)
    taken_ms = parse_milliseconds(result["time"])
    values = _record_values(ours.type, result.get("record"))
    if not values:
        raise ValueError("it tells no record")
    part = DnsResult(
        server=ours.server,
        # It calls anything else a failure.
        rcode="NOERROR",
        time_ms=taken_ms,
        total_ms=taken_ms,
        tries=None,
        answers=tuple(
            DnsRecord(name=None, type=ours.type, ttl_s=None, value=value) for value in values
        ),
        authoritative=None,
        truncated=None,
        authenticated=None,
        recursion_available=None,
        failure=None,
    )
    return part.model_dump(mode="json")


def _record_values(kind: str, told: Any) -> list[str]:
    """Return DNS records as texts of a zone file; TXT records without quotes."""
    records = told if isinstance(told, list) else [] if told is None else [told]
    match kind:
        case "MX":
            return [f"{int(each['pref'])} {each['mx']}" for each in records]
        case "SOA":
            return [" ".join(str(each[name]) for name in SOA) for each in records]
        case "TXT":
            return [_unquoted_text(each) for each in records]
        case _:
            return records


def _unquoted_text(text: object) -> str:
    """Return the text of a TXT, which is one or more strings in quotes."""
    if not isinstance(text, str):
        raise TypeError("a record of type TXT is no text")
    return "".join(shlex.split(text))


def _http(spec: Mapping[str, Any], result: Document) -> Document:
    ours = HttpSpec.model_validate(spec)
    if result.get("status") is None:
        raise ValueError("it does not tell the status")
    part = HttpResult(
        url=ours.url,
        address=None,
        status=result["status"],
        protocol=None,
        phases_ms=HttpPhases(name=None, connect=None, tls=None, first_byte=None, transfer=None),
        total_ms=parse_milliseconds(result["time"]),
        redirects=None,
        redirect_ms=None,
        body_bytes=None,
        complete=None,
        matched=None if ours.text is None else result["found"],
        failure=None,
    )
    return part.model_dump(mode="json")


def _end_of(spec: TraceSpec, packets: Sequence[Probe]) -> str:
    """Return the address of dest; that of the last hop, if the trace ended before it had to.

    :raises ValueError: the result does not tell it.
    """
    if is_address(spec.dest):
        return spec.dest
    last = max((each for each in packets if each.address), key=lambda each: each.ttl, default=None)
    if last is None or last.address is None or last.ttl >= spec.hops_max:
        raise ValueError(f"it does not tell the address of {spec.dest}, so not how far it came")
    return last.address


_READERS: Mapping[str, Callable[[Mapping[str, Any], Document], Document]] = MappingProxyType(
    {"dns": _dns, "http": _http, "idle": _idle, "rtt": _rtt, "trace": _trace}
)
