"""pScheduler's trace, dns, http, mtu, clock, psresponse and idleex in its words and ours."""

from __future__ import annotations

import dataclasses

import pytest

from node.model.times import SECOND, parse_instant
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.registry import LANGUAGES
from tests.golden.recorded import output
from tests.support.pscheduler_outcomes import outcome_of

TRACE, DNS, HTTP, MTU = (LANGUAGES[name] for name in ("trace", "dns", "http", "mtu"))
CLOCK, PSRESPONSE, IDLEEX = (LANGUAGES[name] for name in ("clock", "psresponse", "idleex"))

QUESTION = {"query": "www.example", "record": "a"}
PAGE = {"url": "http://127.0.0.1/page"}
HOST_CLOCK = {"synchronised": True, "error_bound_ms": 1.5, "stepped_ms": 0.0, "identity": "x"}
OFFSET = Outcome(
    "stamp",
    {
        "offset_ms": -0.25,
        "bound_ms": 0.1,
        "clocks": {"source": HOST_CLOCK, "dest": {**HOST_CLOCK, "synchronised": False}},
    },
    at=parse_instant("2026-11-22T08:10:05Z"),
)


def test_a_trace_is_told_hop_by_hop() -> None:
    """Each hop has an address and a time; a hop that did not answer is empty."""
    outcome = outcome_of("trace", "traceroute", [output("traceroute", "reached")])
    result = TRACE.result({"dest": "b.example"}, outcome)
    [path] = result["paths"]
    assert all(not hop or {"ip", "rtt"} <= hop.keys() for hop in path)
    lines = TRACE.text({}, result).splitlines()
    assert lines[0].startswith(f"1       {path[0]['ip']}")
    assert len(lines) == len(path)
    assert str(TRACE.html({}, result)).count("<tr>") == len(path) + 1


def test_several_packets_per_hop_are_several_paths() -> None:
    """There are as many paths as queries, each of the same length."""
    outcome = outcome_of("trace", "traceroute", [output("traceroute", "reached")])
    result = TRACE.result({"dest": "b.example", "queries": 3}, outcome)
    assert len({len(path) for path in result["paths"]}) == 1
    assert TRACE.text({}, result).count("Path ") == 3


def test_silent_hops_are_told() -> None:
    """Hops beyond the last one that answered are told as silent, up to the last one tried."""
    result = TRACE.result(
        {"dest": "b.example"},
        Outcome("traceroute", {"hops": [], "hops_tried": 3, "reached": False}),
    )
    assert result["paths"] == [[{}, {}, {}]]
    assert TRACE.text({}, result).splitlines()[2] == "3       No Response"


def test_autonomous_systems_and_errors_are_told() -> None:
    """A hop is told with its system's number and the name of its error."""
    answer = {
        "address": "192.0.2.9", "name": "r.example", "as_numbers": [64_500], "rtts_ms": [1.25],
        "said": "!H",
    }  # fmt: skip
    measured = {"hops": [{"ttl": 1, "addresses": [answer]}], "hops_tried": 1, "reached": False}
    result = TRACE.result({"dest": "b"}, Outcome("traceroute", measured))
    assert result["paths"] == [
        [{
            "ip": "192.0.2.9", "hostname": "r.example", "as": {"number": 64_500},
            "error": "host-unreachable", "rtt": "PT0.00125S",
        }]
    ]  # fmt: skip
    line = "1       r.example (192.0.2.9) 1.2 ms host-unreachable\n          AS64500"
    assert TRACE.text({}, result) == line


def test_traces_keep_pschedulers_defaults() -> None:
    """One packet per hop, and as long for an answer as the tool waits; Paris needs scamper."""
    ours = TRACE.to_parley({"dest": "b", "algorithm": "paris-traceroute"}, ["a"])
    assert (ours.spec["probes"], ours.spec["names"], "wait" in ours.spec) == (1, False, False)
    assert ours.tools == ("scamper",)
    assert TRACE.to_parley({"dest": "b"}, ["a"]).spec["names"] is True
    assert TRACE.duration({"dest": "b", "wait": "PT2S"}) == 10 * SECOND
    assert TRACE.from_parley("trace", ours.spec)["queries"] == 1  # type: ignore[index]


