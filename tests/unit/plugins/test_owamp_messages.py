"""OWAMP's messages, octet by octet, as RFC 4656 defines them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_packet

SESSION = bytes.fromhex("c0000202000102030405060708090a0b")
START = 0x1112131415161718
TO_SERVER = bytes.fromhex(
    "01040001"  # request, IPv4, the server does not send, it receives
    "0000000100000064"  # one slot, 100 packets
    "22630000"  # the sender's port, the receiver's to be told
    "c0000201000000000000000000000000"
    "c0000202000000000000000000000000"
    "00000000000000000000000000000000"
    "0000001e11121314151617180000000180000000000000000000000000000000"
    "00000000000000000000000000000000"
    "01000000000000000000000040000000"  # a fixed pause of a quarter of a second
    "00000000000000000000000000000000"
)  # fmt: skip
RECORDS = bytes.fromhex(
    "000000008001060211121314151617181112131415162718fe"
    "000000018001060211121315151617180000000000000000ff"
    "0000000000000000000000000000"
    "00000000000000000000000000000000"
)  # fmt: skip

numbers = st.integers(0, 2**32 - 1)
halves = st.integers(0, 2**16 - 1)
octets_of_code = st.integers(0, 255)
timestamps = st.integers(0, 2**64 - 1)
sessions = st.binary(min_size=16, max_size=16)
spans_ns = st.integers(0, 4_000_000_000_000_000_000)


@st.composite
def requests(draw: st.DrawFn) -> messages.Request:
    """Return any request of a session."""
    version: Literal[4, 6] = draw(st.sampled_from((4, 6)))
    addresses = st.ip_addresses(v=version).map(lambda it: "" if it.is_unspecified else str(it))
    ends = st.tuples(addresses, halves)
    return messages.Request(
        ip_version=version,
        server_sends=draw(st.booleans()),
        packets=draw(numbers),
        sender=draw(ends),
        receiver=draw(ends),
        session=draw(sessions),
        padding=draw(numbers),
        start=draw(timestamps),
        timeout_ns=draw(spans_ns),
        slots=draw(
            st.lists(st.builds(messages.Slot, st.booleans(), spans_ns), max_size=5).map(tuple)
        ),
        type_of_packet=draw(numbers),
    )


def test_a_request() -> None:
    """The fields of a request are at the offsets of RFC 4656 section 3.5."""
    request = messages.Request(
        ip_version=4,
        server_sends=False,
        packets=100,
        sender=("192.0.2.1", 8803),
        receiver=("192.0.2.2", 0),
        session=bytes(16),
        padding=30,
        start=START,
        timeout_ns=1_500_000_000,
        slots=(messages.Slot(exponential=False, pause_ns=250_000_000),),
    )
    assert request.pack() == TO_SERVER
    assert messages.Request.unpack(TO_SERVER) == request
    assert messages.Request.slots_in(TO_SERVER[:112]) == 1


def test_setting_up() -> None:
    """Greeting, response and start have the lengths and offsets of RFC 4656 section 3.1."""
    greeting = messages.Greeting(1).pack(b"c" * 16, b"s" * 16, 2048)
    assert greeting.hex() == "00" * 12 + "00000001" + "63" * 16 + "73" * 16 + "00000800" + "00" * 12
    assert messages.pack_set_up(1).hex() == "00000001" + "00" * 160
    assert messages.pack_server_start(5, START).hex() == (
        "00" * 15 + "05" + "00" * 16 + "1112131415161718" + "00" * 8
    )


def test_answers() -> None:
    """Answers, starts and stops have the lengths and offsets of RFC 4656 sections 3.5 to 3.8."""
    accepted = messages.Accepted(0, 8803, SESSION)
    assert accepted.pack().hex() == "0000" + "2263" + SESSION.hex() + "00" * 28
    assert messages.pack_start().hex() == "02" + "00" * 31
    assert messages.pack_start_ack(4).hex() == "04" + "00" * 31
    stopped = messages.Stopped(SESSION, 100, ((3, 5), (9, 9)))
    stop = messages.pack_stop(0, [stopped])
    assert stop.hex() == (
        "0300000000000001" + "00" * 8
        + SESSION.hex() + "0000006400000002"
        + "00000003000000050000000900000009" + "00" * 8
        + "00" * 16
    )  # fmt: skip
    assert messages.unpack_stop(stop[:16]) == (0, 1)
    assert messages.stopped_length(stop[16:48]) == 16
    assert messages.unpack_stopped(stop[16:64]) == stopped


def test_fetching() -> None:
    """Fetched records have the offsets of RFC 4656 section 3.9; a lost packet has no arrival."""
    assert messages.Fetch(SESSION).pack().hex() == (
        "04" + "00" * 7 + "00000000ffffffff" + SESSION.hex() + "00" * 16
    )
    ack = messages.FetchAck(0, 1, 100, 0, 2)
    assert ack.pack().hex() == "00010000000000640000000000000002" + "00" * 16
    assert (ack.skips_length, ack.records_length) == (16, len(RECORDS))
    records = messages.unpack_records(RECORDS, 2)
    assert [each.received for each in records] == [0x1112131415162718, 0]
    assert messages.pack_records(records) == RECORDS
    assert messages.pack_skips(()) == bytes(16)
    assert messages.unpack_skips(messages.pack_skips([(1, 2)]), 1) == ((1, 2),)


def test_a_packet() -> None:
    """A packet has the offsets of RFC 4656 section 4.1.2; one without an error is none."""
    packet = messages.Packet(7, START, 0x8602)
    assert messages.pack_packet(packet).hex() == "0000000711121314151617188602"
    assert messages.unpack_packet(messages.pack_packet(packet) + b"padding") == packet
    with pytest.raises(messages.Malformed, match="nothing of its clock"):
        messages.unpack_packet(bytes(14))


@given(requests())
def test_a_request_is_read_as_it_was_written(request: messages.Request) -> None:
    """All that a request says arrives; spans to the nanosecond."""
    assert messages.Request.unpack(request.pack()) == request


@given(st.integers(0, 10**15))
def test_the_error_of_a_clock_is_never_told_too_small(error_ns: int) -> None:
    """An error estimate arrives rounded up, by at most a 128th, or the least there is."""
    estimate = stamp_packet.error_estimate(synchronised=True, error_ns=error_ns)
    synchronised, told_ns = messages.clock_error(estimate)
    assert synchronised
    assert error_ns <= told_ns <= error_ns * 129 / 128 + 2
    assert messages.clock_error(estimate & 0x7FFF) == (False, told_ns)


READERS: list[Callable[[bytes], Any]] = [
    messages.Greeting.unpack,
    messages.unpack_set_up,
    messages.unpack_server_start,
    messages.Request.slots_in,
    messages.Request.unpack,
    messages.Accepted.unpack,
    messages.unpack_start_ack,
    messages.unpack_stop,
    messages.stopped_length,
    messages.unpack_stopped,
    messages.Fetch.unpack,
    messages.FetchAck.unpack,
    lambda octets: messages.unpack_skips(octets, 3),
    lambda octets: messages.unpack_records(octets, 3),
    messages.unpack_packet,
]
LENGTHS = [14, 16, 24, 32, 48, 64, 75, 112, 128, 144, 164]


@given(
    st.sampled_from(READERS),
    st.one_of(
        st.binary(max_size=200),
        st.sampled_from(LENGTHS).flatmap(
            lambda length: st.binary(min_size=length, max_size=length)
        ),
    ),
)
def test_any_octets_are_read_or_refused(reader: Callable[[bytes], Any], octets: bytes) -> None:
    """No octets make a reader raise anything but its own error."""
    with contextlib.suppress(messages.Malformed):
        reader(octets)


@given(st.data())
def test_a_request_with_any_octet_changed_is_read_or_refused(data: st.DataObject) -> None:
    """A real request with any octets changed, or cut, is a request or refused."""
    octets = bytearray(data.draw(requests()).pack())
    for _ in range(data.draw(st.integers(0, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(octets_of_code)
    cut = data.draw(st.integers(0, len(octets)))
    for each in (bytes(octets), bytes(octets[:cut])):
        with contextlib.suppress(messages.Malformed):
            assert len(messages.Request.unpack(each).slots) < len(each) // 16
