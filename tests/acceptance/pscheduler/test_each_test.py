"""Every test of pScheduler's command line, measured by real nodes and told in its words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.acceptance.conftest import facade_of
from tests.acceptance.outsider import Outsider
from tests.support.pscheduler.command import CommandLine, Failed
from tests.support.worlds import ON_ONE_LOOP

pytestmark = [pytest.mark.nightly, ON_ONE_LOOP, pytest.mark.usefixtures("tidy")]

SHORT = ("--packet-interval", "0.01", "--packet-count")


def tasks(a: Outsider, b: Outsider) -> dict[str, tuple[str, ...]]:
    """Return words of each test, with which it takes a moment."""
    here, there = facade_of(a.url), facade_of(b.url)
    pair = ("--source-node", here, "--dest-node", there, "--dest", b.address)
    return {
        "clock": ("--dest", there),
        "http": ("--url", f"{b.url}/", "--parse", "nothing like this"),
        "idleex": ("--duration", "PT1S"),
        "latency": (*pair, *SHORT, "50"),
        "mtu": ("--dest", b.address),
        "psresponse": ("--dest", b.address),
        "rtt": ("--dest", b.address, "--count", "3", "--interval", "PT0.2S"),
        "simplestream": (*pair, "--test-material", "Hello"),
        "throughput": (*pair, "--duration", "PT1S", "--parallel", "2", "--link-rtt", "5"),
        "trace": ("--dest", b.address, "--hops", "3"),
    }


PRINTED = {
    "clock": r"Local:\n\n  Time \.{11} .*\n(.*\n)+\nDifference \.\.\. PT?",
    "http": r"Response Time \.\.\. PT.*\nStatus Code \.{5} 200\nString Found \.{4} False",
    "idleex": r"Duration \.\.\. PT1S",
    "latency": r"Packets Sent \.+ 50 packets(.*\n)+Delay Median \.+ \d",
    "mtu": r"MTU \.\.\. \d+",
    "psresponse": r"Time \.{5} Not Specified\nReason \.\.\. ",
    "rtt": r"(\d {7}\S+ \(\S+\)  64 Bytes  TTL \d+  RTT \d+\.\d{4} ms\n){3}\n0% Packet Loss",
    "simplestream": r"Text Sent \.+ Hello\nText Received \.+ Hello",
    "throughput": r"(\* Stream ID \d+\n(.*\n)+){2}Summary\nInterval(.*\n)0\.0 - 1\.0",
    "trace": r"1 {7}\S+",
}
"""The form of what is printed of each."""


async def merged(command: CommandLine, url: str) -> dict[str, Any]:
    """Return the first run of a task, when its result is there."""
    run = await command.get(f"{url}/runs/first", wait=30)
    return dict(await command.get(run["href"], wait=50, wait_merged=True))


@pytest.mark.needs("ping", "iperf3", "traceroute", "tracepath")
async def test_each_is_measured_and_printed(a: Outsider, b: Outsider) -> None:
    """Words become a spec, a task and a run, whose result is printed in text and told as JSON."""
    command = CommandLine(facade_of(a.url))
    urls = {test: await command.post(test, *words) for test, words in tasks(a, b).items()}
    detail = (await command.get(urls["throughput"], detail=True))["detail"]
    assert "link-rtt makes no difference: it is for booking time alone" in detail["diags"]
    for test, url in urls.items():
        run = await merged(command, url)
        assert run["state"] == "finished", json.dumps([test, run])
        assert run["result-merged"]["succeeded"], (test, run["result-merged"])
        assert run["result"]["error"] is None
        printed = await command.result(run["href"])
        assert re.search(PRINTED[test], printed), printed


async def test_each_interval_of_a_stream_is_a_run(a: Outsider, b: Outsider) -> None:
    """Streams are long runs, and each of their intervals is told as a run of its own."""
    command = CommandLine(facade_of(a.url))
    ends = ("--dest", b.address, "--dest-node", facade_of(b.url))
    stream = await command.post("latencybg", *ends, *SHORT, "100", "--duration", "PT5S")
    idle = await command.post("idlebgm", "--duration", "PT2S", "--interval", "PT1S")
    for url, member, count in ((stream, "histogram-latency", 5), (idle, "time-slept", 2)):
        told = await command.get(url, detail=True)
        assert told["detail"]["multi-result"] is True
        long_run = await merged(command, url)
        assert long_run["state"] == "finished", long_run
        runs = [await command.get(each) for each in await command.get(f"{url}/runs")]
        results = [run["result-merged"] for run in runs if run["start-time"] == run["end-time"]]
        assert len([each for each in results if member in each]) == count, json.dumps(results)


@pytest.mark.parametrize(
    ("test", "words", "said"),
    [
        ("throughput", ("--dest", "x", "--single-ended"), "both ends have to be nodes here"),
        ("latency", ("--dest", "x", "--ip-tos", "8"), "no tool here sets the type of service"),
        ("rtt", ("--dest", "x", "--count", "0"), "At /count: must be a whole number of at least 1"),
        ("rtt", ("--dest", "x", "--length", "5"), "length"),
    ],
)
async def test_what_cannot_be_measured_is_refused_in_words(
    a: Outsider, test: str, words: tuple[str, ...], said: str
) -> None:
    """A spec without an honest counterpart is refused with a sentence, not measured otherwise."""
    with pytest.raises(Failed, match=said):
        await CommandLine(facade_of(a.url)).post(test, *words)
