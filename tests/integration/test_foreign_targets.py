"""Tasks that another node leads do not reach what only this host can reach."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from node.execution import targets as facts
from node.execution.launcher import _read
from node.execution.targets import LOOK_UPS_MAX
from node.model.errors import HostError, RefusedByParticipant
from node.model.wire.participants import Introduction
from node.model.wire.tasks import TaskDocument
from node.plugins import registry
from node.plugins.contracts import Command, Output, PartContext, Party
from tests.support.patience import PATIENCE_S
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP


async def _ask(lead: Site, test: str, spec: dict[str, Any], **fields: Any) -> str | None:
    """Create a task; return the reason why it is refused, None if it is not."""
    body = {"test": {"type": test, "spec": spec}, **fields}
    try:
        await lead.node.admission.create(TaskDocument.model_validate(body), None)
    except RefusedByParticipant as refusal:
        return refusal.detail
    return None


CLOUD = "169.254.169.254"


@pytest.mark.parametrize(
    ("test", "spec", "kind"),
    [
        ("http", {"url": "http://127.1:80/v1/nodes", "text": "items"}, "a loopback address"),
        ("http", {"url": f"http://{CLOUD}/"}, "the metadata service"),
        ("http", {"url": "http://a:8642/"}, "this node itself"),
        ("http", {"url": "http://a/"}, "an address of this host itself"),
        ("http", {"url": "http://192.168.7.7/", "text": "x"}, "text would tell others"),
        ("tcp", {"dest": "::1", "port": 22}, "a loopback address"),
        ("tcp", {"dest": "192.168.7.7", "port": 22, "banner": True}, "banner would tell others"),
        ("tls", {"dest": "192.168.7.7"}, "its certificates would tell others"),
        ("dns", {"name": "x", "server": "192.168.7.7"}, "the answer would tell others"),
        ("tls", {"dest": "0.0.0.0"}, "an address of this host itself"),
        ("dns", {"name": "x.example", "server": "::ffff:127.0.0.1"}, "a loopback address"),
        ("rtt", {"dest": "0x7f000001"}, "a loopback address"),
        ("trace", {"dest": "localhost"}, "this host itself"),
        ("mtu", {"dest": "169.254.7.7"}, "a link-local address"),
        ("rtt", {"dest": "192.168.7.7"}, "a private address"),
        ("tcp", {"dest": "::ffff:0:10.7.7.7", "port": 22}, "a private address"),
    ],
)
@pytest.mark.mostly_nightly
async def test_refused_at_introduction(
    world: World, test: str, spec: dict[str, Any], kind: str
) -> None:
    """A target written as an address is refused at once; the owner may measure it."""
    a = await world.site("a", listen="192.0.2.1:8642")
    c = await world.site("c", listen="192.0.2.3:8642")
    refusal = await _ask(c, test, {"source": "a", **spec})
    assert refusal is not None
    assert refusal.startswith("a: ")
    assert kind in refusal
    assert await _ask(a, test, spec) is None
    assert await _ask(c, test, {"source": "a", **spec} | _public(spec)) is None


def _public(spec: dict[str, Any]) -> dict[str, Any]:
    fields = {"url": "http://198.51.100.7/", "dest": "198.51.100.7", "server": "198.51.100.7"}
    return {name: value for name, value in fields.items() if name in spec}


async def test_participants_of_a_lab_on_loopback(world: World) -> None:
    """Known nodes on loopback are targets of a node that is there itself; nothing else there is."""
    a = await world.site("a", address="127.1.0.1")
    await world.site("b", address="127.1.0.2")
    c = await world.site("c", address="127.1.0.3")
    assert await _ask(c, "rtt", {"source": "a", "dest": "b"}) is None
    assert await _ask(c, "latency", {"source": "a", "dest": "b"}) is None
    for dest in ("127.0.0.9", "127.1.0.1"):
        assert await _ask(c, "rtt", {"source": "a", "dest": dest})
    reached = "UPDATE node SET url = 'http://203.0.113.7:8642' WHERE name = 'c'"
    async with a.database.connection() as connection:
        await connection.execute(reached)
    await a.node.directory.refresh()
    assert "a loopback address" in str(await _ask(c, "rtt", {"source": "a", "dest": "b"}))
    assert await _ask(c, "latency", {"source": "a", "dest": "b"})


@pytest.mark.parametrize(
    ("test", "spec"), [("tcp", {"dest": "10.77.0.2"}), ("http", {"url": "http://10.77.0.2:{}/"})]
)
async def test_ports_of_private_nodes(world: World, test: str, spec: dict[str, str]) -> None:
    """Another node has no port of a private node asked but those of its API and of tools."""
    a = await world.site("a", listen="10.77.0.1:8642")
    await world.site("b", listen="10.77.0.2:8643")
    c = await world.site("c", listen="192.0.2.3:8642")

    async def asked(lead: Site, port: int) -> str | None:
        fields = {name: text.format(port) for name, text in spec.items()}
        others = {"port": port} if test == "tcp" else {}
        return await _ask(lead, test, {"source": "a", **fields, **others})

    for port in (22, 6379, 8642):
        refusal = str(await asked(c, port))
        assert f"10.77.0.2 is a private address, whose port {port} is neither" in refusal
        assert "PARLEY_TARGETS" in refusal
        assert await asked(a, port) is None
    for port in (8643, a.node.settings.port_first, a.node.settings.port_last):
        assert await asked(c, port) is None


async def test_how_much_goes_to_strangers(world: World) -> None:
    """At most 1 Mb/s goes to hosts that have not agreed; the lead has, and so has the owner."""
    a = await world.site("a", listen="198.51.100.1:8642")
    b = await world.site("b", listen="198.51.100.2:8642")
    c = await world.site("c", listen="198.51.100.3:8642")
    fast = {"source": "a", "length": 8952, "interval": "PT0.002S"}
    refusal = await _ask(c, "rtt", fast | {"dest": "198.51.100.7"})
    assert (
        "a: rtt would send 36 Mb/s to 198.51.100.7, which is not a participant known here"
        in str(refusal)
    )
    assert await _ask(c, "rtt", fast | {"dest": "198.51.100.7", "length": 200}) is None
    assert "36 Mb/s to 198.51.100.2, which" in str(await _ask(c, "rtt", fast | {"dest": "b"}))
    assert await _ask(c, "rtt", fast | {"dest": "c"}) is None
    assert await _ask(a, "rtt", fast | {"dest": "198.51.100.7"}) is None
    await a.execute("DELETE FROM node WHERE identity = $1", b.identity)
    await a.node.directory.refresh()
    refusal = await _ask(c, "latency", fast | {"dest": "b"})
    assert (
        "latency would send 36 Mb/s to 198.51.100.2, which is not a participant known here"
        in str(refusal)
    )
    for test in ("latency", "throughput", "simplestream"):
        unknown = str(await _ask(c, test, {"source": "a", "dest": "b"}))
        assert "is not known here, so it cannot be asked whether it takes part" in unknown
        assert await _ask(c, test, {"source": "b", "dest": "a"}) is None


async def test_checks_and_moves_of_nodes(world: World) -> None:
    """No check that another node asks for, and no move that it tells, leads to this host."""
    a = await world.site("a", listen="192.0.2.1:8642")
    targets = a.node.foreign_targets
    assert targets.node_refusal("b", ["203.0.113.20", "10.77.7.7"]) is None
    refusal = targets.node_refusal("b.example", ["203.0.113.20", "127.0.0.9"])
    assert str(refusal).startswith("b.example leads to a loopback address")
    for url in ("https://10.77.7.7:8642", "https://203.0.113.20:8642"):
        assert targets.moved_refusal(url) is None
    for url, kind in (
        ("https://127.0.0.9:6379", "a loopback address"),
        ("https://localhost:6379", "localhost is this host itself"),
        (f"https://{CLOUD}", "the metadata service"),
        ("https://192.0.2.1:8642", "this node itself"),
        ("https://[::1", "is no URL"),
    ):
        assert kind in str(targets.moved_refusal(url)), url


async def test_a_move_is_judged_by_the_address_that_is_connected_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere with each look-up leads to no connection on this host."""
    site = await world.site("a", listen="192.0.2.1:8642")
    targets, connected = site.node.foreign_targets, list[asyncio.StreamWriter]()
    server = await asyncio.start_server(lambda _, to: connected.append(to), "127.0.0.1", 0)
    url = f"http://moved.example:{server.sockets[0].getsockname()[1]}"
    assert targets.moved_refusal(url) is None

    def rebound(_: str, port: int, *__: object, **___: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async with server, targets.session_to_moved() as session:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", rebound)
            with pytest.raises(aiohttp.ClientConnectorDNSError, match="a loopback address"):
                await session.get(url)
    assert connected == []


async def test_what_the_owner_allows(world: World) -> None:
    """PARLEY_TARGETS excepts networks, but not the API of this node."""
    await world.site("a", listen="192.0.2.1:8642", targets="0.0.0.0/8 127.0.0.0/8 192.168.7.0/24")
    c = await world.site("c", listen="192.0.2.3:8642")
    assert await _ask(c, "rtt", {"source": "a", "dest": "127.0.0.9"}) is None
    url = "http://192.168.7.7/"
    assert await _ask(c, "http", {"source": "a", "url": url, "text": "x"}) is None
    refusal = await _ask(c, "http", {"source": "a", "url": "http://0.0.0.0:8642/v1/nodes"})
    assert "must never reach" in str(refusal)


async def test_curl_only_without_redirects(world: World) -> None:
    """Unchecked redirects: a task of another node gets curl without redirects only."""
    await world.site("a", listen="192.0.2.1:8642")
    c = await world.site("c", listen="192.0.2.3:8642")
    spec = {"source": "a", "url": "http://198.51.100.7/"}
    refusal = await _ask(c, "http", spec, tools=["curl"])
    assert "set redirects to 0, or use fetch" in str(refusal)
    assert await _ask(c, "http", spec | {"redirects": 0}, tools=["curl"]) is None
    assert await _ask(c, "http", spec) is None
    assert {it["tool"] for it in await c.rows("SELECT tool FROM task")} == {"curl", "fetch"}


def _part(test: str, address: str, **fields: Any) -> PartContext:
    spec = registry.tests()[test].spec_model.model_validate(fields)
    parties = (Party("a", "192.0.2.1"), Party("b", address))
    hosts = {host: host for host in registry.tests()[test].hosts(spec)}
    return PartContext(spec, 0, parties, 0, 1, hosts)


@pytest.mark.parametrize("tool", ["ping", "fping", "traceroute", "mtr", "scamper", "ping-df"])
async def test_names_are_looked_up_before_the_run(world: World, tool: str) -> None:
    """A tool that cannot check gets an address, and is not started if that is refused."""
    a = await world.site("a", listen="192.0.2.1:8642")
    b = await world.site("b", listen="192.0.2.2:8642", targets="127.0.0.1 ::1")
    known = registry.tools()[tool]
    test = registry.tests()[known.tests[0]]
    part = _part(test.name, "198.51.100.7", dest="localhost", ip_version=4)
    with pytest.raises(HostError, match="localhost leads to a loopback address"):
        await a.node.foreign_targets.checked_part(test, known, part, (), 5)
    checked = await b.node.foreign_targets.checked_part(test, known, part, (), 5)
    argv = " ".join(known.command(checked).argv)
    assert "127.0.0.1" in argv
    assert "localhost" not in argv


async def test_curl_connects_to_the_checked_address(world: World) -> None:
    """The name is not looked up again by curl."""
    b = await world.site("b", listen="192.0.2.2:8642", targets="127.0.0.1 ::1")
    test, tool = registry.tests()["http"], registry.tools()["curl"]
    part = _part("http", "198.51.100.7", url="http://localhost/", redirects=0, ip_version=4)
    argv = tool.command(await b.node.foreign_targets.checked_part(test, tool, part, (), 5)).argv
    assert argv[argv.index("--connect-to") + 1] == "localhost::127.0.0.1:"


async def test_a_participant_is_checked_as_well(world: World) -> None:
    """The address that a lead gives of another participant is judged like a target."""
    a = await world.site("a", listen="192.0.2.1:8642")
    test, tool = registry.tests()["latency"], registry.tools()["stamp"]
    with pytest.raises(HostError, match=r"127\.9\.9\.9 is a loopback address"):
        await a.node.foreign_targets.checked_part(
            test, tool, _part("latency", "127.9.9.9", dest="b"), (), 5
        )


async def test_a_tool_that_checks_itself_keeps_names(world: World) -> None:
    """Looking names up is part of what it measures; addresses are judged before all the same."""
    a = await world.site("a", listen="192.0.2.1:8642")
    targets = a.node.foreign_targets
    test, tool = registry.tests()["http"], registry.tools()["fetch"]
    named = _part("http", "198.51.100.7", url="http://localhost/")
    written = _part("http", "198.51.100.7", url="http://127.0.0.1/")
    checked = await targets.checked_part(test, tool, named, (), 5)
    assert dict(checked.addresses) == {"localhost": "localhost"}
    assert checked.rules is not None
    with pytest.raises(HostError, match=r"127\.0\.0\.1 is a loopback address"):
        await targets.checked_part(test, tool, written, (), 5)


async def test_a_tool_that_would_follow_unchecked_is_not_started(world: World) -> None:
    """The rule for curl holds before each run, too, because the lead chooses the tool."""
    a = await world.site("a", listen="192.0.2.1:8642")
    test, tool = registry.tests()["http"], registry.tools()["curl"]
    part = _part("http", "198.51.100.7", url="http://198.51.100.8/")
    with pytest.raises(HostError, match="set redirects to 0"):
        await a.node.foreign_targets.checked_part(test, tool, part, (), 5)


@pytest.fixture(name="resolver")
def _resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(facts, "_resolve", made.resolve)
    yield made
    made.answers.set()


class Resolver:
    """Answers look-ups in place of the library, as soon as it is told to."""

    def __init__(self) -> None:
        """Know two names, and answer nothing yet."""
        self.answers = threading.Event()
        self.names = {
            "far.example": ["198.51.100.8", "198.51.100.9"],
            "inside.example": ["198.51.100.8", "127.0.0.1"],
        }

    def resolve(self, host: str, family: int) -> list[str]:
        """Return the addresses of a name."""
        assert family == socket.AF_INET
        assert self.answers.wait(PATIENCE_S)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]


