"""The spec of dns, the command of its tool, and the parsing of its output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Part
from node.plugins.tests.dns import TEST, DnsSpec
from node.plugins.tools.dnspython import TOOL
from tests.unit.plugins.parts import context, printed, spec

MS = 1_000_000
RECORD = {"name": "www.example.", "type": "A", "ttl_s": 300, "value": "192.0.2.80"}
ANSWER = {
    "server": "192.0.2.53",
    "tries": 1,
    "time_ns": 20 * MS,
    "total_ns": 21 * MS,
    "rcode": "NOERROR",
    "answers": [RECORD],
    "authoritative": False,
    "truncated": False,
    "authenticated": True,
    "recursion_available": True,
}


@pytest.mark.parametrize(
    "name",
    ["a..b", "", "a b", "$(id)", "größe.example", "a" * 64, "a." * 127, "a\n", 5, "::1"],
)
def test_invalid_names(name: object) -> None:
    """Only names that can be queried are accepted."""
    with pytest.raises(ValidationError):
        DnsSpec.model_validate({"name": name})


@pytest.mark.parametrize("name", ["-oX", "example.", ".", "_sip._tcp.example", "0/25.example"])
def test_valid_names(name: str) -> None:
    """Services, parts of networks and the root are names; so is one that looks like an option."""
    assert DnsSpec.model_validate({"name": name}).name == name


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "ANY"},
        {"type": "a"},
        {"server": "-x"},
        {"server": "192.0.2.1 "},
        {"port": 0},
        {"tries": 11},
        {"timeout": "PT2M"},
        {"rcode": "NXDOMAIN", "expected": "x"},
        {"expected": ""},
        {"protocol": "tls"},
        {"protocol": "quic"},
        {"server": "b.example", "path": "/dns-query"},
        {"server": "b.example", "protocol": "https", "path": "x?a=b"},
        {"server": "b.example", "protocol": "tcp", "server_name": "c.example"},
        {"server": "b.example", "verify": False},
        {"answers_min": 101},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Impossible queries, and expectations that cannot be met, are refused."""
    with pytest.raises(ValidationError):
        DnsSpec.model_validate({"name": "a.example"} | wrong)


def test_the_arguments_of_the_program() -> None:
    """The program gets the question, the server's address and the instant, all in one argument."""
    part = context("dns", name="-oX", server="b.example", type="PTR")
    command = TOOL.command(part)
    params = json.loads(command.argv[-1])
    assert (params["name"], params["type"], params["server"]) == ("-oX", "PTR", "192.0.2.2")
    assert params["first_ns"] == part.starts * 1000
    assert command.waits_itself
    assert json.loads(TOOL.command(context("dns")).argv[-1])["server"] is None


@pytest.mark.parametrize(
    ("fields", "port"),
    [({}, 53), ({"protocol": "tls"}, 853), ({"protocol": "https"}, 443), ({"port": 5353}, 5353)],
)
def test_the_port_is_that_of_the_protocol(fields: dict[str, Any], port: int) -> None:
    """Each protocol has its port, which is what the rules of targets are asked about."""
    part = context("dns", server="b.example", **fields)
    arguments = json.loads(TOOL.command(part).argv[-1])
    assert (arguments["port"], TEST.target_port(part.spec)) == (port, port)
    assert arguments["server_name"] == "b.example"


def test_the_booked_time() -> None:
    """The booked time is set-up, the server's name, every try, and wrap-up."""
    assert TOOL.duration(spec("dns", tries=2, timeout="PT3S")) == 9 * SECOND


def test_an_answer() -> None:
    """A result has the answer's records, a summary, and series with the time first."""
    result = TOOL.read(context("dns"), printed(ANSWER))
    assert result["answers"] == [RECORD]
    assert TEST.summary(result) == "192.0.2.80 in 20.00 ms"
    assert [(it.name, it.value) for it in TEST.metrics(result)] == [
        ("time_ms", 20),
        ("total_ms", 21),
        ("tries", 1),
        ("answers", 1),
        ("ttl_s", 300),
    ]


def test_long_answers_have_a_short_line() -> None:
    """The summary has three records and the number of the others."""
    result = TOOL.read(context("dns"), printed(ANSWER | {"answers": [RECORD] * 5}))
    assert TEST.summary(result) == "192.0.2.80, 192.0.2.80, 192.0.2.80 and 2 more in 20.00 ms"


def test_no_answer_is_a_failed_run_with_a_result() -> None:
    """Without an answer the run fails with that reason, and the tries are kept."""
    document = {"tries": 3, "server": "192.0.2.53", "total_ns": 6000 * MS, "failure": "no answer"}
    part = context("dns")
    merged = TEST.merge(part.spec, [Part(0, "a", TOOL.read(part, printed(document)))])
    assert merged.reason == "no answer"
    assert (merged.result or {})["tries"] == 3
    assert TEST.summary(merged.result or {}) == "no answer: no answer"


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure": "both"},
        {"rcode": None},
        {"tries": 4},
        {"time_ns": -1},
        {"answers": [RECORD | {"ttl_s": -1}]},
        {"answers": [RECORD] * 101},
        {"answers": [{"value": "x"}]},
        {"surprise": 1},
    ],
)
def test_impossible_output_is_refused(wrong: dict[str, Any]) -> None:
    """An impossible answer is refused."""
    with pytest.raises(ToolOutputError):
        TOOL.read(context("dns"), printed(ANSWER | wrong))
