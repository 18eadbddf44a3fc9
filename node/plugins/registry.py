"""Which tests and tools there are, and which of the tools this host can use. Pure.

A new test or tool is one module and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from node.plugins.contracts import Test, Tool
from node.plugins.tests import idle, interface, latency, latencybg, rtt, throughput
from node.plugins.tools import iperf3, ping, procnet, sleep, stamp, stampbg

_TESTS: tuple[Test, ...] = (
    idle.TEST,
    interface.TEST,
    latency.TEST,
    latencybg.TEST,
    rtt.TEST,
    throughput.TEST,
)
_TOOLS: tuple[Tool, ...] = (
    iperf3.TOOL,
    ping.TOOL,
    procnet.TOOL,
    sleep.TOOL,
    stamp.TOOL,
    stampbg.TOOL,
)

_TESTS_BY_NAME = MappingProxyType({test.name: test for test in _TESTS})
_TOOLS_BY_NAME = MappingProxyType({tool.name: tool for tool in _TOOLS})

PathLookup = Callable[[str], str | None]
"""Finds a program on the PATH, as ``shutil.which`` does."""


def tests() -> Mapping[str, Test]:
    """All tests by name."""
    return _TESTS_BY_NAME


def tools() -> Mapping[str, Tool]:
    """All tools by name, installed or not."""
    return _TOOLS_BY_NAME


def tools_for(test_name: str) -> tuple[Tool, ...]:
    """The tools that measure a test: highest preference first, then by name."""
    fitting = (tool for tool in _TOOLS if test_name in tool.tests)
    return tuple(sorted(fitting, key=lambda tool: (-tool.preference, tool.name)))


def available(path_lookup: PathLookup) -> Mapping[str, Tool]:
    """The tools whose programs are found, by name."""
    found = {
        tool.name: tool
        for tool in _TOOLS
        if tool.requirement is None or path_lookup(tool.requirement.program)
    }
    return MappingProxyType(found)


def missing(tool: Tool, node: str) -> str:
    """``iperf3 is not installed on b; apt install iperf3``."""
    package = tool.requirement.package if tool.requirement else "python3"
    return f"{tool.name} is not installed on {node}; apt install {package}"
