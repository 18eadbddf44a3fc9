"""The schedules by which packets of a session leave: RFC 4656, section 5. Pure.

A schedule is a few pauses that are repeated. Both ends of a session draw the pauses that are
exponentially distributed from the same generator, whose key is the session's id, so that a receiver
knows when a packet was to be sent that it has never seen. All numbers are 64 bits with the point in
the middle, as seconds of NTP's timestamps are, and products are cut, not rounded, as the RFC says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from node.plugins.tools.programs.owamp_messages import Slot

_POINT = 32
_ONE = 1 << _POINT
_SECOND_NS = 1_000_000_000
_QUANTILES = (
    0xB17217F8, 0xEEF193F7, 0xFD271862, 0xFF9D6DD0, 0xFFF4CFD0, 0xFFFEE819, 0xFFFFE7FF,
    0xFFFFFE2B, 0xFFFFFFE0, 0xFFFFFFFE, 0xFFFFFFFF,
)  # fmt: skip
"""The sums of (ln 2)^i / i! up to the first, the second, … member."""
_LN2 = _QUANTILES[0]
_WORDS = 4
_WORD_BITS = 32


def offsets_ns(session: bytes, slots: Sequence[Slot]) -> Iterator[int]:
    """Yield how long after its start each packet of a session leaves, without end.

    The first one leaves after the first pause.
    """
    drawn, offset, at = exponentials(session), 0, 0
    while True:
        slot = slots[at % len(slots)]
        mean = (slot.pause_ns << _POINT) // _SECOND_NS
        offset += (next(drawn) * mean) >> _POINT if slot.exponential else mean
        at += 1
        yield offset * _SECOND_NS >> _POINT


def exponentials(session: bytes) -> Iterator[int]:
    """Yield numbers that are exponentially distributed with a mean of one."""
    words = _uniform_words(session)
    while True:
        word, ones = next(words), 0
        while word >> (_WORD_BITS - 1) and ones < _WORD_BITS:
            word, ones = word << 1 & (_ONE - 1), ones + 1
        rest = word << 1 & (_ONE - 1)  # without the zero that ended the ones
        if rest < _LN2:
            yield (ones * _LN2) + rest
            continue
        least = next(at for at, each in enumerate(_QUANTILES, 1) if rest < each or at == 11)  # noqa: PLR2004 - the last one
        smallest = min(next(words) for _ in range(least))
        yield ((ones << _POINT) + smallest) * _LN2 >> _POINT


def _uniform_words(session: bytes) -> Iterator[int]:
    """Yield words of 32 bits: AES of a counter, of which every fourth value is used."""
    cipher = Cipher(algorithms.AES(session), modes.ECB()).encryptor()  # noqa: S305 - as the RFC says
    counter = 0
    while True:
        block = cipher.update(counter.to_bytes(16, "big"))
        for at in range(_WORDS):
            yield int.from_bytes(block[4 * at : 4 * at + 4], "big")
        counter += _WORDS
