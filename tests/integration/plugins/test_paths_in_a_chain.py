"""Paths and their largest packets through a chain of real namespaces. Needs root.

::

    a ── 1500 ── b ── 1400 ── c ── 1500 ── d
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
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
    """Return the namespace of a site; its name lets a lab remove it if we are killed."""
    return f"parley-{os.getpid()}-path-{letter}"


def ip(letter: str, *lines: str) -> None:
    """Run several ``ip`` commands in one namespace."""
    argv = ["ip", "-n", site(letter), "-batch", "-"]
    finished = process.run(argv, timeout_s=20, stdin="\n".join(lines).encode())
    assert finished.exit_code == 0, finished.stderr


def forget() -> None:
    """Flush what the asking site has cached of paths."""
    for version in ("-4", "-6"):
        argv = ["ip", "-n", site("a"), version, "route", "flush", "cache"]
        assert process.run(argv, timeout_s=20).exit_code == 0


def forward(letter: str) -> None:
    """Make a site forward packets, and answer without a rate limit.

    The masks end the limit of all answers of a host too (a burst of 50), which ten tools at once
    reach.
    """
    settings = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]
    settings += ["net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratemask="]
    argv = ["ip", "netns", "exec", site(letter), "sysctl", "-qw", *settings]
    assert process.run(argv, timeout_s=20).exit_code == 0


def join(number: int, left: str, right: str) -> None:
    """Create a link between neighbours; ``number`` is that of its subnets."""
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
@fixture_needs("root", "ip", "sysctl", "ping")
def chain() -> Iterator[None]:
    """Create four sites in a row."""
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
            for end in (END, END6):
                reach(end)
            make_scampers_folder()
            yield
        finally:
            for letter in SITES:
                process.run(["ip", "netns", "del", site(letter)], timeout_s=20)


def reach(end: str) -> None:
    """Ask for an answer once, so that all neighbours on the way have found each other.

    The packets of a tool would wait for that, until the tool takes them for lost.
    """
    argv = ["ip", "netns", "exec", site("a"), "ping", "-c", "1", "-w", "20", end]
    assert process.run(argv, timeout_s=30).exit_code == 0


def make_scampers_folder() -> None:
    """Run scamper once, because its first run on a host makes a folder.

    Of several first runs at the same time, all but one fail.
    """
    if shutil.which("scamper"):
        argv = ["ip", "netns", "exec", site("a"), "scamper", "-c", "ping -c 1", "-i", "10.97.1.1"]
        process.run(argv, timeout_s=30)


async def measured(test: str, tool: str, **fields: Any) -> dict[str, Any]:
    """Return a tool's result from one end."""
    spec = registry.tests()[test].spec_model.model_validate(fields)
    starts = time.time_ns() // 1000
    measuring_tool = registry.tools()[tool]
    assert measuring_tool.can(spec) is None
    part = PartContext(
        spec, 0, (Party("a", PATH[0]),), starts, starts + measuring_tool.duration(spec)
    )
    argv = ["ip", "netns", "exec", site("a"), *measuring_tool.command(part).argv]
    finished: FinishedProcess = await process.finish(
        argv, timeout_s=measuring_tool.duration(spec) / 1e6
    )
    return measuring_tool.read(part, Output(finished.exit_code, finished.stdout, finished.stderr))


async def path_by(tool: str, protocol: str, dest: str) -> dict[str, Any]:
    """Return the path by one packet per hop. A busy machine gets three seconds for an answer.

    tracepath always waits for one second.
    """
    wait = "PT1S" if tool == "tracepath" else "PT3S"
    return await measured("trace", tool, dest=dest, protocol=protocol, probes=1, wait=wait)


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
@pytest.mark.nightly
async def test_all_tools_find_the_same_path() -> None:
    """All tools and protocols find the same three hops, with both IP versions."""
    four = await asyncio.gather(*(path_by(tool, how, END) for tool, how in PATHS))
    assert [found["path"] for found in four] == [PATH] * len(PATHS)
    assert all(found["reached"] for found in four)
    six = await asyncio.gather(*(path_by(tool, how, END6) for tool, how in PATHS))
    ends = [
        (how, len(found["path"]), found["path"][-1]) for how, found in zip(PATHS, six, strict=True)
    ]
    assert ends == [(how, 3, END6) for how in PATHS]


@pytest.mark.needs("tracepath")
@pytest.mark.usefixtures("chain")
@pytest.mark.nightly
async def test_the_narrow_link_is_found() -> None:
    """Both tools find the MTU of 1400 in the middle, with both IP versions, and who reports it."""
    for dest, router in ((END, PATH[0]), (END6, "fd00:97:1::2")):
        for tool in ("ping-df", "tracepath"):
            forget()
            result = await measured("mtu", tool, dest=dest)
            assert (result["mtu_bytes"], result["reached"]) == (1400, True), tool
            assert result["limits"][-1] == {"address": router, "mtu_bytes": 1400}, tool


@pytest.mark.usefixtures("chain")
@pytest.mark.nightly
async def test_silent_losses_are_found() -> None:
    """The size of 1300 above which packets vanish, where a link's ends disagree, is found."""
    ip("c", "link set tob mtu 1300")
    forget()
    try:
        result = await measured("mtu", "ping-df", dest=END, mtu_max_bytes=1310)
    finally:
        ip("c", "link set tob mtu 1400")
    assert 1300 <= result["mtu_bytes"] <= 1304  # a virtual link passes a VLAN's four extra bytes
    assert result["black_hole"]


@pytest.mark.needs("fping")
@pytest.mark.usefixtures("chain")
async def test_fping_and_ping_agree() -> None:
    """Both tools report that all packets are answered in time."""
    fields = {"dest": END, "count": 5, "interval": "PT0.02S"}
    both = await asyncio.gather(*(measured("rtt", tool, **fields) for tool in ("fping", "ping")))
    assert {(found["address"], found["received"]) for found in both} == {(END, 5)}
