"""Objections by DNS, asked of a real name server on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.runtime.opt_outs import AT_ONCE_MAX, PATIENCE_S, OptOuts
from node.runtime.resolver import NameServers
from tests.support.objections import objecting


@pytest.mark.parametrize(
    ("host", "record"),
    [
        ("example.org", "_parley.example.org"),
        ("deep.down.example.org", "_parley.example.org"),
        ("198.41.0.4", "_parley.4.0.41.198.in-addr.arpa"),
        ("www.example.org", None),
        ("example.net", None),
        ("127.0.0.1", None),
        ("forever.example", None),
        ("huge.example", "_parley.huge.example"),
    ],
)
async def test_a_target_says_no(host: str, record: str | None) -> None:
    """A target with a record of its own or above it is refused, with the record in the reason."""
    async with objecting() as (_, opt_outs):
        reason = await opt_outs.refusal([host], 2)
        expected = record and (
            f"{host} has said by DNS ({record} TXT) that it does not want to be measured"
        )
        assert reason == expected
        assert await opt_outs.refusal([host], 0) == expected


async def test_answers_are_remembered() -> None:
    """A name is asked for once, whether there is a record or none, also by many at a time."""
    async with objecting() as (zone, opt_outs):
        for _ in range(3):
            many = (opt_outs.refusal(["example.org", "example.net"], 2) for _ in range(5))
            assert len(set(await asyncio.gather(*many))) == 1
        assert set(zone.asked.values()) == {1}


async def test_an_answer_without_a_life_is_remembered_for_a_minute() -> None:
    """A record that is to be forgotten at once is not asked for again by each run."""
    async with objecting() as (zone, opt_outs):
        for _ in range(3):
            assert await opt_outs.refusal(["hasty.example"], 2) is not None
        assert zone.asked["_parley.hasty.example."] == 1


async def test_the_name_servers_of_today_are_asked(tmp_path: Path) -> None:
    """A host that gets other name servers while its node runs asks these."""
    async with objecting() as (_, opt_outs):
        configuration, port = tmp_path / "resolv.conf", opt_outs.servers._port
        configuration.write_text("nameserver 127.0.0.7\n")
        asker = OptOuts(tuple, NameServers(configuration, port))
        assert await asker.refusal(["198.41.0.4"], PATIENCE_S) is None
        configuration.write_text("nameserver 127.0.0.1\n")
        assert await asker.refusal(["example.org"], PATIENCE_S) is not None


async def test_silence_is_no_objection() -> None:
    """A name server that does not answer delays nothing for long, and refuses nothing."""
    async with objecting() as (zone, opt_outs):
        zone.silent = True
        began = asyncio.get_running_loop().time()
        assert await opt_outs.refusal(["example.org"], 0.2) is None
        assert asyncio.get_running_loop().time() - began < 2


async def test_questions_under_way_are_bounded() -> None:
    """No more questions are under way than the bound, however many targets there are."""
    async with objecting() as (zone, opt_outs):
        zone.silent = True
        hosts = [f"n{number}.example" for number in range(3 * AT_ONCE_MAX)]
        assert await opt_outs.refusal(hosts, 0.2) is None
        assert len(zone.asked) <= AT_ONCE_MAX


async def test_silent_zones_keep_no_other_from_being_asked() -> None:
    """Silent zones, as many as may be asked at once, hide no objection longer than one waits."""
    async with objecting() as (zone, opt_outs):
        zone.silent = True
        hosts = [f"n{number}.example" for number in range(AT_ONCE_MAX)]
        assert await opt_outs.refusal(hosts, PATIENCE_S) is None
        zone.silent = False
        assert await opt_outs.refusal(["example.org"], PATIENCE_S) is not None
