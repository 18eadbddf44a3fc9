"""The dialects that this node speaks. Pure.

A tool is offered to a lead of pScheduler only if its dialect is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from node.pscheduler.dialects import idle, iperf3, simplestreamer
from node.pscheduler.dialects.contract import Dialect

_EVERY: tuple[Dialect, ...] = (iperf3.DIALECT, simplestreamer.DIALECT, idle.SLEEP, idle.SNOOZE)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({each.tool: each for each in _EVERY})
"""By pScheduler's name of the tool, the preferred ones of a test first."""


def dialects_of(test: str) -> tuple[Dialect, ...]:
    """Return the dialects in which a test of pScheduler can be spoken, best first."""
    return tuple(each for each in _EVERY if test in each.tests)
