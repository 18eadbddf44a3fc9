"""Paths by traceroute, mtr, scamper and tracepath: command lines, and recorded output."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins import registry
from node.plugins.contracts import Output, Privilege
from node.plugins.tests.trace import TEST
from node.plugins.tools import mtr, traceroute
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

TOOLS = ["mtr", "scamper", "tracepath", "traceroute"]
CHAIN = ["10.99.1.2", "10.99.2.2", "10.99.3.2"]
CHAIN6 = ["fd00:99:1::2", "fd00:99:2::2", "fd00:99:3::2"]


def read(tool: str, case: str, **fields: Any) -> dict[str, Any]:
    """Return the part read from a recorded case."""
    return registry.tools()[tool].read(context("trace", **fields), output(tool, case))


def argv(tool: str, **fields: Any) -> str:
    """Return the argv, or what our own program becomes for an IPv4 address."""
    command = registry.tools()[tool].command(context("trace", **fields)).argv
    if tool == "traceroute":
        return " ".join(command)
    params = json.loads(command[-1])
    assert params["host"] == "192.0.2.2"
    return " ".join(params["argv"]["4"])


@pytest.mark.parametrize(
    ("tool", "fields", "words"),
    [
        ("traceroute", {}, "traceroute -n -q 3 -m 30 -N 16 -w 2,0,0 -- 192.0.2.2"),
        (
            "traceroute",
            {"protocol": "tcp", "port": 443, "probes": 1, "wait": "PT1.5S", "ip_version": 4},
            "traceroute -n -q 1 -m 30 -N 16 -w 1.5,0,0 -T -p 443 -4 -- 192.0.2.2",
        ),
        (
            "traceroute",
            {"protocol": "icmp", "names": True, "as_numbers": True, "length": 1400},
            "traceroute -q 3 -m 30 -N 16 -w 2,0,0 -I -A -- 192.0.2.2 1400",
        ),
        ("mtr", {}, "mtr --raw -n -c 3 -i 1 -G 2 -Z 2 -m 30 -U 30 -u -- ADDRESS"),
        (
            "mtr",
            {"protocol": "tcp", "names": True, "hops_max": 5, "wait": "PT1.5S"},
            "mtr --raw -c 3 -i 1 -G 2 -Z 2 -m 5 -U 5 -T -P 80 -- ADDRESS",
        ),
        (
            "scamper",
            {"protocol": "tcp"},
            "scamper -O json -p 50 -c trace -P tcp -Q -q 3 -w 2 -m 30 -g 5 -d 80 -i ADDRESS",
        ),
        (
            "scamper",
            {},
            "scamper -O json -p 50 -c trace -P udp-paris -Q -q 3 -w 2 -m 30 -g 5 -i ADDRESS",
        ),
        ("tracepath", {"names": True}, "tracepath -b -m 30 -- ADDRESS"),
    ],
)
def test_command_lines(tool: str, fields: dict[str, Any], words: str) -> None:
    """Options come first, then the address of dest."""
    assert argv(tool, **fields) == words


@pytest.mark.parametrize(
    ("fields", "able"),
    [
        ({}, TOOLS),
        ({"protocol": "tcp"}, ["mtr", "scamper", "traceroute"]),
        ({"protocol": "icmp"}, ["mtr", "scamper", "traceroute"]),
        ({"probes": 3}, ["mtr", "scamper", "traceroute"]),
        ({"probes": 1, "wait": "PT1S"}, TOOLS),
        ({"wait": "PT2S"}, ["mtr", "scamper", "traceroute"]),
        ({"names": True}, ["mtr", "tracepath", "traceroute"]),
        ({"as_numbers": True}, ["traceroute"]),
        ({"length": 100}, ["mtr", "traceroute"]),
        ({"ip_version": 6}, TOOLS),
    ],
)
def test_tools_say_what_they_cannot(fields: dict[str, Any], able: list[str]) -> None:
    """Each tool that does not support a spec says so, beginning with its name."""
    reasons = {name: registry.tools()[name].can(spec("trace", **fields)) for name in TOOLS}
    assert [name for name, reason in reasons.items() if reason is None] == able
    assert all(reason is None or reason.startswith(name) for name, reason in reasons.items())


def test_required_privileges() -> None:
    """All need raw sockets except for UDP; scamper needs root for a moment, tracepath nothing."""
    needed = {
        (name, protocol): needs.privilege(spec("trace", protocol=protocol))
        for name in TOOLS
        for protocol in ("udp", "icmp", "tcp")
        if (needs := registry.tools()[name].requirement) is not None
    }
    assert {needed["mtr", each] for each in ("udp", "icmp", "tcp")} == {Privilege.RAW}
    assert {needed["scamper", each] for each in ("udp", "icmp", "tcp")} == {Privilege.ROOT}
    assert needed["tracepath", "udp"] is needed["traceroute", "udp"] is None
    assert needed["traceroute", "icmp"] is needed["traceroute", "tcp"] is Privilege.RAW


@pytest.mark.parametrize(
    ("tool", "seconds"),
    [("traceroute", 6 * 2), ("mtr", 9 + 2), ("scamper", 90 * 2.02), ("tracepath", 30 * 3)],
)
def test_the_booked_time_holds_a_path_where_nobody_answers(tool: str, seconds: float) -> None:
    """The booked time covers all packets being lost, and two seconds for the rest."""
    booked = registry.tools()[tool].duration(spec("trace"))
    assert seconds * SECOND < booked <= (seconds + 2) * SECOND


@pytest.mark.parametrize("tool", TOOLS)
def test_paths_through_a_chain(tool: str) -> None:
    """Both IP versions give three hops; silence, few hops and refusals end a path early."""
    reached = read(tool, "reached")
    assert (reached["path"], reached["reached"]) == (CHAIN, True)
    assert all(hop["lost"] == 0 for hop in reached["hops"])
    assert read(tool, "ipv6")["path"] == CHAIN6
    silent = read(tool, "silent", hops_max=4)
    assert (silent["path"], silent["reached"], silent["hops_tried"]) == (CHAIN[:1], False, 4)
    few = read(tool, "too-few-hops", hops_max=2)
    assert (few["path"], few["reached"]) == (CHAIN[:2], False)
    for case in ("no-network", "prohibited"):
        refused = read(tool, case, hops_max=5)
        assert (refused["path"], refused["reached"]) == (CHAIN[:2], False)


@pytest.mark.parametrize(
    ("tool", "case", "summary"),
    [
        ("scamper", "no-network", "stops after hop 2 (10.99.2.2 says !N)"),
        ("scamper", "prohibited", "stops after hop 2 (10.99.2.2 says !X)"),
        ("traceroute", "no-network", "stops after hop 2 (10.99.2.2 says !N)"),
        ("traceroute", "prohibited", "stops after hop 2 (10.99.2.2 says !X)"),
        ("tracepath", "no-network", "stops after hop 2 (10.99.2.2 says !N)"),
        ("tracepath", "prohibited", "stops after hop 2 (10.99.2.2 says !H)"),
        ("mtr", "no-network", "stops after hop 2 (10.99.2.2)"),
    ],
)
def test_refusals_are_quoted(tool: str, case: str, summary: str) -> None:
    """A router's refusal is shown by the tools that report it."""
    assert TEST.summary(read(tool, case, hops_max=5)) == summary


