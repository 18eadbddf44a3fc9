"""Results of tasks that hosts of pScheduler lead, read as parts of our tests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.plugins.contracts import Part
from node.plugins.registry import tests as all_tests
from node.pscheduler.leading.results import part_of_result
from node.pscheduler.tests.dns import SOA

RTT = {"dest": "192.0.2.7", "count": 3}
TRIPS = [
    {"seq": 1, "length": 64, "ip": "192.0.2.7", "ttl": 64, "rtt": "PT0.001S"},
    {"seq": 2, "length": 64, "ip": "192.0.2.7", "ttl": 64, "rtt": "PT0.003S"},
    {"seq": 3, "error": "Destination Host Unreachable"},
]


def hop(address: str | None) -> dict[str, Any]:
    """Return an answer of a hop in 10 ms, or none."""
    return {} if address is None else {"ip": address, "rtt": "PT0.01S"}


def test_round_trips_become_figures() -> None:
    """Counts are those of the result, and the distribution is that of its round trips."""
    result = {"succeeded": True, "roundtrips": TRIPS, "loss": 1 / 3, "sent": 3, "received": 2}
    heard = part_of_result("rtt", RTT, result)
    assert heard.result is not None, heard.reason
    figures = all_tests()["rtt"].result_model.model_validate(heard.result).model_dump()
    assert (figures["sent"], figures["received"], figures["address"]) == (3, 2, "192.0.2.7")
    assert figures["rtt_ms"]["median"] == 2.0
    assert figures["jitter_ms"] == 2.0
    assert figures["errors"] == ("Destination Host Unreachable",)


def test_paths_become_hops() -> None:
    """A hop without an answer is a gap, and who answered at the end is the destination."""
    paths = [[hop("192.0.2.1"), hop(None), hop("192.0.2.7")]]
    heard = part_of_result("trace", {"dest": "192.0.2.7"}, {"succeeded": True, "paths": paths})
    assert heard.result is not None, heard.reason
    assert heard.result["reached"] is True
    assert heard.result["path"] == ["192.0.2.1", None, "192.0.2.7"]


@pytest.mark.parametrize(
    ("test", "result", "reason"),
    [
        ("rtt", {"succeeded": False, "error": "No route to host"}, "No route to host"),
        ("rtt", None, "it has no result"),
        ("rtt", {"succeeded": True, "roundtrips": "many"}, "its result is not understood"),
        ("rtt", {"succeeded": True, "roundtrips": [{"seq": 1, "rtt": "soon"}]}, "not understood"),
        ("trace", {"succeeded": True, "paths": [[{"ip": "here"}]]}, "its result is not understood"),
        ("idle", {"succeeded": True}, "its result is not understood"),
        ("dns", {"succeeded": False, "error": "Domain does not exist"}, "Domain does not exist"),
        ("dns", {"succeeded": True, "time": "PT0.1S"}, "it tells no record"),
        ("http", {"succeeded": False, "error": "404 Not Found"}, "404 Not Found"),
        ("http", {"succeeded": True, "time": "PT0.1S"}, "it does not tell the status"),
    ],
)
def test_what_is_no_result_has_a_reason(test: str, result: Any, reason: str) -> None:
    """A failed result keeps its error; one that cannot be read is told as such."""
    spec = SPECS[test] if test in {"dns", "http"} else {"dest": "b.example", "duration": "PT1S"}
    heard = part_of_result(test, spec, result)
    assert heard.result is None
    assert reason in str(heard.reason)


@pytest.mark.parametrize(
    ("kind", "record", "values"),
    [
        ("A", ["192.0.2.80", "192.0.2.81"], ["192.0.2.80", "192.0.2.81"]),
        ("CNAME", "www.example.", ["www.example."]),
        ("MX", [{"pref": 10, "mx": "mail.example."}], ["10 mail.example."]),
        ("TXT", ['"v=spf1 " "-all"', '"say \\"so\\""'], ["v=spf1 -all", 'say "so"']),
        (
            "SOA",
            dict(zip(SOA, ("ns.example.", "root.example.", 7, 3600, 600, 86400, 300), strict=True)),
            ["ns.example. root.example. 7 3600 600 86400 300"],
        ),
    ],
)
def test_answers_become_records(kind: str, record: Any, values: list[str]) -> None:
    """Records are as in a zone file; what the host does not tell of them is null."""
    spec = {"name": "www.example", "type": kind, "server": "192.0.2.53"}
    heard = part_of_result("dns", spec, {"succeeded": True, "time": "PT0.0204S", "record": record})
    assert heard.result is not None, heard.reason
    assert [each["value"] for each in heard.result["answers"]] == values
    assert {each["ttl_s"] for each in heard.result["answers"]} == {None}
    test = all_tests()["dns"]
    merged = test.merge(test.spec_model.model_validate(spec), [Part(0, "a", heard.result)])
    assert merged.reason is None
    assert test.summary(heard.result) == f"{', '.join(values)} in 20.40 ms"
    assert [each.name for each in test.metrics(heard.result)] == ["time_ms", "total_ms", "answers"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expected": "192.0.2.80", "answers_min": 1}, None),
        ({"answers_min": 2}, "the name server has 1 records of b A where 2 were expected"),
        ({"expected": "192.0.2.9"}, "the name server says 192.0.2.80 where 192.0.2.9 was expected"),
    ],
)
def test_what_an_answer_must_have_is_compared_here(
    fields: dict[str, Any], reason: str | None
) -> None:
    """The run fails if the records are not the expected ones, though the host is content."""
    told = {"succeeded": True, "time": "PT0.01S", "record": ["192.0.2.80"]}
    assert reason_of("dns", {"name": "b", **fields}, told) == reason


@pytest.mark.parametrize(
    ("fields", "told", "reason"),
    [
        ({}, {}, None),
        ({}, {"status": 404}, "b.example answered 404 Not Found"),
        ({"text": "x"}, {"found": True}, None),
        ({"text": "x"}, {"found": False}, "'x' is not in the body"),
    ],
)
def test_pages_become_figures(
    fields: dict[str, Any], told: dict[str, Any], reason: str | None
) -> None:
    """The time is that of all; phases, redirects and size are null, as the host tells none."""
    result = {"succeeded": True, "time": "PT0.0841S", "status": 200} | told
    spec = {"url": "http://b.example/", "verify": False, **fields}
    heard = part_of_result("http", spec, result)
    assert heard.result is not None, heard.reason
    assert (heard.result["total_ms"], heard.result["redirects"]) == (84.1, None)
    assert heard.result["matched"] == told.get("found")
    assert all_tests()["http"].summary(heard.result).endswith(" in 84.10 ms")
    assert reason_of("http", spec, result) == reason


def reason_of(name: str, spec: dict[str, Any], told: dict[str, Any]) -> str | None:
    """Return why a run with that result there fails here."""
    test = all_tests()[name]
    part = Part(0, "a", part_of_result(name, spec, told).result)
    return test.merge(test.spec_model.model_validate(spec), [part]).reason


NAMES = (
    "as", "duration", "error", "found", "ip", "mx", "number", "paths", "pref", "received", "record",
    "roundtrips", "rtt", "sent", "seq", "status", "time", *SOA,
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    | st.just("PT1S"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "dns": {"name": "b.example"},
    "http": {"url": "http://b.example/", "text": "x"},
    "idle": {"duration": "PT1S"},
    "rtt": RTT,
    "trace": {"dest": "192.0.2.7"},
}
FINE = {"time": "PT0.1S", "status": 200, "found": True, "duration": "PT1S", "roundtrips": TRIPS}
RECORDS = [["192.0.2.80"], "b.", [{"pref": 10, "mx": "b."}], dict.fromkeys(SOA, 7), ['"x"'], ['"']]
RESULTS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)
NEARLY = st.builds(
    lambda record, odd: {**FINE, "record": record, **odd},
    st.sampled_from(RECORDS),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=1),
)
KINDS = [*(("dns", {"name": "b", "type": each}) for each in ("MX", "SOA", "TXT")), *SPECS.items()]


@given(kind=st.sampled_from(KINDS), told=JSON | RESULTS | NEARLY)
def test_any_result_is_heard(kind: tuple[str, dict[str, Any]], told: Any) -> None:
    """A result of another host may be anything: it is one of ours, or there is a reason."""
    name, spec = kind
    result = {**told, "succeeded": True} if isinstance(told, dict) else told
    heard = part_of_result(name, spec, result)
    assert (heard.result is None) == (heard.reason is not None)
    if heard.result is not None:
        reason_of(name, spec, result)
