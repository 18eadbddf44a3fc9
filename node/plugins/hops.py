"""Assembling a path from single probes, for all tools that trace. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND
from node.plugins.contracts import Result
from node.plugins.plausibility import LONGEST_MS, Sieve
from node.plugins.tests.trace import (
    PROBES_DEFAULT,
    TCP_PORT_DEFAULT,
    WAIT_DEFAULT,
    Hop,
    HopAddress,
    TraceResult,
    TraceSpec,
)

_PROBES_KEPT = 10_000
_NAME_MAX = 253


@dataclass(frozen=True)
class Probe:
    """One packet and its answer; ``address`` is None if there was no answer.

    ``rtt_ms`` is None if what was printed cannot be the time of an answer.
    """

    ttl: int
    address: str | None = None
    rtt_ms: float | None = 0.0
    said: str | None = None
    name: str | None = None
    as_numbers: tuple[int, ...] = ()


def probes_of(spec: TraceSpec) -> int:
    """Return the number of packets per hop."""
    return PROBES_DEFAULT if spec.probes is None else spec.probes


def wait_of(spec: TraceSpec) -> int:
    """Return how long to wait for an answer, in microseconds."""
    return WAIT_DEFAULT if spec.wait is None else spec.wait


def port_of(spec: TraceSpec) -> int:
    """Return the TCP port."""
    return TCP_PORT_DEFAULT if spec.port is None else spec.port


def time_of(sieve: Sieve, printed: object, per_ms: int = 1) -> float | None:
    """Return the milliseconds of an answer, of which a program prints ``per_ms`` units each."""
    number = sieve.number("the time of an answer", printed, most=LONGEST_MS * per_ms)
    return None if number is None else number / per_ms


def address_in(text: str, program: str) -> str:
    """Return an address in its shortest form, without the interface of a link-local one.

    :raises ToolOutputError: it is not an address.
    """
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        raise ToolOutputError(f"{program} names {text[:60]!r}, which is not an address") from None


def assemble_path(
    program: str,
    spec: TraceSpec,
    dest: str,
    probes: Iterable[Probe],
    *,
    paris: bool,
    sieve: Sieve | None = None,
) -> Result:
    """Assemble the result from all probes, in any order, answered or not.

    ``dest`` is the address at the end of the path, ``sieve`` has noted what is left out. An answer
    that took longer than ``wait`` counts as lost. Probes sent beyond dest, and silent hops at the
    end, are left out.

    :raises ToolOutputError: a hop was never probed, or there are too many probes.
    """
    packets = list(probes)
    if len(packets) > _PROBES_KEPT:
        raise ToolOutputError(f"{program} reports {len(packets)} packets, too many")
    strange = next((each.ttl for each in packets if not 1 <= each.ttl <= spec.hops_max), None)
    if strange is not None:
        raise ToolOutputError(f"{program} reports hop {strange}, but probed {spec.hops_max}")
    distances = [each.ttl for each in packets if each.address == dest]
    last = min(distances, default=spec.hops_max)
    seen = [each for each in packets if each.ttl <= last]
    wait_ms = wait_of(spec) / MILLISECOND
    answered = [each for each in seen if each.address is not None and (each.rtt_ms or 0) <= wait_ms]
    farthest = max((each.ttl for each in answered), default=0)
    hops = tuple(_hop(ttl, seen, answered) for ttl in range(1, farthest + 1))
    return TraceResult(
        address=dest,
        protocol=spec.protocol,
        reached=any(each.address == dest for each in answered),
        paris=paris,
        hops=hops,
        hops_tried=max((each.ttl for each in seen), default=0),
        path=tuple(_most_frequent_address(hop) for hop in hops),
        notes=() if sieve is None else sieve.notes,
    ).model_dump(mode="json")


def _hop(ttl: int, seen: list[Probe], answered: list[Probe]) -> Hop:
    here = [each for each in answered if each.ttl == ttl]
    addresses = list(dict.fromkeys(str(each.address) for each in here))
    return Hop(
        ttl=ttl,
        addresses=tuple(
            _answers_of_address(address, [each for each in here if each.address == address])
            for address in addresses
        ),
        lost=sum(each.ttl == ttl for each in seen) - len(here),
    )


def _answers_of_address(address: str, answers: list[Probe]) -> HopAddress:
    name = next((each.name for each in answers if each.name), None)
    return HopAddress(
        address=address,
        name=None if name is None or name == address else name[:_NAME_MAX],
        as_numbers=next((each.as_numbers for each in answers if each.as_numbers), ()),
        rtts_ms=tuple(round(each.rtt_ms, 4) for each in answers if each.rtt_ms is not None),
        said=next((each.said for each in answers if each.said), None),
    )


def _most_frequent_address(hop: Hop) -> str | None:
    """Return the address that answered most often; of equals, the one that answered first."""
    if not hop.addresses:
        return None
    return max(hop.addresses, key=lambda each: len(each.rtts_ms)).address
