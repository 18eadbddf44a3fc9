"""Observation of a real host under load; needs root for the namespaces."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from node.execution import host_sampling, netlink, process
from node.execution.contexts import Contexts
from node.execution.host_sampling import HostObserver, HostSamplePair
from node.execution.tool_runner import ToolRunner
from node.execution.versions import Versions
from node.model.contexts import Context, ContextKind, parse
from node.model.errors import HostError
from node.plugins.contracts import Requirement
from node.plugins.registry import tools
from node.runtime.settings import Settings
from tests.support.needs import fixture_needs

NAMESPACE = f"parley-{os.getpid()}-context"
LIMIT_NS = 1_000_000


@pytest.fixture(name="namespace")
@fixture_needs("root", "ip")
def _namespace() -> Iterator[str]:
    """Create a namespace with loopback and an interface ``far0`` with two addresses."""
    commands = (
        "link set lo up",
        "link add far0 type veth peer name far1",
        "addr add 198.51.100.2/24 dev far0",
        "addr add 2001:db8:5::2/64 dev far0 nodad",
        "link set far0 up",
        "link set far1 up",
    )
    argv = ["ip", "netns", "add", NAMESPACE]
    assert process.run(argv, timeout_s=10).exit_code == 0
    try:
        argv = ["ip", "-n", NAMESPACE, "-batch", "-"]
        made = process.run(argv, timeout_s=10, stdin="\n".join(commands).encode())
        assert made.exit_code == 0, made.stderr
        yield NAMESPACE
    finally:
        process.run(["ip", "netns", "del", NAMESPACE], timeout_s=10)


def send(address: str, packets: int) -> None:
    """Send this many datagrams of 972 bytes: 1000 with the headers of UDP and IP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        for _ in range(packets):
            endpoint.sendto(bytes(972), (address, 9))


def seen(observation: HostObserver) -> HostSamplePair:
    """End the observation and return its samples."""
    observed = observation.end()
    assert observed is not None
    return observed


def test_what_passes_loopback_is_seen() -> None:
    """Octets and packets between the samples are counted, and loopback is recognised."""
    observation = HostObserver("127.0.0.1")
    observation.begin()
    send("127.0.0.1", 100)
    load = seen(observation).interface()
    assert load is not None
    assert load.loopback
    assert load.sent_packets >= 100
    assert load.sent_bytes >= 101_400


def test_another_namespace_has_counters_of_its_own(namespace: str) -> None:
    """Only the namespace's own traffic is counted, and the descriptor needs no further entering."""
    observation = HostObserver("127.0.0.1", namespace)
    observation.begin()
    send("127.0.0.1", 50)
    host_sampling.in_namespace(namespace, lambda: send("127.0.0.1", 10))
    load = seen(observation).interface()
    assert load is not None
    assert 10 <= load.sent_packets < 50


def test_the_interface_is_the_one_of_the_route(namespace: str) -> None:
    """The interface is that of the kernel's route in the namespace; names count as outside."""
    assert host_sampling.interface_to("127.0.0.7") == "lo"
    assert host_sampling.interface_to("::1") == "lo"
    assert host_sampling.interface_to("198.51.100.9", namespace) == "far0"
    assert host_sampling.interface_to("2001:db8:5::9", namespace) == "far0"
    assert host_sampling.interface_to("far.example", namespace) is None
    assert host_sampling.interface_to("203.0.113.1", namespace) is None


def test_addresses_are_those_of_the_interface(namespace: str) -> None:
    """Global addresses are returned, IPv4 first; loopback and link-local ones are left out."""
    found = host_sampling.in_namespace(namespace, netlink.addresses)
    expected = [ipaddress.ip_address("198.51.100.2"), ipaddress.ip_address("2001:db8:5::2")]
    assert found == expected
    assert host_sampling.in_namespace(namespace, lambda: netlink.addresses("far0")) == expected
    assert host_sampling.in_namespace(namespace, lambda: netlink.addresses("lo")) == []
    assert netlink.addresses("nothing0") == []


def test_a_namespace_that_is_not_there_says_so() -> None:
    """A missing namespace is an error with its reason, and no thread stays inside."""
    with pytest.raises(HostError, match="namespace nowhere cannot be entered: No such file"):
        HostObserver("127.0.0.1", "nowhere")


