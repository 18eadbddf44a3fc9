"""Names are looked up beside everything else, and answers are kept as their records say."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from node.runtime.resolver import AGAIN_S, PATIENCE_S, STALE_S, ResolvingLoop
from tests.support.name_servers import (
    ABSENT_S,
    EVERYTHING,
    NOTHING,
    NameServer,
    name_server,
    resolver_of,
)

Story = Callable[["HurriedLoop", NameServer], Awaitable[None]]


class HurriedLoop(ResolvingLoop):
    """A loop whose time a test moves."""

    ahead = 0.0

    def time(self) -> float:
        """Return the moved time."""
        return super().time() + self.ahead

    async def pass_until(self, task: asyncio.Task[object]) -> None:
        """Move the time, a little at each turn, until a task is done."""
        while not task.done():
            self.ahead += 0.02
            await asyncio.wait({task}, timeout=0)


def play(story: Story, folder: Path) -> None:
    """Play a story in a loop that looks names up at a server of its own."""

    async def played() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HurriedLoop)
        async with name_server() as server:
            loop.resolver = resolver_of(server, folder)
            await story(loop, server)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(played())


async def found(host: str, family: int = 0) -> list[str]:
    """Return the addresses of a host as every library finds them."""
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, 80, family=family, type=socket.SOCK_STREAM)
    assert {entry[4][1] for entry in entries} == {80}
    return [str(entry[4][0]) for entry in entries]


async def refused(host: str) -> str:
    """Return why there is no address."""
    with pytest.raises(socket.gaierror) as caught:
        await found(host)
    return str(caught.value.strerror)


def test_answers_are_kept_as_long_as_their_records_say(tmp_path: Path) -> None:
    """A name is asked for once, and again when its record has expired."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        server.records["a.test"] = [(20, "A", "192.0.2.1"), (90, "AAAA", "2001:db8::1")]
        both = {"192.0.2.1", "2001:db8::1"}
        answers = await asyncio.gather(*(found("a.test") for _ in range(10)))
        assert [set(each) for each in answers] == [both] * 10
        assert server.asked == {("a.test", "A"): 1, ("a.test", "AAAA"): 1}
        server.records["a.test"] = [(20, "A", "192.0.2.2")]
        loop.ahead += 15
        assert set(await found("A.test.")) == both
        loop.ahead += 10
        assert await found("a.test") == ["192.0.2.2"]

    play(story, tmp_path)


def test_a_name_that_does_not_exist_is_not_asked_for_again(tmp_path: Path) -> None:
    """An absent name is absent for as long as its zone says."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        for _ in range(3):
            assert await refused("b.test") == "no such name: b.test"
        assert server.asked["b.test", "A"] == 1
        server.records["b.test"] = [(20, "A", "192.0.2.3")]
        loop.ahead += ABSENT_S - 1
        assert await refused("b.test") == "no such name: b.test"
        loop.ahead += 2
        assert await found("b.test") == ["192.0.2.3"]

    play(story, tmp_path)


def test_known_addresses_outlive_their_name_servers(tmp_path: Path) -> None:
    """While nobody answers, known addresses are used, and no question is put at each look."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        server.records["c.test"] = [(20, "A", "192.0.2.4")]
        assert await found("c.test") == ["192.0.2.4"]
        server.swallowed = EVERYTHING
        loop.ahead += 30
        asking = asyncio.create_task(found("c.test"))
        await loop.pass_until(asking)
        assert asking.result() == ["192.0.2.4"]
        for pending in list(loop.resolver._pending.values()):
            await loop.pass_until(pending)
        questions = server.asked.total()
        for _ in range(20):
            assert await found("c.test") == ["192.0.2.4"]
        assert server.asked.total() == questions
        server.swallowed, server.records["c.test"] = NOTHING, [(20, "A", "192.0.2.5")]
        loop.ahead += AGAIN_S + 1
        assert await found("c.test") == ["192.0.2.5"]

    play(story, tmp_path)


def test_addresses_that_nobody_renews_for_a_day_are_forgotten(tmp_path: Path) -> None:
    """Addresses are not used for ever."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        server.records["c.test"] = [(20, "A", "192.0.2.4")]
        assert await found("c.test") == ["192.0.2.4"]
        server.swallowed = EVERYTHING
        loop.ahead += STALE_S + 30
        asking = asyncio.create_task(refused("c.test"))
        await loop.pass_until(asking)
        assert asking.result() == "name servers do not answer: c.test"

    play(story, tmp_path)


def test_dead_names_keep_nothing_else_waiting(tmp_path: Path) -> None:
    """With a hundred names that nobody answers for, threads and other names are free."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        server.records["d.test"] = [(20, "A", "192.0.2.6")]
        server.swallowed = re.compile("dead-")
        dead = [asyncio.create_task(refused(f"dead-{each}.test")) for each in range(60)]
        await server.heard.wait()
        assert await asyncio.to_thread(lambda: 7) == 7
        assert await found("listed", socket.AF_INET) == ["192.0.2.9"]
        assert await found("d.test") == ["192.0.2.6"]
        assert not any(each.done() for each in dead)
        for each in dead:
            await loop.pass_until(each)
            assert "name servers do not answer" in each.result()
        assert loop.ahead < 5 * PATIENCE_S

    play(story, tmp_path)


def test_the_file_of_hosts_comes_first(tmp_path: Path) -> None:
    """Names of the file of hosts are not asked for, nor are addresses and this host's own name."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        assert set(await found("LISTED")) == {"192.0.2.9", "2001:db8::9"}
        assert await found("other") == ["192.0.2.9"]
        assert await found("192.0.2.77") == ["192.0.2.77"]
        assert "127.0.0.1" in await found("localhost")
        assert server.asked == {}
        assert await loop.getnameinfo(("192.0.2.1", 80), socket.NI_NUMERICHOST)

    play(story, tmp_path)


def test_what_is_no_name_is_refused(tmp_path: Path) -> None:
    """A name that no server can know is refused like one that does not exist."""

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        for name in ("a" * 70, "a..b", "x" * 300, "ü" * 80):
            assert "no such name" in await refused(name)
        assert not loop.resolver._pending

    play(story, tmp_path)


def test_no_more_names_are_kept_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that came first are forgotten first."""
    monkeypatch.setattr("node.runtime.resolver.KNOWN_MAX", 5)

    async def story(loop: HurriedLoop, server: NameServer) -> None:
        names = [f"{each}.test" for each in range(6)]
        server.records |= {each: [(20, "A", "192.0.2.7")] for each in names}
        for each in (*names, *names[1:], names[0]):
            await found(each, socket.AF_INET)
        assert [server.asked[each, "A"] for each in names] == [2, 1, 1, 1, 1, 1]

    play(story, tmp_path)
