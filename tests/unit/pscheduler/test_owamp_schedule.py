"""The schedules of OWAMP's sessions, by the test vectors of RFC 4656."""

from __future__ import annotations

from itertools import islice

import pytest

from node.plugins.tools.programs.owamp_messages import Slot
from node.pscheduler.owamp.schedule import exponentials, offsets_ns

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("seed", "first", "sum_of_thousand"),
    [
        ("2872979303ab47eeac028dab3829dab2", 0x6D27E540, 0x3EB7D735C01),
        ("0102030405060708090a0b0c0d0e0f00", 0xC2127448, 0x3F0A9B48272),
        ("deadbeefdeadbeefdeadbeefdeadbeef", 0x17EF33648, 0x3D2CD1C4AB4),
        ("feed0feed1feed2feed3feed4feed5ab", 0x300D1C98, 0x4067FAC41CA),
    ],
)
def test_pauses_are_those_of_the_rfc(seed: str, first: int, sum_of_thousand: int) -> None:
    """The numbers are those of the appendix, to the last bit."""
    drawn = list(islice(exponentials(bytes.fromhex(seed)), 1000))
    assert (drawn[0], sum(drawn)) == (first, sum_of_thousand)


def test_a_schedule_repeats_its_pauses() -> None:
    """Fixed and drawn pauses take turns; each packet leaves after a pause of its own."""
    session = bytes.fromhex("2872979303ab47eeac028dab3829dab2")
    fixed = [Slot(exponential=False, pause_ns=SECOND_NS), Slot(exponential=False, pause_ns=0)]
    assert list(islice(offsets_ns(session, fixed), 4)) == [
        SECOND_NS, SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS
    ]  # fmt: skip
    drawn = [Slot(exponential=True, pause_ns=SECOND_NS)]
    assert next(offsets_ns(session, drawn)) == 0x6D27E540 * SECOND_NS >> 32
