"""The registry of tests and tools. Pure.

A new test or tool of Parley's own is one module and one line here; those of other distributions
are found by their entry points (:mod:`.discovery`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from node.plugins.contracts import Test, Tool
from node.plugins.discovery import DiscoveredPlugin, by_name, check_plugins
from node.plugins.tests import (
    clock,
    dns,
    http,
    idle,
    idlebg,
    interface,
    latency,
    latencybg,
    mtu,
    ntp,
    rtt,
    simplestream,
    snmp,
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
    ntpclient,
    nuttcp,
    owping,
    ping,
    ping_df,
    powstream,
    procnet,
    scamper,
    simplestreamer,
    sleep,
    sleepbg,
    snmpget,
    stamp,
    stampbg,
    tracepath,
    traceroute,
)

_TESTS: tuple[Test, ...] = (
    clock.TEST, dns.TEST, http.TEST, idle.TEST, idlebg.TEST, interface.TEST, latency.TEST,
    latencybg.TEST, mtu.TEST, ntp.TEST, rtt.TEST, simplestream.TEST, snmp.TEST, tcp.TEST,
    throughput.TEST, tls.TEST, trace.TEST,
)  # fmt: skip
_TOOLS: tuple[Tool, ...] = (
    connect.TOOL, curl.TOOL, dnspython.TOOL, fetch.TOOL, fping.TOOL, handshake.TOOL, iperf3.TOOL,
    irtt.TOOL, mtr.TOOL, ntpclient.TOOL, nuttcp.TOOL, owping.TOOL, ping.TOOL, ping_df.TOOL,
    powstream.TOOL, procnet.TOOL, scamper.TOOL, simplestreamer.TOOL, sleep.TOOL, sleepbg.TOOL,
    snmpget.TOOL, stamp.TOOL, stampbg.TOOL, tracepath.TOOL, traceroute.TOOL,
)  # fmt: skip


@functools.cache
def tests() -> Mapping[str, Test]:
    """Return all tests by name."""
    return by_name("parley.tests", _TESTS)


@functools.cache
def tools() -> Mapping[str, Tool]:
    """Return all tools by name, installed or not."""
    return by_name("parley.tools", _TOOLS)


def spec_fields(of: Mapping[str, Test]) -> Mapping[str, frozenset[str]]:
    """Return by test the fields of its spec, as documents write them."""
    return {
        name: frozenset(field.alias or own for own, field in test.spec_model.model_fields.items())
        for name, test in of.items()
    }


def third_party_plugins() -> tuple[DiscoveredPlugin, ...]:
    """Return the plugins of other distributions, with the reasons of unusable ones, by name."""
    return (*check_plugins("parley.tests", _TESTS), *check_plugins("parley.tools", _TOOLS))


def tools_for(test_name: str) -> tuple[Tool, ...]:
    """Return the tools that measure a test: highest preference first, then by name."""
    candidates = (tool for tool in tools().values() if test_name in tool.tests)
    return tuple(sorted(candidates, key=lambda tool: (-tool.preference, tool.name)))