def test_a_look_is_quick_and_leaves_nothing_open() -> None:
    """The median of a sample's duration is below a millisecond, so it delays no start."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    took = []
    for _ in range(50):
        observation = HostObserver("127.0.0.1")
        observation.begin()
        observed = seen(observation)
        observation.close()
        took.append(observed.after.steady_ns - observed.before.steady_ns)
    assert sorted(took)[25] < LIMIT_NS
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert HostObserver("127.0.0.1").end() is None


async def test_the_programs_own_work_is_told_apart() -> None:
    """A program's processor time is known after its end, and is part of the total."""
    observation = HostObserver("127.0.0.1")
    observation.begin()
    work = "import time\nwhile time.process_time() < 0.3: pass"
    finished = await (await process.start([sys.executable, "-I", "-c", work])).wait()
    observed = seen(observation)
    load = observed.processors(finished.worked_ticks)
    assert finished.worked_ticks is not None
    assert finished.worked_ticks >= 29
    assert load.own is not None
    assert load.busy is not None
    assert 0 < load.own <= load.busy + 0.1
    assert load.count == os.cpu_count()
    assert abs(observed.clock().stepped_ms) < 1


@pytest.fixture
async def runner() -> AsyncIterator[ToolRunner]:
    """Return a starter of tools."""
    runner = ToolRunner(Settings())
    yield runner
    await runner.close()


async def test_a_program_is_asked_for_its_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: ToolRunner
) -> None:
    """A program's version is asked once until its file changes, also by concurrent callers."""
    program, asked, finish = tmp_path / "measure", list[str](), process.finish
    tmp_path.chmod(0o755)  # the account of the tools passes through it
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(text: str) -> None:
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    async def ask(argv: Sequence[str], **options: Any) -> process.FinishedProcess:
        asked.append(argv[0])
        return await finish(argv, **options)

    monkeypatch.setattr(process, "finish", ask)
    versions, tool = Versions(runner), tools()["ping"]
    needed = Requirement("measure", "measure", ("measure", "-V"), r"v(\S+)")
    monkeypatch.setattr(tool, "requirement", needed)
    install("echo measure v1.2-beta >&2")
    assert await asyncio.gather(*(versions.of(tool) for _ in range(5))) == ["1.2-beta"] * 5
    assert asked == ["measure"]
    assert versions.known(needed) == "1.2-beta"
    install("exit 3")
    assert versions.known(needed) is None  # asked, and not answered yet
    assert await versions.of(tool) is None
    assert asked == ["measure"] * 2
    program.unlink()
    assert await versions.of(tool) is None
    assert await versions.of(tools()["stamp"]) is not None


def test_only_what_the_owner_names_is_offered(namespace: str) -> None:
    """Only contexts that the owner lists are offered; others are refused with what to set."""
    there = Context(ContextKind.NAMESPACE, namespace)
    given = parse("address:127.0.0.1")
    offered = Contexts({there: None, parse("interface:lo"): "192.0.2.7", given: None})
    assert offered.addresses() == {
        str(there): "198.51.100.2",
        "interface:lo": "192.0.2.7",
        "address:127.0.0.1": "127.0.0.1",
    }
    assert offered.refusal(there) is None
    refusal = offered.refusal(parse("interface:far0")) or ""
    assert "measuring from interface:far0 is not allowed here" in refusal
    assert refusal.endswith("can allow it: PARLEY_CONTEXTS=interface:far0")


def test_addresses_of_the_host_itself_need_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both families of the host's addresses are allowed until its owner lists one, and not told."""
    own = [ipaddress.ip_address(each) for each in ("127.0.0.1", "::1")]
    monkeypatch.setattr(netlink, "addresses", lambda: own)
    words = [f"address:{each}" for each in own]
    given = Contexts({parse("interface:lo"): "192.0.2.7"})
    assert [given.refusal(parse(word)) for word in words] == [None, None]
    assert list(given.addresses()) == ["interface:lo"]
    assert "not allowed here" in (given.refusal(parse("address:192.0.2.9")) or "")
    listed = Contexts({parse(words[0]): None})
    assert listed.refusal(parse(words[0])) is None
    assert "(allowed: address:127.0.0.1)" in (listed.refusal(parse(words[1])) or "")


def test_what_is_allowed_but_not_there_is_not_offered() -> None:
    """An allowed context that does not exist is refused, and the reason says what is missing."""
    missing = {
        "namespace:nowhere": "no network namespace nowhere; create it: ip netns add nowhere",
        "interface:nothing0": "no interface nothing0",
        "address:192.0.2.99": "192.0.2.99 cannot be used on this host",
        "interface:lo": "can set one: PARLEY_CONTEXTS=interface:lo=ADDRESS",
    }
    allowed = Contexts({parse(context): None for context in missing})
    assert allowed.addresses() == {}
    for context, reason in missing.items():
        assert reason in (allowed.refusal(parse(context)) or "")
