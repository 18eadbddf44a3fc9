"""The largest packet on a path: the search for it, and the output of tracepath and pings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins import registry
from node.plugins.contracts import Output, Part
from node.plugins.tests.mtu import TEST, MtuSpec
from node.plugins.tools import ping_df
from node.plugins.tools.programs.mtu_search import ProbeOutcome, outcome_of, search, search_at_once
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, printed, spec

FOUND = {"address": "192.0.2.2", "mtu": 1400, "limits": [["192.0.2.1", 1400]], "vanished": None}


def read(tool: str, case: str, **fields: Any) -> dict[str, Any]:
    """Return the part read from a recorded case."""
    return registry.tools()[tool].read(context("mtu", **fields), output(tool, case))


@given(
    st.lists(st.integers(68, 9000), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(68, 65_535),
)
def test_the_search_finds_the_largest(links: list[int], talking: list[bool], most: int) -> None:
    """The search finds the smallest link in few attempts, whether routers report limits or not."""
    tried = []

    def attempt(size: int) -> ProbeOutcome:
        tried.append(size)
        for link, tells in zip(links, talking, strict=False):
            if size > link:
                return ProbeOutcome(told_by="r", mtu=link) if tells else ProbeOutcome()
        return ProbeOutcome(answered=True)

    bounds = search(attempt, 68, most)
    assert bounds is not None
    assert bounds.fits == min(*links, most) if most >= 68 else 68
    silent = [size for size in list(tried) if attempt(size).silent]
    assert bounds.vanished == min(silent, default=None)
    assert len(set(tried)) <= 1 + 16 + len(links)


@given(
    st.lists(st.integers(68, 9000), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(68, 65_535),
    st.integers(0, 99_999),
)
def test_the_search_at_once_finds_the_largest(
    links: list[int], talking: list[bool], most: int, nonsense: int
) -> None:
    """A few rounds find the same, also if a router tells nonsense."""
    rounds = 0

    def attempt_one(size: int) -> ProbeOutcome:
        for link, tells in zip(links, talking, strict=False):
            if size > link:
                mtu = link if nonsense % 2 else nonsense
                return ProbeOutcome(told_by="r", mtu=mtu) if tells else ProbeOutcome()
        return ProbeOutcome(answered=True)

    def attempt(sizes: Sequence[int]) -> list[ProbeOutcome]:
        nonlocal rounds
        rounds += 1
        assert len(sizes) <= 17
        return [attempt_one(size) for size in sizes]

    bounds = search_at_once(attempt, 68, most)
    assert bounds is not None
    assert bounds.fits == min(*links, most)
    assert rounds <= 6
    assert search_at_once(lambda sizes: [ProbeOutcome()] * len(sizes), 68, 1500) is None


def test_the_search_at_once_takes_three_rounds_of_a_usual_link() -> None:
    """Between 68 and 1500 bytes, three rounds of pings tell the largest packet to the byte."""
    for link in range(68, 1501):
        rounds = []

        def attempt(sizes: Sequence[int], link: int = link) -> list[ProbeOutcome]:
            rounds.append(sizes)  # noqa: B023 - called before the next one
            return [ProbeOutcome(answered=size <= link) for size in sizes]

        bounds = search_at_once(attempt, 68, 1500)
        assert bounds is not None
        assert bounds.fits == link
        assert len(rounds) <= 3 + (link == 1499)


def test_one_lost_packet_proves_nothing() -> None:
    """A packet that was lost by chance is sent again, if all others get through."""
    lost = [1500]

    def once(sizes: Sequence[int]) -> list[ProbeOutcome]:
        found = [ProbeOutcome(answered=size not in lost) for size in sizes]
        lost[:] = [size for size in lost if size not in sizes]
        return found

    bounds = search_at_once(once, 68, 1500)
    assert bounds is not None
    assert (bounds.fits, bounds.vanished) == (1500, None)


def test_a_router_that_tells_nonsense_does_not_stop_the_search() -> None:
    """A reported limit may be larger than the packet, or smaller than what passes, or zero."""
    for told in (0, 1, 99_999, 1500):
        bounds = search(
            lambda size, told=told: (
                ProbeOutcome(answered=size <= 1400)  # type: ignore[misc]
                if size <= 1400
                else ProbeOutcome(told_by="r", mtu=told)
            ),
            68,
            1500,
        )
        assert bounds is not None
        assert bounds.fits == 1400
    assert search(lambda _: ProbeOutcome(), 68, 1500) is None


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("36 bytes from 192.0.2.2: icmp_seq=1 ttl=62 time=0.1 ms", ProbeOutcome(answered=True)),
        ("ping: local error: message too long, mtu=1400", ProbeOutcome(own=True, mtu=1400)),
        ("ping: local error: message too long, mtu: 1400", ProbeOutcome(own=True, mtu=1400)),
        (
            "From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)",
            ProbeOutcome(told_by="192.0.2.1", mtu=1400),
        ),
        ("From ::1 icmp_seq=1 Packet too big: mtu=1280", ProbeOutcome(told_by="::1", mtu=1280)),
        (
            "From 192.0.2.1 icmp_seq=1 Destination Net Unreachable",
            ProbeOutcome(said="Destination Net Unreachable (from 192.0.2.1)"),
        ),
        ("1 packets transmitted, 0 received", ProbeOutcome()),
    ],
)
def test_the_outcomes_of_a_ping(text: str, outcome: ProbeOutcome) -> None:
    """An answer, a reported limit, another error, and silence are distinguished."""
    assert outcome_of(text) == outcome


@pytest.mark.parametrize("tool", ["ping-df", "tracepath"])
def test_a_narrow_link_in_the_middle(tool: str) -> None:
    """A link with an MTU of 1400 in a chain is found, with the router that reports it."""
    part = read(tool, "mtu")
    assert (part["mtu_bytes"], part["reached"], part["confirmed_to"]) == (1400, True, "10.99.3.2")
    assert part["limits"] == [
        {"address": None, "mtu_bytes": 1500},
        {"address": "10.99.1.2", "mtu_bytes": 1400},
    ]
    assert TEST.summary(part) == "1400 bytes to 10.99.3.2, limited by 10.99.1.2"
    assert TEST.metrics(part)[0].value == 1400
    six = read(tool, "mtu-ipv6")
    assert (six["mtu_bytes"], six["limits"][-1]["address"]) == (1400, "fd00:99:1::2")
    again = read(tool, "mtu-remembered")
    assert TEST.summary(again) == "1400 bytes to 10.99.3.2"
    assert again["limits"] == [{"address": None, "mtu_bytes": 1400}]


def test_a_black_hole() -> None:
    """Longer packets that vanish without a report are recognised as a black hole."""
    part = read("ping-df", "black-hole", mtu_max_bytes=1500)
    assert (part["mtu_bytes"], part["black_hole"]) == (1304, True)
    assert TEST.summary(part) == "1304 bytes to 10.99.3.2, longer ones vanish silently"
    unsure = read("tracepath", "black-hole", hops_max=4)
    assert (unsure["reached"], unsure["black_hole"]) == (False, None)


def test_a_silent_end_is_a_failure_with_partial_figures() -> None:
    """The size that passes as far as the last answer is kept with the failed run."""
    part = read("tracepath", "mtu-silent", hops_max=3)
    merged = TEST.merge(spec("mtu"), [Part(0, "a", part)])
    assert merged.reason == "10.99.9.1 did not answer; 1400 bytes pass as far as 10.99.1.2"
    assert merged.result == part
    assert TEST.summary(part) == "1400 bytes to 10.99.1.2 only, limited by 10.99.1.2"


@pytest.mark.parametrize(
    ("tool", "case", "sentence"),
    [
        ("ping-df", "silent", "ping-df: 10.99.9.1 answers no echo request of 68 bytes"),
        (
            "ping-df",
            "unknown-host",
            "ping-df: unknown.invalid: Temporary failure in name resolution",
        ),
        ("tracepath", "terminated", "tracepath had not finished at the end of the run"),
    ],
)
def test_failures_say_their_cause(tool: str, case: str, sentence: str) -> None:
    """A failed measurement has a reason."""
    with pytest.raises(ToolOutputError) as failure:
        read(tool, case)
    assert failure.value.detail == sentence


@pytest.mark.parametrize(
    "wrong",
    [
        {"mtu": 1501},
        {"vanished": 1400},
        {"mtu": 0},
        {"address": "nobody"},
        {"limits": [["nobody", 1400]]},
        {"limits": [["192.0.2.1", -1]]},
    ],
)
def test_impossible_output_is_refused(wrong: dict[str, Any]) -> None:
    """Sizes that were not tried, sizes that pass and vanish, and bad addresses are refused."""
    part = context("mtu", mtu_max_bytes=1500)
    assert ping_df.TOOL.read(part, printed(FOUND))["mtu_bytes"] == 1400
    with pytest.raises(ToolOutputError, match="ping-df"):
        ping_df.TOOL.read(part, printed(FOUND | wrong))


def test_tracepath_that_contradicts_itself() -> None:
    """A larger size than a reported limit is refused."""
    real = output("tracepath", "mtu").stdout.replace(b"Resume: pmtu 1400", b"Resume: pmtu 1500")
    with pytest.raises(ToolOutputError, match="contradicts itself"):
        registry.tools()["tracepath"].read(context("mtu"), Output(0, real, b""))


def test_the_commands() -> None:
    """The search gets its arguments in one document; tracepath gets the size to begin with."""
    argv = ping_df.TOOL.command(context("mtu", mtu_max_bytes=9000, ip_version=4)).argv
    params = json.loads(argv[-1])
    assert (params["host"], params["most"], params["ip_version"], params["wait_s"]) == (
        "192.0.2.2",
        9000,
        4,
        1,
    )
    tracepath = registry.tools()["tracepath"]
    words = json.loads(tracepath.command(context("mtu", mtu_max_bytes=9000)).argv[-1])
    assert " ".join(words["argv"]["6"]) == "tracepath -n -m 30 -l 9000 -- ADDRESS"
    assert tracepath.can(spec("mtu")) is None
    assert tracepath.can(spec("mtu", wait="PT2S")) == "tracepath always waits one second"


def test_the_booked_time_holds_a_search_in_the_dark() -> None:
    """The booked time covers every size being tried five times without an answer."""
    assert ping_df.TOOL.duration(spec("mtu", mtu_max_bytes=1500)) == (
        300_000 + SECOND + 12 * (2 * 1_050_000 + 3 * 200_000) + 500_000
    )


@pytest.mark.parametrize(
    "wrong", [{"mtu_max_bytes": 1279}, {"wait": "PT0.1S"}, {"hops_max": 0}, {"dest": "--help"}]
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Values outside the limits, or that could be an option, are refused."""
    with pytest.raises(ValidationError):
        MtuSpec.model_validate({"dest": "b"} | wrong)
