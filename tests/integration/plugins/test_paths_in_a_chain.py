"""Paths and their largest packets through a chain of real namespaces. Needs root.

::

    a ── 1500 ── b ── 1400 ── c ── 1500 ── d
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from node.execution import process
from node.execution.process import FinishedProcess
from node.plugins import registry
from node.plugins.contracts import Output, PartContext, Party
from tests.integration.host_leftovers import nothing_left
from tests.support.needs import fixture_needs

pytestmark = pytest.mark.timeout(60)

END, END6 = "10.97.3.2", "fd00:97:3::2"
PATH = ["10.97.1.2", "10.97.2.2", END]
MTUS = (1500, 1400, 1500)
SITES = "abcd"


def site(letter: str) -> str:
    """The namespace of a site; a lab removes it if we are killed."""
    return f"parley-{os.getpid()}-path-{letter}"


def ip(letter: str, *lines: str) -> None:
    """Several ``ip`` commands in one namespace."""
    argv = ["ip", "-n", site(letter), "-batch", "-"]
    finished = process.run(argv, timeout_s=20, stdin="\n".join(lines).encode())
    assert finished.exit_code == 0, finished.stderr


def forget() -> None:
    """Make the asking site forget what it has learned of paths."""
    for version in ("-4", "-6"):
        argv = ["ip", "-n", site("a"), version, "route", "flush", "cache"]
        assert process.run(argv, timeout_s=20).exit_code == 0


def forward(letter: str) -> None:
    """Make a site forward packets, and answer as often as it is asked."""
    settings = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]
    settings += ["net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"]
    argv = ["ip", "netns", "exec", site(letter), "sysctl", "-qw", *settings]
    assert process.run(argv, timeout_s=20).exit_code == 0


def join(number: int, left: str, right: str) -> None:
    """A link between neighbours; ``number`` is that of its subnets."""
    mtu = MTUS[number - 1]
    ip(left, f"link add to{right} type veth peer name to{left} netns {site(right)}")
    for end, (here, there) in enumerate(((left, right), (right, left)), start=1):
        ip(
            here,
            f"addr add 10.97.{number}.{end}/24 dev to{there}",
            f"addr add fd00:97:{number}::{end}/64 dev to{there} nodad",
            f"link set to{there} mtu {mtu} up",
        )


@pytest.fixture(scope="module")
@fixture_needs("root", "ip", "sysctl")
def chain() -> Iterator[None]:
    """Four sites in a row."""
    with nothing_left():
        try:
            for letter in SITES:
                process.run(["ip", "netns", "add", site(letter)], timeout_s=20)
                ip(letter, "link set lo up")
                forward(letter)
            for number, (left, right) in enumerate(itertools.pairwise(SITES), start=1):
                join(number, left, right)
            ip("a", "route add default via 10.97.1.2", "route add default via fd00:97:1::2")
            ip("b", "route add 10.97.3.0/24 via 10.97.2.2")
            ip("b", "route add fd00:97:3::/64 via fd00:97:2::2")
            ip("c", "route add 10.97.1.0/24 via 10.97.2.1")
            ip("c", "route add fd00:97:1::/64 via fd00:97:2::1")
            ip("d", "route add default via 10.97.3.1", "route add default via fd00:97:3::1")
            yield
        finally:
            for letter in SITES:
                process.run(["ip", "netns", "del", site(letter)], timeout_s=20)


async def measured(test: str, tool: str, **fields: Any) -> dict[str, Any]:
    """What a tool measures from one end."""
    spec = registry.tests()[test].spec_model.model_validate(fields)
    starts = time.time_ns() // 1000
    known = registry.tools()[tool]
    assert known.can(spec) is None
    part = PartContext(spec, 0, (Party("a", PATH[0]),), starts, starts + known.duration(spec))
    argv = ["ip", "netns", "exec", site("a"), *known.command(part).argv]
    finished: FinishedProcess = await process.finish(argv, timeout_s=known.duration(spec) / 1e6)
    return known.read(part, Output(finished.exit_code, finished.stdout, finished.stderr))


PATHS = [
    ("scamper", "udp"),
    ("scamper", "icmp"),
    ("scamper", "tcp"),
    ("traceroute", "udp"),
    ("traceroute", "icmp"),
    ("traceroute", "tcp"),
    ("mtr", "udp"),
    ("mtr", "icmp"),
    ("mtr", "tcp"),
    ("tracepath", "udp"),
]


@pytest.mark.needs("scamper", "traceroute", "mtr", "tracepath")
@pytest.mark.usefixtures("chain")
async def test_all_tools_find_the_same_path() -> None:
    """Three hops, whichever the tool and the protocol, in both versions of IP."""
    asked = {"probes": 1, "wait": "PT1S"}
    four = await asyncio.gather(
        *(measured("trace", tool, dest=END, protocol=how, **asked) for tool, how in PATHS)
    )
    assert [found["path"] for found in four] == [PATH] * len(PATHS)
    assert all(found["reached"] for found in four)
    six = await asyncio.gather(
        *(measured("trace", tool, dest=END6, protocol=how, **asked) for tool, how in PATHS)
    )
    assert {found["path"][-1] for found in six} == {END6}
    assert {len(found["path"]) for found in six} == {3}


@pytest.mark.needs("ping", "tracepath")
@pytest.mark.usefixtures("chain")
async def test_the_narrow_link_is_found() -> None:
    """1400 bytes in the middle, by both tools and in both versions of IP, and who says so."""
    for dest, router in ((END, PATH[0]), (END6, "fd00:97:1::2")):
        for tool in ("ping-df", "tracepath"):
            forget()
            found = await measured("mtu", tool, dest=dest)
            assert (found["mtu_bytes"], found["reached"]) == (1400, True), tool
            assert found["limits"][-1] == {"address": router, "mtu_bytes": 1400}, tool


@pytest.mark.needs("ping")
@pytest.mark.usefixtures("chain")
async def test_silent_losses_are_found() -> None:
    """Packets of more than 1300 bytes vanish where a link's two ends disagree."""
    ip("c", "link set tob mtu 1300")
    forget()
    try:
        found = await measured("mtu", "ping-df", dest=END, mtu_max_bytes=1310)
    finally:
        ip("c", "link set tob mtu 1400")
    assert 1300 <= found["mtu_bytes"] <= 1304  # a virtual link lets a VLAN's four bytes pass
    assert found["black_hole"]


@pytest.mark.needs("fping", "ping")
@pytest.mark.usefixtures("chain")
async def test_fping_and_ping_agree() -> None:
    """All packets are answered, and in time."""
    asked = {"dest": END, "count": 5, "interval": "PT0.02S"}
    both = await asyncio.gather(*(measured("rtt", tool, **asked) for tool in ("fping", "ping")))
    assert {(found["address"], found["received"]) for found in both} == {(END, 5)}
