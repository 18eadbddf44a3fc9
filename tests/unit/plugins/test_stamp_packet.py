"""STAMP's packets, octet by octet, as RFC 8762, RFC 8972 and RFC 4656 define them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.plugins.tools.programs import stamp_packet as packet

SECOND_NS = 1_000_000_000
NTP_EPOCH_S = 2_208_988_800
END_OF_ERA_NS = (2**32 - NTP_EPOCH_S) * SECOND_NS  # 2036-02-07

instants = st.integers(946_684_800 * SECOND_NS, 4_102_444_800 * SECOND_NS)  # 2000 to 2100
numbers = st.integers(0, 2**32 - 1)
timestamps = st.integers(0, 2**64 - 1)
halves = st.integers(0, 2**16 - 1)
senders = st.builds(packet.SenderPacket, numbers, timestamps, halves, halves)


def test_session_sender_packet() -> None:
    """The sender's fields are at the offsets of RFC 8762 section 4.2.1; the rest is zero."""
    octets = packet.pack_sender(packet.SenderPacket(0x01020304, 0x1112131415161718, 0x2122, 0x3132))
    assert len(octets) == 44
    assert octets[0:4].hex() == "01020304"
    assert octets[4:12].hex() == "1112131415161718"
    assert octets[12:14].hex() == "2122"
    assert octets[14:16].hex() == "3132"
    assert octets[16:44] == bytes(28)


def test_session_reflector_packet() -> None:
    """The reflector's fields are at the offsets of RFC 8762 section 4.3.1."""
    answer = packet.ReflectorPacket(
        sequence=0x01020304,
        timestamp=0x1112131415161718,
        error=0x2122,
        session=0x3132,
        received=0x4142434445464748,
        sender_sequence=0x51525354,
        sender_timestamp=0x6162636465666768,
        sender_error=0x7172,
        must_be_zero=0,
        sender_ttl=0x81,
    )
    octets = packet.pack_reflector(answer)
    assert len(octets) == 44
    assert octets[0:4].hex() == "01020304"
    assert octets[4:12].hex() == "1112131415161718"
    assert octets[12:16].hex() == "21223132"
    assert octets[16:24].hex() == "4142434445464748"
    assert octets[24:28].hex() == "51525354"
    assert octets[28:36].hex() == "6162636465666768"
    assert octets[36:40].hex() == "71720000"
    assert octets[40:44].hex() == "81000000"
    assert packet.unpack_reflector(octets) == answer


@given(senders)
def test_packets_come_back_as_they_were(sent: packet.SenderPacket) -> None:
    """Unpacking returns what was packed."""
    assert packet.unpack_sender(packet.pack_sender(sent)) == sent


@given(st.binary(max_size=43))
def test_short_packets_are_none(octets: bytes) -> None:
    """Fewer than 44 octets are not a STAMP packet."""
    assert packet.unpack_sender(octets) is None
    assert packet.unpack_reflector(octets) is None


def test_known_timestamps() -> None:
    """1970 is 2208988800 s after 1900, and half a second is half of the fraction."""
    assert packet.ntp_from_ns(0) == NTP_EPOCH_S << 32
    assert packet.ntp_from_ns(SECOND_NS // 2) == (NTP_EPOCH_S << 32) + 2**31


@given(instants, st.integers(-(10**18), 10**18))
def test_timestamps_are_exact_to_the_nanosecond(instant_ns: int, apart_ns: int) -> None:
    """An instant survives NTP's format, even across the end of its era in 2036."""
    near_ns = instant_ns + apart_ns
    assert packet.ns_from_ntp(packet.ntp_from_ns(instant_ns), near_ns) == instant_ns


def test_the_era_ends_in_2036() -> None:
    """The seconds restart from zero, and are still understood on both sides."""
    assert packet.ntp_from_ns(END_OF_ERA_NS) == 0
    assert packet.ns_from_ntp(0, END_OF_ERA_NS - 1) == END_OF_ERA_NS
    last = packet.ntp_from_ns(END_OF_ERA_NS - 1)
    assert packet.ns_from_ntp(last, END_OF_ERA_NS + SECOND_NS) == END_OF_ERA_NS - 1


@given(st.integers(0, 1), st.integers(0, 10**12))
@example(1, 238)  # rounding up carries into a ninth bit
def test_error_estimates_are_never_too_small(synchronised: int, error_ns: int) -> None:
    """Multiplier times 2^scale is at least the error, at most one part in 128 and a unit more."""
    estimate = packet.error_estimate(synchronised=bool(synchronised), error_ns=error_ns)
    multiplier, scale = estimate & 0xFF, estimate >> 8 & 0x3F
    stated = multiplier * 2**scale * SECOND_NS / 2**32
    assert multiplier > 0
    assert error_ns <= stated <= error_ns * (1 + 1 / 128) + 1
    assert estimate >> 15 == synchronised
    assert not estimate & 0x4000  # Z: timestamps are NTP's


def test_boundless_errors_are_the_largest() -> None:
    """An error beyond the format becomes the largest that it can express."""
    assert packet.error_estimate(synchronised=False, error_ns=10**40) == 63 << 8 | 255


@pytest.mark.parametrize(("length", "tail"), [(44, ""), (48, "80010000"), (50, "800100020102")])
def test_padding_is_a_tlv(length: int, tail: str) -> None:
    """Padding is one TLV of type 1 with the U flag set (RFC 8972), of the requested length."""
    assert packet.padding(length, b"\x01\x02\x03\x04\x05\x06").hex() == tail


def test_reflected_padding_is_recognised() -> None:
    """The reflector copies TLVs and clears the U flag of padding only."""
    head = bytes(44)
    assert packet.reflected_tail(head) == b""
    assert packet.reflected_tail(head + bytes.fromhex("800100020102")).hex() == "000100020102"
    assert packet.reflected_tail(head + bytes.fromhex("80020000")).hex() == "80020000"
    assert packet.reflected_tail(head + b"\x80\x01") == b"\x80\x01"