def test_open_specs_may_have_other_members() -> None:
    """A member that came later, or that nobody knows, is no fault of an open spec."""
    TRACE.check({"dest": "b", "flow-label": 7, "x": 1})
    with pytest.raises(Refusal, match="no tool here sets a flow label"):
        TRACE.to_parley({"dest": "b", "flow-label": 7}, ["a"])


def test_dns_records_have_the_form_of_their_type() -> None:
    """Addresses are a list, exchanges are objects, and an alias is a text."""
    outcome = outcome_of("dns", "dnspython", [output("dnspython", "answer")])
    result = DNS.result(QUESTION, outcome)
    assert result["record"] == ["192.0.2.81", "192.0.2.80"]
    assert result["time"] == "PT0.008489S"
    text = "Time ......... PT0.008489S\nA ............ 192.0.2.81\nA ............ 192.0.2.80"
    assert DNS.text(QUESTION, result) == text
    assert str(DNS.html(QUESTION, result)).count("<tr>") == 3


@pytest.mark.parametrize(
    ("kind", "value", "record", "line"),
    [
        ("mx", "10 mail.example.", [{"pref": 10, "mx": "mail.example."}],
         "MX ........... mail.example. preference 10"),
        ("cname", "www.example.", "www.example.", "CNAME ........ www.example."),
        ("txt", "v=spf1 -all", ["v=spf1 -all"], "TXT .......... v=spf1 -all"),
        ("soa", "ns. root. 1 2 3 4 5",
         {"nameserver": "ns.", "owner": "root.", "serial": 1, "refresh": 2, "retry": 3,
          "expire": 4, "minimum": 5}, "Expire ....... 4"),
    ],
)  # fmt: skip
def test_other_dns_records(kind: str, value: str, record: object, line: str) -> None:
    """Each type of record has a form of its own."""
    spec = {"query": "example", "record": kind}
    answers = [{"name": "example.", "type": kind.upper(), "ttl_s": 1, "value": value}]
    result = DNS.result(spec, Outcome("dnspython", {"time_ms": 1.0, "answers": answers}))
    assert result["record"] == record
    assert line in DNS.text(spec, result).splitlines()


def test_a_dns_answer_without_records_fails() -> None:
    """A name that does not exist is a failed run with the server's answer."""
    outcome = outcome_of(
        "dns", "dnspython", [output("dnspython", "unknown-name")], name="x.example"
    )
    result = DNS.result(QUESTION, outcome)
    assert not result["succeeded"]
    assert "NXDOMAIN" in result["error"]


def test_http_answers() -> None:
    """A result has time, status, and whether the text was found."""
    outcome = outcome_of("http", "fetch", [output("fetch", "redirected")], url=PAGE["url"])
    result = HTTP.result({**PAGE, "parse": "x"}, outcome)
    assert result == {
        "schema": 2, "succeeded": True, "time": "PT0.011064S", "status": 200, "found": True,
    }  # fmt: skip
    lines = [
        "Response Time ... PT0.011064S",
        "Status Code ..... 200",
        "String Found .... True",
    ]
    assert HTTP.text(PAGE, result).splitlines() == lines


def test_http_failures() -> None:
    """Nobody listening is a failure, unless any outcome is to count as a success."""
    outcome = outcome_of("http", "fetch", [output("fetch", "refused")], url=PAGE["url"])
    assert "Connection refused" in HTTP.result(PAGE, outcome)["error"]
    always = HTTP.result({**PAGE, "always-succeed": True}, outcome)
    assert (always["succeeded"], "status" in always) == (True, False)


