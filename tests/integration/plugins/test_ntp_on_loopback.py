"""Packets to NTP servers on loopback that are right, wrong, or refuse."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.plugins.targets import measured
from tests.support.loopback import free_port
from tests.support.ntp_server import answer


@contextlib.contextmanager
def serving(talk: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    """Serve NTP; yield the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            question, endpoint = self.request
            for reply in talk(question):
                endpoint.sendto(reply, self.client_address)

    with socketserver.UDPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def asked(talk: Callable[[bytes], list[bytes]], **fields: Any) -> Any:
    """Ask a server on loopback once, and return the result."""
    with serving(talk) as port:
        place: dict[str, Any] = {"dest": "127.0.0.1", "port": port, "count": 1}
        return measured("ntp", "ntpclient", **place | fields)


@pytest.mark.parametrize("ahead_ms", [0, 1500, -1500, 10 * 365 * 86_400_000])
def test_a_clock_is_compared(ahead_ms: int) -> None:
    """The offset is that of the server within its bound, in the next era of NTP, too."""
    run = asked(lambda it: [answer(it, ahead_ns=ahead_ms * 10**6)])
    assert run.reason is None
    result = run.result or {}
    assert abs(result["offset_ms"] - ahead_ms) <= result["bound_ms"] + 0.01
    assert 0 < result["bound_ms"] < 500
    assert (result["sent"], result["received"], result["loss"]) == (1, 1, 0)
    assert (result["stratum"], result["leap"], result["reference"]) == (2, "none", "c000027b")
    assert result["root_distance_ms"] == pytest.approx(15.625, abs=0.001)
    assert result["address"] == "127.0.0.1"


def test_a_reference_clock_has_a_name() -> None:
    """A server of stratum 1 names its clock."""
    run = asked(lambda it: [answer(it, stratum=1, reference=b"GPS\0")])
    assert ((run.result or {})["reference"], run.reason) == ("GPS", None)


@pytest.mark.nightly
def test_packets_are_sent_at_their_pace() -> None:
    """Several packets have several round trips; the offset is that of the shortest."""
    arrivals: list[float] = []

    def late(question: bytes) -> list[bytes]:
        arrivals.append(time.monotonic())
        return [answer(question)] if len(arrivals) != 2 else []

    run = asked(late, count=3, interval="PT1S", timeout="PT0.2S")
    result = run.result or {}
    assert (result["sent"], result["received"]) == (3, 2)
    assert result["loss"] == pytest.approx(1 / 3, abs=1e-6)
    assert arrivals[2] - arrivals[0] == pytest.approx(2, abs=0.5)
    assert run.reason is None


def test_a_refusal_ends_it() -> None:
    """A server that refuses gets no further packet, and its code is the reason."""
    questions: list[bytes] = []

    def refuse(question: bytes) -> list[bytes]:
        questions.append(question)
        return [answer(question, stratum=0, reference=b"RATE")]

    run = asked(refuse, count=4)
    assert str(run.reason).endswith("refuses to tell the time: RATE")
    assert ((run.result or {})["kiss"], len(questions)) == ("RATE", 1)


@pytest.mark.parametrize(
    "talk",
    [
        lambda _: [],
        lambda _: [b"", b"nonsense"],
        lambda it: [answer(it, origin=1)],
        lambda it: [answer(it, mode=3)],
    ],
    ids=["silent", "nonsense", "stranger", "not a server"],
)
def test_what_is_no_answer_is_none(talk: Callable[[bytes], list[bytes]]) -> None:
    """Silence, nonsense, and answers to nothing that was asked are all packets lost."""
    run = asked(talk, timeout="PT0.2S")
    assert str(run.reason).endswith("answered none of 1 packets")
    assert (run.result or {})["loss"] == 1


def test_a_second_copy_counts_once() -> None:
    """An answer that comes twice is one answer."""
    run = asked(lambda it: [answer(it), answer(it)])
    assert ((run.result or {})["received"], run.reason) == (1, None)


@pytest.mark.parametrize(("stratum", "leap"), [(16, 3), (3, 3)])
def test_a_clock_that_follows_nothing_fails(stratum: int, leap: int) -> None:
    """A server that is not synchronised has an offset, and the run fails."""
    run = asked(lambda it: [answer(it, stratum=stratum, leap=leap)])
    assert str(run.reason).endswith("says that its own clock is not synchronised")
    assert (run.result or {})["offset_ms"] is not None


def test_a_closed_port_is_said() -> None:
    """A closed port is named as such."""
    port = free_port()
    run = measured("ntp", "ntpclient", dest="127.0.0.1", port=port, count=1, timeout="PT0.5S")
    assert run.reason == f"127.0.0.1 port {port}: Connection refused"
