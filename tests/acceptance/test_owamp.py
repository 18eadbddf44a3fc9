"""One-way delay to and from a server of OWAMP at a node that takes no part, in a lab."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.conftest import OWAMP_PORT
from tests.acceptance.outsider import Json, Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]


def spec(dest: str, port: int = OWAMP_PORT, **more: Json) -> Json:
    """Return the spec of a measurement to and from the server there."""
    return {"dest": dest, "responder": "owamp", "port": port, "interval": "PT0.02S", **more}


async def test_a_server_is_measured_and_one_that_is_dead_is_a_reason(
    a: Outsider, b: Outsider
) -> None:
    """The node measures alone, both ways; without a server the reason says so."""
    alive, dead = await asyncio.gather(
        a.create("latency", spec=spec(b.address, count=50)),
        a.create("latency", spec=spec(b.address, 8611, count=50)),
    )
    assert [each["name"] for each in alive["participants"]] == [a.name]
    assert alive["tool"] == "owping"
    run, failed = await asyncio.gather(a.run(alive), a.run(dead))
    ended, without = await asyncio.gather(a.finished(run), a.over(failed))
    result = ended["result"]
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (50, 50, 50)
    assert result["loss"] == {"forward": 0, "backward": 0, "round_trip": 0}
    assert result["reordered"] == {"forward": 0, "backward": 0}
    assert result["clocks"]["dest"]["synchronised"] == result["clocks"]["source"]["synchronised"]
    assert without["state"] == "failed"
    assert without["reason"].startswith(f"{a.name}: no OWAMP with {b.address}: ")


@pytest.mark.nightly
async def test_a_stream_has_a_result_for_each_interval(a: Outsider, b: Outsider) -> None:
    """Intervals are exchanges of their own, which overlap, and no packet is lost between them."""
    stream = spec(b.address, duration="PT6S", each="PT2S")
    task = await a.create("latencybg", spec=stream)
    assert task["tool"] == "powstream"
    ended = await a.finished(await a.run(task))
    result = ended["result"]
    assert (result["intervals"], result["gaps"]) == (3, 0)
    assert (result["sent"], result["received_back"]) == (300, 300)