def test_a_text_that_is_not_found_is_no_failure() -> None:
    """Our run fails then, and pScheduler's succeeds with ``found`` false."""
    outcome = outcome_of("http", "fetch", [output("fetch", "tls")], url=PAGE["url"])
    missed = dataclasses.replace(outcome, reason="'x' is not in the body")
    result = HTTP.result({**PAGE, "parse": "x"}, missed)
    assert (result["succeeded"], result["found"]) == (True, False)


def test_headers_of_http() -> None:
    """Headers are an object, and come back as words."""
    spec = HTTP.parse(["--url", PAGE["url"], "--header", "A: b", "--header", "C:d"])
    assert spec == {"schema": 4, **PAGE, "headers": {"A": "b", "C": "d"}}
    assert HTTP.words(spec)[2:] == ["--header", "A: b", "--header", "C: d"]
    assert HTTP.to_parley(spec, ["a"]).spec["headers"] == {"A": "b", "C": "d"}
    with pytest.raises(Refusal, match="is not a header; write 'Name: value'"):
        HTTP.parse(["--url", "x", "--header", "nonsense"])
    with pytest.raises(Refusal, match="results here never keep what a server sends"):
        HTTP.to_parley({**PAGE, "keep-content": 10}, ["a"])


def test_the_mtu() -> None:
    """The result is the largest packet; a host that never answers is a failure."""
    spec = {"dest": "b.example"}
    result = MTU.result(spec, outcome_of("mtu", "ping-df", [output("ping-df", "mtu")]))
    assert result == {"schema": 1, "succeeded": True, "mtu": 1400}
    assert MTU.text(spec, result) == "MTU ... 1400"
    with pytest.raises(Refusal, match="choose the ports"):
        MTU.to_parley({**spec, "port": 5000}, ["a"])


def test_clocks() -> None:
    """Both clocks are told at the start of the run, with the bound of their error in words."""
    spec = {"dest": "[2001:db8::1]:8443", "source": "a"}
    result = CLOCK.result(spec, OFFSET)
    assert result["local"] == {
        "time": "2026-11-22T08:10:05.000000+00:00",
        "synchronized": True,
        "source": "kernel",
        "reference": "kernel, with an error of at most 1.5 ms",
    }
    remote = {"time": "2026-11-22T08:10:04.999750+00:00", "synchronized": False}
    assert result["remote"] == remote
    assert result["difference"] == "PT0.00025S"
    assert CLOCK.text(spec, result).splitlines()[-1] == "Difference ... PT0.00025S"
    assert str(CLOCK.html(spec, result)).count("<tr>") == 4
    assert CLOCK.to_parley(spec, ["a"]).participants == ("a", "2001:db8::1")


def test_psresponse_asks_by_http() -> None:
    """A node that does not answer is a result without a time, with the reason."""
    spec = {"dest": "b.example"}
    ours = PSRESPONSE.to_parley(spec, ["a"])
    assert (ours.type, ours.spec["url"]) == ("http", "https://b.example/pscheduler/")
    answered = outcome_of("http", "fetch", [output("fetch", "tls")], url=PAGE["url"])
    assert PSRESPONSE.text(spec, PSRESPONSE.result(spec, answered)) == "Time ..... PT0.00435S"
    refused = outcome_of("http", "fetch", [output("fetch", "refused")], url=PAGE["url"])
    result = PSRESPONSE.result(spec, refused)
    assert (result["succeeded"], result["time"]) == (True, None)
    assert "Reason ... " in PSRESPONSE.text(spec, result)


def test_idleex_has_the_host_to_itself() -> None:
    """Its option for the node sets a member with an underscore, which is read as well."""
    spec = IDLEEX.parse(["-d", "PT2S", "--host-node", "n"])
    assert spec == {"schema": 1, "duration": "PT2S", "host_node": "n"}
    assert IDLEEX.participants(spec).names == ("n",)
    ours = IDLEEX.to_parley(spec, ["n"])
    assert ours.spec["class"] == "exclusive"
    back = {"schema": 1, "duration": "PT2S", "host": "n"}
    assert IDLEEX.from_parley("idle", ours.spec) == back