async def test_a_name_is_measured_at_its_first_address_if_all_are_allowed(
    world: World, resolver: Resolver
) -> None:
    """A name with an address that is refused is refused, and one without any fails."""
    a = await world.site("a", listen="192.0.2.1:8642")
    test, tool = registry.tests()["rtt"], registry.tools()["ping"]
    resolver.answers.set()

    async def checked(dest: str) -> PartContext:
        part = _part("rtt", "198.51.100.7", dest=dest, ip_version=4)
        return await a.node.foreign_targets.checked_part(test, tool, part, (), 5)

    assert dict((await checked("far.example")).addresses) == {"far.example": "198.51.100.8"}
    with pytest.raises(HostError, match=r"inside\.example leads to a loopback address, which"):
        await checked("inside.example")
    with pytest.raises(HostError, match=r"nowhere\.example: Name or service not known"):
        await checked("nowhere.example")


async def test_look_ups_that_do_not_end_are_bounded(world: World, resolver: Resolver) -> None:
    """A run waits only so long for an address, and not at all if too many others wait."""
    a = await world.site("a", listen="192.0.2.1:8642")
    targets, test = a.node.foreign_targets, registry.tests()["rtt"]
    part = _part("rtt", "198.51.100.7", dest="far.example", ip_version=4)

    async def checked() -> PartContext:
        return await targets.checked_part(test, registry.tools()["ping"], part, (), 0.01)

    with pytest.raises(HostError, match=r"no address was found for far\.example in 0\.0 s"):
        await checked()
    waiting = [asyncio.create_task(checked()) for _ in range(LOOK_UPS_MAX - 1)]
    refused = await asyncio.gather(*waiting, return_exceptions=True)
    assert all("in 0.0 s" in str(each) for each in refused)
    with pytest.raises(HostError, match=f"{LOOK_UPS_MAX} names are looked up"):
        await checked()
    resolver.answers.set()
    async with asyncio.timeout(PATIENCE_S):
        while targets._look_ups:
            await world.clock.sleep(0)
    assert dict((await targets.checked_part(test, registry.tools()["ping"], part, (), 5)).addresses)


