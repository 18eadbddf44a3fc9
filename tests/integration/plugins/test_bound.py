"""Tools that are bound to an interface or an address leave by it, and from there. Needs root.

::

    near ──┬── near0  198.51.100.2, 198.51.100.3 ── far0 ──┬── far, which is all of 192.0.2.0/24
           └── near1  203.0.113.2 ───────────────── far1 ──┘

The default route to far is by near0, from 198.51.100.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from node.execution import host_sampling, process
from node.model import times
from node.model.contexts import Context, parse
from node.plugins import registry
from node.plugins.contracts import PartContext, Party
from tests.integration.host_leftovers import nothing_left
from tests.support.needs import fixture_needs
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)
SENDS_S = 3.0
_SO_RCVBUFFORCE = 33  # of Linux, which Python does not name
_WAITING_BYTES = 16_000_000
"""Seconds for which a tool may send once its first packet has arrived."""

NEAR, FAR = (f"parley-{os.getpid()}-bound-{end}" for end in ("near", "far"))
USUAL, SECOND, OTHER = "198.51.100.2", "198.51.100.3", "203.0.113.2"
INTERFACE, ADDRESS = parse("interface:near1"), parse(f"address:{SECOND}")

LINKS = {
    NEAR: (
        "link set lo up",
        f"link add near0 type veth peer name far0 netns {FAR}",
        f"link add near1 type veth peer name far1 netns {FAR}",
        f"addr add {USUAL}/24 dev near0",
        f"addr add {SECOND}/24 dev near0",
        f"addr add {OTHER}/24 dev near1",
        "link set near0 up",
        "link set near1 up",
        "route add 192.0.2.0/24 via 198.51.100.1 dev near0",
        "route add 192.0.2.0/24 via 203.0.113.1 dev near1 metric 100",
    ),
    FAR: (
        "link set lo up",
        "addr add 198.51.100.1/24 dev far0",
        "addr add 203.0.113.1/24 dev far1",
        "link set far0 up",
        "link set far1 up",
        "route add local 192.0.2.0/24 dev lo",
    ),
}

SPECS: dict[str, dict[str, Any]] = {
    "rtt": {"count": 1},
    "trace": {"probes": 1, "wait": "PT1S", "hops_max": 2},
    "mtu": {"mtu_max_bytes": 1280},
    "dns": {"name": "a.example", "tries": 1},
    "http": {"timeout": "PT2S"},
    "tcp": {"port": 9, "count": 1},
    "tls": {},
    "ntp": {"count": 1, "timeout": "PT1S"},
    "latency": {"count": 2, "interval": "PT0.01S", "timeout": "PT0.1S"},
    "clock": {"count": 2, "interval": "PT0.01S", "timeout": "PT0.1S"},
    "latencybg": {"duration": "PT10S", "each": "PT5S"},
    "throughput": {"duration": "PT1S", "congestion": "cubic"},
    "simplestream": {"timeout": "PT1S"},
}
"""The spec of each test for one packet or a few; the answers do not matter here."""

TO_TARGETS = {name: {"responder": "owamp"} for name in ("owping", "powstream")}
"""The fields with which a tool measures, where they are not those of its test."""

SENDS_NOTHING = {("idle", "sleep"), ("idlebg", "sleepbg"), ("interface", "procnet")}

CASES = [
    (test, name, context)
    for name, tool in sorted(registry.tools().items())
    for test in tool.tests
    if (test, name) not in SENDS_NOTHING
    for context in (INTERFACE, ADDRESS)
    if context.kind in getattr(tool, "binds", ())
]


@pytest.fixture(name="links")
@fixture_needs("root", "ip")
def _links() -> Iterator[None]:
    with nothing_left():
        try:
            for namespace in LINKS:
                argv = ["ip", "netns", "add", namespace]
                assert process.run(argv, timeout_s=20).exit_code == 0
            for namespace, lines in LINKS.items():
                argv = ["ip", "-n", namespace, "-batch", "-"]
                finished = process.run(argv, timeout_s=20, stdin="\n".join(lines).encode())
                assert finished.exit_code == 0, finished.stderr
            yield
        finally:
            for namespace in LINKS:
                process.run(["ip", "netns", "del", namespace], timeout_s=20)


def listening() -> socket.socket:
    """Return a socket that receives everything that arrives at far."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    every = socket.htons(0x0003)  # ETH_P_ALL
    endpoint = host_sampling.in_namespace(FAR, lambda: socket.socket(socket.AF_PACKET, kind, every))
    # All tools send at once, and some a single packet, which must not be lost where none reads.
    endpoint.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _WAITING_BYTES)
    return endpoint


