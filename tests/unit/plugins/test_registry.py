"""The contract of every registered test and tool, and the registry itself."""

from __future__ import annotations

import dataclasses
import re

import pytest
from pydantic import ValidationError

from node.execution.catalog import Capabilities
from node.plugins import registry
from node.plugins.conformity import checks_of_test, checks_of_tool
from node.plugins.contracts import Test, Tool
from node.plugins.tools.sleep import SleepTool
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

TESTS = sorted(registry.tests())
TOOLS = sorted(registry.tools())


def test_the_first_set() -> None:
    """The first set of tests and tools is registered under their names."""
    assert TESTS == [
        "clock", "dns", "http", "idle", "idlebg", "interface", "latency", "latencybg", "mtu",
        "ntp", "rtt", "simplestream", "snmp", "tcp", "throughput", "tls", "trace",
    ]  # fmt: skip
    assert TOOLS == [
        "connect", "curl", "dnspython", "fetch", "fping", "handshake", "iperf3", "irtt", "mtr",
        "ntpclient", "nuttcp", "owping", "ping", "ping-df", "powstream", "procnet", "scamper",
        "simplestreamer", "sleep", "sleepbg", "snmpget", "stamp", "stampbg", "tracepath",
        "traceroute",
    ]  # fmt: skip
    assert all(test.name == name for name, test in registry.tests().items())


@pytest.mark.parametrize(
    ("name", "scheduling_class"),
    [
        ("clock", "background"),
        ("dns", "background"),
        ("http", "background"),
        ("idle", "background"),
        ("idlebg", "background-multi"),
        ("interface", "background-multi"),
        ("latency", "normal"),
        ("latencybg", "background-multi"),
        ("mtu", "background"),
        ("ntp", "background"),
        ("rtt", "background"),
        ("simplestream", "background"),
        ("snmp", "background"),
        ("tcp", "background"),
        ("throughput", "exclusive"),
        ("tls", "background"),
        ("trace", "background"),
    ],
)
def test_scheduling_classes(name: str, scheduling_class: str) -> None:
    """Each test has the scheduling class that its figures need."""
    assert registry.tests()[name].scheduling_class(spec(name)) == scheduling_class


@pytest.mark.parametrize("name", TESTS)
def test_every_test_has_a_tool(name: str) -> None:
    """Every test can be measured with at least one tool."""
    assert registry.tools_for(name)


def test_the_best_tool_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of a test are sorted by preference, then by name."""

    class Nap(SleepTool):
        name = "nap"

    class Doze(SleepTool):
        name = "doze"
        preference = 1

    tools: dict[str, Tool] = {"sleep": SleepTool(), "nap": Nap(), "doze": Doze()}
    monkeypatch.setattr(registry, "tools", lambda: tools)
    assert [tool.name for tool in registry.tools_for("idle")] == ["doze", "nap", "sleep"]
    assert registry.tools_for("rtt") == ()


@pytest.mark.parametrize("name", TESTS)
def test_tests_keep_the_contract(name: str) -> None:
    """Every test of ours passes the checks of ``parley plugin test``."""
    faults = [check for check in checks_of_test(registry.tests()[name]) if check.fault]
    assert faults == []


@pytest.mark.parametrize("name", TESTS)
def test_defaults_have_the_type_of_their_schema(name: str) -> None:
    """The default of a duration in the JSON schema is ISO 8601, as its type says."""
    for described in registry.tests()[name].spec_model.model_json_schema()["properties"].values():
        if described.get("format") == "duration":
            assert re.fullmatch(r"P.*T.+", described["default"])


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("bad", [{"nonsense": 1}, {"dest": "-x"}, {"count": "many"}, 5, None, []])
def test_bad_specs_are_refused(name: str, bad: object) -> None:
    """A spec with an unknown field or a wrong value is refused by the model."""
    with pytest.raises(ValidationError):
        registry.tests()[name].spec_model.model_validate(bad)


@pytest.mark.parametrize(
    ("test", "tool", "case"), [("rtt", "ping", "loopback"), ("throughput", "iperf3", "tcp-client")]
)
def test_finished_output_counts(test: str, tool: str, case: str) -> None:
    """A program that had reported everything when the launcher ended it has a result."""
    ended = dataclasses.replace(output(tool, case), ended_by="end")
    part = context(test)
    assert registry.tools()[tool].read(part, ended) == registry.tools()[tool].read(
        part, output(tool, case)
    )


@pytest.mark.parametrize("name", TOOLS)
def test_tools_keep_the_contract(name: str) -> None:
    """Every tool of ours passes the checks of ``parley plugin test``."""
    tool = registry.tools()[name]
    faults = [check for check in checks_of_tool(tool, registry.tests()) if check.fault]
    assert faults == []


def test_a_result_of_another_version_has_no_figures() -> None:
    """A result that this version cannot read, or whose test is unknown, has no figures."""
    capabilities = Capabilities()
    idled = {"participants": 1, "duration_ms": 250.0}
    assert [metric.value for metric in capabilities.metrics("idle", idled)] == [250.0]
    assert capabilities.metrics("idle", {"slept": "well"}) == ()
    assert capabilities.metrics("astrology", idled) == ()


def test_types_fulfil_the_protocols() -> None:
    """The type checker sees tests as tests and tools as tools."""
    tests: dict[str, Test] = dict(registry.tests())
    tools: dict[str, Tool] = dict(registry.tools())
    assert len(tests) == len(TESTS)
    assert len(tools) == len(TOOLS)