async def test_no_body_is_kept() -> None:
    """The body that curl searches is in no output that is kept or sent."""
    tool = registry.tools()["curl"]
    part = _part("http", "198.51.100.7", url="http://192.0.2.9/", text="secret")
    command = tool.command(part)
    outcome = _read(tool, part, command, Output(7, b"the secret body", b"{broken"), 0)
    assert outcome.output == "{broken"
    assert command.foreign_stdout
    assert not Command(("ping",)).foreign_stdout


@pytest.mark.parametrize("address", ["-x", "-oX --help", "a b", "", "127.0.0.1;id", "fe80::1%eth0"])
async def test_addresses_are_hosts(world: World, address: str) -> None:
    """An address that a lead gives is never an option or a part of a command."""
    a, b = await world.two()
    await _ask(a, "latency", {"source": "a", "dest": "b"})
    [row] = await b.rows("SELECT participants, addresses FROM task")
    party, hosts = dict(row["participants"][1]), dict(row["addresses"])
    assert hosts["b"] == party["address"] == "127.0.0.1"
    with pytest.raises(ValueError, match=r"not a host name|is empty|zone|not allowed"):
        Introduction.model_validate({"participants": [party | {"address": address}]})
    with pytest.raises(ValueError, match=r"not a host name|is empty|zone|not allowed"):
        Introduction.model_validate({"addresses": {"b": address}})