@pytest.mark.parametrize("tool", ["mtr", "scamper", "traceroute"])
def test_other_protocols(tool: str) -> None:
    """ICMP and TCP find the same path."""
    assert read(tool, "icmp", protocol="icmp", probes=2)["path"] == CHAIN
    tcp = read(tool, "tcp", protocol="tcp", port=81, probes=1)
    assert (tcp["path"], tcp["protocol"]) == (CHAIN, "tcp")


@pytest.mark.parametrize("tool", ["mtr", "tracepath", "traceroute"])
def test_names_of_hops(tool: str) -> None:
    """Names are kept with the addresses, if requested."""
    hops = read(tool, "names", names=True)["hops"]
    assert [hop["addresses"][0]["name"] for hop in hops][-1] == "d.example"
    assert [hop["addresses"][0]["address"] for hop in hops] == CHAIN


def test_only_scamper_keeps_to_one_path() -> None:
    """Scamper's packets all take one path where routers balance load, and the result says so."""
    parting = read("traceroute", "parting", probes=6)
    assert not parting["paris"]
    assert {each["address"] for each in parting["hops"][1]["addresses"]} == {
        "10.99.2.2",
        "10.99.5.2",
    }
    result = read("scamper", "parting")
    assert result["paris"]
    assert [each["address"] for each in result["hops"][1]["addresses"]] == ["10.99.5.2"]
    assert not read("scamper", "ipv6")["paris"]  # see _METHODS


