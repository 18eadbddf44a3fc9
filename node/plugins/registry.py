"""Which tests and tools there are. Pure.

A new test or tool of Parley's own is one module and one line here; those of other distributions
are found by their entry points (:mod:`.discovery`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from node.plugins.contracts import Test, Tool
from node.plugins.discovery import Found, found
from node.plugins.tests import (
    clock,
    dns,
    http,
    idle,
    interface,
    latency,
    latencybg,
    mtu,
    rtt,
    tcp,
    throughput,
    tls,
    trace,
)
from node.plugins.tools import (
    connect,
    curl,
    dnspython,
    fetch,
    fping,
    handshake,
    iperf3,
    irtt,
    mtr,
    nuttcp,
    ping,
    ping_df,
    procnet,
    scamper,
    sleep,
    stamp,
    stampbg,
    tracepath,
    traceroute,
)

_TESTS: tuple[Test, ...] = (
    clock.TEST,
    dns.TEST,
    http.TEST,
    idle.TEST,
    interface.TEST,
    latency.TEST,
    latencybg.TEST,
    mtu.TEST,
    rtt.TEST,
    tcp.TEST,
    throughput.TEST,
    tls.TEST,
    trace.TEST,
)
_TOOLS: tuple[Tool, ...] = (
    connect.TOOL,
    curl.TOOL,
    dnspython.TOOL,
    fetch.TOOL,
    fping.TOOL,
    handshake.TOOL,
    iperf3.TOOL,
    irtt.TOOL,
    mtr.TOOL,
    nuttcp.TOOL,
    ping.TOOL,
    ping_df.TOOL,
    procnet.TOOL,
    scamper.TOOL,
    sleep.TOOL,
    stamp.TOOL,
    stampbg.TOOL,
    tracepath.TOOL,
    traceroute.TOOL,
)


@functools.cache
def tests() -> Mapping[str, Test]:
    """All tests by name."""
    return MappingProxyType(_own(_TESTS) | _others("parley.tests", _TESTS))


@functools.cache
def tools() -> Mapping[str, Tool]:
    """All tools by name, installed or not."""
    return MappingProxyType(_own(_TOOLS) | _others("parley.tools", _TOOLS))


def foreign() -> tuple[Found, ...]:
    """What other distributions bring, also what cannot be used and why; by group and name."""
    return (*_judged("parley.tests", _TESTS), *_judged("parley.tools", _TOOLS))


def _own(plugins: tuple[Any, ...]) -> dict[str, Any]:
    return {plugin.name: plugin for plugin in plugins}


def _others(group: str, own: tuple[Any, ...]) -> dict[str, Any]:
    return {each.name: each.plugin for each in _judged(group, own) if each.fault is None}


def _judged(group: str, own: tuple[Any, ...]) -> list[Found]:
    """Whoever comes second with a name is left out: two that bring one would take turns."""
    taken = {plugin.name: "Parley itself" for plugin in own}
    judged = []
    for each in found(group):
        owner = taken.get(each.name)
        if each.fault is None and owner is not None:
            fault = f"{owner} has one called {each.name}; it needs another name"
            judged.append(dataclasses.replace(each, plugin=None, fault=fault))
            continue
        if each.fault is None:
            taken[each.name] = each.distribution
        judged.append(each)
    return judged


def tools_for(test_name: str) -> tuple[Tool, ...]:
    """The tools that measure a test: highest preference first, then by name."""
    fitting = (tool for tool in tools().values() if test_name in tool.tests)
    return tuple(sorted(fitting, key=lambda tool: (-tool.preference, tool.name)))
