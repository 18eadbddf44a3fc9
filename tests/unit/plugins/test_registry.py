"""What every test and every tool keeps to, and what there is of them."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from pydantic import ValidationError

from node.plugins import registry
from node.plugins.contracts import Part, Requirement, StreamingTest, Test, Tool
from node.plugins.tools.sleep import SleepTool
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

TESTS = sorted(registry.tests())
TOOLS = sorted(registry.tools())


def test_the_first_set() -> None:
    """The first set of tests and tools is there, under their names."""
    assert TESTS == ["idle", "interface", "latency", "latencybg", "rtt", "throughput"]
    assert TOOLS == ["iperf3", "ping", "procnet", "sleep", "stamp", "stampbg"]
    assert all(test.name == name for name, test in registry.tests().items())


@pytest.mark.parametrize(
    ("name", "scheduling_class"),
    [
        ("idle", "background"),
        ("interface", "background-multi"),
        ("latency", "normal"),
        ("latencybg", "background-multi"),
        ("rtt", "background"),
        ("throughput", "exclusive"),
    ],
)
def test_scheduling_classes(name: str, scheduling_class: str) -> None:
    """Each test asks for the class that its figures need."""
    assert registry.tests()[name].scheduling_class(spec(name)) == scheduling_class


@pytest.mark.parametrize("name", TESTS)
def test_every_test_has_a_tool(name: str) -> None:
    """Every test can be measured with at least one tool."""
    assert registry.tools_for(name)


def test_the_best_tool_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of a test come by preference, then by name."""

    class Nap(SleepTool):
        name = "nap"

    class Doze(SleepTool):
        name = "doze"
        preference = 1

    monkeypatch.setattr(registry, "_TOOLS", (SleepTool(), Nap(), Doze()))
    assert [tool.name for tool in registry.tools_for("idle")] == ["doze", "nap", "sleep"]
    assert registry.tools_for("rtt") == ()


def test_a_missing_program_takes_its_tool_away() -> None:
    """A tool is available if its program is found, or if it needs none."""
    found = {"ping": "/bin/ping", "sleep": "/bin/sleep"}
    assert sorted(registry.available(found.get)) == ["ping", "procnet", "sleep", "stamp", "stampbg"]


def test_a_missing_tool_is_named_with_its_package() -> None:
    """The sentence for a missing tool says what to install."""
    iperf3 = registry.tools()["iperf3"]
    assert registry.missing(iperf3, "b") == "iperf3 is not installed on b; apt install iperf3"
    ping = registry.tools()["ping"]
    assert registry.missing(ping, "b") == "ping is not installed on b; apt install iputils-ping"


@pytest.mark.parametrize("name", TESTS)
def test_every_field_explains_itself(name: str) -> None:
    """Every field of every spec and result has a description in its JSON schema."""
    test = registry.tests()[name]
    streamed = (test.interval_model,) if isinstance(test, StreamingTest) else ()
    for model in (test.spec_model, test.result_model, *streamed):
        schema = model.model_json_schema()
        kinds = schema.get("$defs", {})
        for part in (schema, *kinds.values()):
            for field, described in part.get("properties", {}).items():
                kind = kinds.get(described.get("$ref", "").rpartition("/")[2], {})
                assert (described | kind).get("description"), (model.__name__, field)


@pytest.mark.parametrize("name", TESTS)
def test_defaults_have_the_type_of_their_schema(name: str) -> None:
    """The default of a duration in the JSON schema is ISO 8601, as its type says."""
    for described in registry.tests()[name].spec_model.model_json_schema()["properties"].values():
        if described.get("format") == "duration":
            assert re.fullmatch(r"P.*T.+", described["default"])


@pytest.mark.parametrize("name", TESTS)
def test_specs_survive_storage(name: str) -> None:
    """A spec written as JSON and read again is the same spec."""
    given = spec(name)
    model = registry.tests()[name].spec_model
    assert model.model_validate(json.loads(json.dumps(given.model_dump(mode="json")))) == given
    assert model.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("bad", [{"nonsense": 1}, {"dest": "-x"}, {"count": "many"}, 5, None, []])
def test_bad_specs_are_refused(name: str, bad: object) -> None:
    """A spec with an unknown field or a wrong value is refused by the model."""
    with pytest.raises(ValidationError):
        registry.tests()[name].spec_model.model_validate(bad)


@pytest.mark.parametrize("name", TESTS)
def test_a_merge_never_raises(name: str) -> None:
    """Parts that are missing, failed or nonsense make a failed run with a reason."""
    test, given = registry.tests()[name], spec(name)
    nonsense = [Part(0, "a", {"received": -1}), Part(1, "b", {"sent": "x"}), Part(7, "c", {})]
    failed = [Part(0, "a", None, "the disk is full"), Part(1, "b", None)]
    for parts in ([], nonsense, failed):
        merged = test.merge(given, parts)
        assert not merged.succeeded
        assert merged.result is None
        assert merged.reason
    assert "a: the disk is full" in str(test.merge(given, failed).reason)


@pytest.mark.parametrize(
    ("test", "tool", "case"), [("rtt", "ping", "loopback"), ("throughput", "iperf3", "tcp-client")]
)
def test_what_was_finished_counts(test: str, tool: str, case: str) -> None:
    """A program that had told all when the launcher came to end it has a result."""
    ended = dataclasses.replace(output(tool, case), ended_by="end")
    part = context(test)
    assert registry.tools()[tool].read(part, ended) == registry.tools()[tool].read(
        part, output(tool, case)
    )


@pytest.mark.parametrize("name", TOOLS)
def test_tools_keep_the_contract(name: str) -> None:
    """Every tool books a positive time, asks for ports, and starts a program by name or path."""
    tool = registry.tools()[name]
    for test_name in tool.tests:
        for participant in (0, 1):
            part = context(test_name, participant)
            command = tool.command(part)
            assert tool.duration(part.spec) > 0
            assert tool.needs_port(part.spec, participant) in {True, False}
            assert command.argv[0]
            assert all(isinstance(argument, str) for argument in command.argv)
    assert tool.requirement is None or isinstance(tool.requirement, Requirement)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_says_with_which_versions_it_was_tried(name: str) -> None:
    """A foreign program can be asked for its version, and was tried with at least one."""
    tool = registry.tools()[name]
    if tool.requirement is None:
        assert tool.tried == ()
    else:
        assert tool.requirement.version_argv[0] == tool.requirement.program
        assert re.compile(tool.requirement.version_pattern).groups == 1
        assert tool.tried


def test_types_fulfil_the_protocols() -> None:
    """The type checker sees tests as tests and tools as tools."""
    tests: dict[str, Test] = dict(registry.tests())
    tools: dict[str, Tool] = dict(registry.tools())
    assert len(tests) == len(TESTS)
    assert len(tools) == len(TOOLS)