@pytest.mark.parametrize("tool", TOOLS)
def test_failures_say_their_cause(tool: str) -> None:
    """A tool that could not send or was ended is not a result, and the cause comes first."""
    with pytest.raises(ToolOutputError) as failure:
        read(tool, "unknown-host")
    sentence = f"{tool}: unknown.invalid: Temporary failure in name resolution"
    assert failure.value.detail == sentence
    with pytest.raises(ToolOutputError, match=f"^{tool} had not finished at the end of the run"):
        read(tool, "terminated")


@pytest.mark.parametrize(
    ("case", "protocol", "told"),
    [
        (
            "no-ethernet",
            "tcp",
            "it stopped with ERROR after hop 0; it cannot send TCP without Ethernet, as others can",
        ),
        ("no-route", "udp", "203.0.113.9: Network is unreachable"),
    ],
)
def test_scamper_that_could_not_send_is_no_path(case: str, protocol: str, told: str) -> None:
    """A scamper that sent nothing exits with 0; only its stop reason differs from a silent path."""
    with pytest.raises(ToolOutputError) as failure:
        read("scamper", case, protocol=protocol)
    assert failure.value.detail.removeprefix("scamper: ").startswith(told)


def test_numbers_of_autonomous_systems() -> None:
    """AS numbers are kept with the address that they belong to."""
    fields = {"names": True, "as_numbers": True, "probes": 2}
    result = read("traceroute", "as-numbers", **fields)
    assert result["path"] == CHAIN
    [last] = result["hops"][2]["addresses"]
    assert (last["name"], last["as_numbers"]) == ("d.example", [64500, 64501])
    unknown = read("traceroute", "as-numbers-unknown", as_numbers=True, probes=1)
    assert unknown["path"] == CHAIN
    assert unknown["hops"][0]["addresses"][0]["as_numbers"] == []
    text = (
        "traceroute to b (192.0.2.9), 30 hops max, 60 byte packets\n"
        " 1  r.example (192.0.2.1) [AS64500/AS64501]  1.5 ms !H 192.0.2.3 [*]  2.5 ms *\n"
    )
    part = context("trace", as_numbers=True)
    [hop] = traceroute.TOOL.read(part, Output(0, text.encode(), b""))["hops"]
    assert [each["as_numbers"] for each in hop["addresses"]] == [[64500, 64501], []]
    assert [each["name"] for each in hop["addresses"]] == ["r.example", None]
    assert (hop["addresses"][0]["said"], hop["lost"]) == ("!H", 1)


@pytest.mark.parametrize(
    "lines",
    ["p 0 10 33000", "x 0 33000\np 1 10 33000", "x 0 33000\nh 0 nobody", "x 64 33000", "h 0 ::1"],
)
def test_impossible_output_of_mtr_is_refused(lines: str) -> None:
    """An answer without a packet, a hop that was not probed, and no packet at all are refused."""
    with pytest.raises(ToolOutputError, match=r"^mtr"):
        mtr.TOOL.read(context("trace"), Output(0, f"192.0.2.9\n{lines}\n".encode(), b""))


@pytest.mark.parametrize("tool", TOOLS)
def test_another_end_than_asked_is_no_path(tool: str) -> None:
    """Output that begins without an address is refused."""
    real = output(tool, "reached")
    cut = dataclasses.replace(real, stdout=real.stdout.replace(b"10.99.3.2", b"10.99.3.", 1))
    if tool == "traceroute":
        cut = dataclasses.replace(cut, stdout=cut.stdout.replace(b"(10.99.3.2", b"(10.99.3.", 1))
    with pytest.raises(ToolOutputError, match="not an address"):
        registry.tools()[tool].read(context("trace"), cut)
