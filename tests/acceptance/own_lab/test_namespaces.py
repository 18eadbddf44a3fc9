"""Two measurements over an emulated wide-area network whose delay and loss are known."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from math import comb

import aiohttp
import pytest

from node.cli.lab.supervisor import Lab
from node.cli.lab.wan import WanSettings
from tests.acceptance.outsider import Outsider
from tests.integration.host_leftovers import nothing_left

pytestmark = pytest.mark.timeout(120)

DELAY_MS = 20.0
LOSS = 0.01
CONFIDENCE = 0.999


def interval(trials: int, chance: float) -> tuple[int, int]:
    """Return the bounds, both included, of the counts at our confidence for this many trials."""
    tail = (1 - CONFIDENCE) / 2
    below, counts = 0.0, []
    for successes in range(trials + 1):
        ways = comb(trials, successes)
        at = float(ways) * chance**successes * (1 - chance) ** (trials - successes)
        if below + at > tail and below <= 1 - tail:
            counts.append(successes)
        below += at
        if below > 1 - tail:
            break
    return counts[0], counts[-1]


def test_the_interval() -> None:
    """The binomial interval equals the published tables."""
    assert interval(10, 0.5) == (0, 10)
    assert interval(100, 0.5) == (34, 66)
    assert interval(600, 0.01) == (0, 15)


@pytest.mark.needs("root", "ip", "ping")
@pytest.mark.nightly
async def test_delay_and_loss_are_what_the_network_does() -> None:
    """Latency and round trip report delay to a millisecond, and loss within its interval."""
    with nothing_left():
        async with (
            Lab(2, WanSettings(delay_ms=DELAY_MS, loss=LOSS)) as lab,
            aiohttp.ClientSession() as session,
        ):
            a, b = (Outsider(**asdict(node), session=session) for node in lab.nodes)
            latency = {"count": 600, "interval": "PT0.015S"}
            rtt = {"dest": "b", "count": 400, "interval": "PT0.02S"}
            tasks = [await a.create("latency", a, b, spec=latency), await a.create("rtt", spec=rtt)]
            runs = [await a.run(task) for task in tasks]
            both = await asyncio.gather(*(a.finished(run) for run in runs))
            _check_latency(both[0]["result"])
            _check_rtt(both[1]["result"])


def _check_latency(figures: dict[str, object]) -> None:
    sent, there, back = (figures[name] for name in ("sent", "received_at_dest", "received_back"))
    assert isinstance(sent, int)
    assert isinstance(there, int)
    assert isinstance(back, int)
    delays = figures["delay_ms"]
    assert isinstance(delays, dict)
    for way in ("forward", "backward"):
        assert abs(delays[way]["median"] - DELAY_MS) <= 1, delays
    assert abs(delays["round_trip"]["median"] - 2 * DELAY_MS) <= 2, delays
    least, most = interval(sent, LOSS)
    assert least <= sent - there <= most
    least, most = interval(there, LOSS)
    assert least <= there - back <= most


def _check_rtt(figures: dict[str, object]) -> None:
    sent, received, rtt = (figures[name] for name in ("sent", "received", "rtt_ms"))
    assert isinstance(sent, int)
    assert isinstance(received, int)
    assert isinstance(rtt, dict)
    assert abs(rtt["median"] - 2 * DELAY_MS) <= 2, rtt
    least, most = interval(sent, 1 - (1 - LOSS) ** 2)
    assert least <= sent - received <= most