class Heard:
    """The sources and interfaces that have sent to each address of far, by destination."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._endpoint = endpoint
        self.ways: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.came: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def hear(self) -> None:
        """Read what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, (interface, _, kind, *_) = self._endpoint.recvfrom(100)
                if interface != "lo" and kind == socket.PACKET_HOST and packet[0] >> 4 == 4:
                    source, dest = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
                    self.ways[dest].add((source, interface))
                    self.came[dest].set()


async def ask(test: str, name: str, context: Context, dest: str, came: asyncio.Event) -> None:
    """Start a tool's part at the asking end, and let it send for seconds after its first packet."""
    model = registry.tests()[test].spec_model
    document = SPECS[test] | TO_TARGETS.get(name, {})
    document |= {"url": f"http://{dest}/"} if test == "http" else {}
    field = {"dns": "server", "http": None}.get(test, "dest")
    spec = model.model_validate(document if field is None else document | {field: dest})
    tool = registry.tools()[name]
    source = OTHER if context.device else SECOND
    own = Party("a", source, {"port": 5302}, context.device)
    parties = (own, Party("b", dest, {"port": 5301}))
    starts = time.time_ns() // 1000
    ends = starts + tool.duration(spec) + times.MINUTE  # a busy machine begins late
    part = PartContext(spec, 0, parties, starts, ends, {}, context)
    assert tool.can(spec) is None
    argv = ["ip", "netns", "exec", NEAR, *tool.command(part).argv]
    sending = asyncio.create_task(process.finish(argv, timeout_s=PATIENCE_S))
    coming = asyncio.create_task(came.wait())
    try:
        await asyncio.wait({sending, coming}, return_when=asyncio.FIRST_COMPLETED)
        if (await asyncio.wait({sending}, timeout=SENDS_S))[0]:
            finished = sending.result()
            assert b"not permitted" not in finished.stderr, finished.stderr
    finally:
        for each in (sending, coming):
            each.cancel()
        await asyncio.wait({sending, coming})


@pytest.mark.needs("curl", "fping", "iperf3", "irtt", "mtr")
@pytest.mark.needs("ping", "scamper", "tracepath", "traceroute")
@pytest.mark.usefixtures("links")
@pytest.mark.nightly
async def test_tools_leave_by_what_they_are_bound_to() -> None:
    """Every tool that can be bound leaves by the interface or the address, in every protocol."""
    dests = [f"192.0.2.{at}" for at in range(1, len(CASES) + 1)]
    with listening() as endpoint:
        heard, loop = Heard(endpoint), asyncio.get_running_loop()
        loop.add_reader(endpoint, heard.hear)
        asked = zip(CASES, dests, strict=True)
        await asyncio.gather(*(ask(*case, dest, heard.came[dest]) for case, dest in asked))
        loop.remove_reader(endpoint)
        heard.hear()
    ways = {INTERFACE: {(OTHER, "far1")}, ADDRESS: {(SECOND, "far0")}}
    assert {case: heard.ways[dest] for case, dest in zip(CASES, dests, strict=True)} == {
        case: ways[case[2]] for case in CASES
    }


def test_which_tools_can_be_bound() -> None:
    """Only these cannot be bound: what has no such option, or just for the address, as mtr."""
    unable = {
        (name, kind)
        for name, tool in registry.tools().items()
        for kind in ("interface", "address")
        if kind not in getattr(tool, "binds", ())
    }
    assert unable == {
        ("irtt", "interface"),
        ("mtr", "interface"),
        ("nuttcp", "interface"),
        ("nuttcp", "address"),
        ("procnet", "address"),
        ("scamper", "interface"),
        ("snmpget", "interface"),
        ("snmpget", "address"),
        ("tracepath", "interface"),
        ("tracepath", "address"),
    }


@pytest.mark.usefixtures("links")
async def test_an_unusable_origin_is_no_answer_of_the_target() -> None:
    """Our own programs exit with the reason if they cannot be bound, and measure nothing."""
    part = PartContext(
        registry.tests()["tcp"].spec_model.model_validate({"dest": "192.0.2.1", "port": 9}),
        0,
        (Party("a", OTHER, device="near1"),),
        time.time_ns() // 1000,
        time.time_ns() // 1000 + 10**7,
        {},
        parse("interface:away0"),
    )
    argv = ["ip", "netns", "exec", NEAR, *registry.tools()["connect"].command(part).argv]
    finished = await process.finish(argv, timeout_s=30)
    assert finished.exit_code == 1
    assert finished.stdout == b""
    assert finished.stderr.decode() == "cannot measure from away0: No such device\n"
