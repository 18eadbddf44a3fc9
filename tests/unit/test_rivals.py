"""Two processes of one key are told of each other, and a host from a copy of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from node.model.times import SECOND
from node.peers.rivals import SILENT, OwnProcess, ProcessesHeard, ServingProcess, Standing
from node.store.mark import HostMarks, _cards, _digest
from tests.support.clocks import START, ManualClock

ORIGINAL, COPY = OwnProcess.new(0), OwnProcess.new(SECOND)
DATA, NEWER = uuid4(), uuid4()


class Hearer:
    """A node that hears the processes of another one."""

    def __init__(self, clock: ManualClock) -> None:
        """Have heard none."""
        self.clock, self._heard = clock, ProcessesHeard(clock)

    def hear(self, own: OwnProcess, data: UUID | None = DATA, sender: str = "a") -> Standing:
        """Hear what a process tells now."""
        told = own.told(self.clock, data)
        return self._heard.hear(sender, told, json.dumps(told.claims))

    def ends(self, own: OwnProcess, data: UUID | None = DATA) -> bool:
        """Return whether a process takes itself for a copy by the answer."""
        rival = self.hear(own, data).rival
        told = own.told(self.clock, data)
        return rival is not None and told.is_copy_beside(ServingProcess.of(json.loads(rival)))


@pytest.fixture(name="heard")
def _heard(clock: ManualClock) -> Hearer:
    return Hearer(clock)


def test_a_restart_makes_no_rivals(heard: Hearer, clock: ManualClock) -> None:
    """A process that took the place of another one hears how long ago that one was heard."""
    assert heard.hear(ORIGINAL) == Standing()
    clock.advance(3 * SECOND)
    for passed in range(4):
        assert heard.hear(COPY) == Standing(None, 3 * SECOND + passed * 8 * SECOND)
        clock.advance(8 * SECOND)
    assert (heard.hear(COPY).heard or 0) > SILENT
    clock.advance(60 * SECOND)
    assert heard.hear(COPY) == Standing()


@pytest.mark.parametrize("ahead", [0, 3600 * SECOND])
def test_both_of_two_that_live_are_told_and_one_of_them_ends(ahead: int) -> None:
    """The copy ends with its second message, and never the original, as its clock began ahead."""
    clock = ManualClock(START + ahead)
    heard = Hearer(clock)
    heard.hear(ORIGINAL)
    clock.advance(2 * SECOND)
    clock.step(-ahead)
    heard.hear(COPY)
    clock.advance(13 * SECOND)
    assert not heard.ends(ORIGINAL)
    clock.advance(2 * SECOND)
    assert heard.ends(COPY)
    assert heard.hear(COPY, sender="other") == Standing()
    clock.advance(13 * SECOND)
    assert not heard.ends(ORIGINAL)


def test_a_late_message_of_an_ended_process_is_no_rival(heard: Hearer, clock: ManualClock) -> None:
    """A message of an ended process may arrive after the first one of the next process."""
    heard.hear(ORIGINAL)
    heard.hear(COPY)
    clock.advance(4 * SECOND)
    heard.hear(ORIGINAL)
    assert heard.hear(COPY).rival is None


def test_a_host_that_the_owner_chose_has_no_rival(heard: Hearer, clock: ManualClock) -> None:
    """A process with a newer generation of the data is told of no rival with an older one."""
    heard.hear(COPY, NEWER)
    clock.advance(10 * SECOND)
    heard.hear(ORIGINAL)
    assert heard.hear(COPY, NEWER).rival is None
    assert heard.ends(COPY)


def test_an_original_that_was_restarted_meanwhile_goes_on(
    heard: Hearer, clock: ManualClock
) -> None:
    """A copy that still asks ends, though the original's process was started after it."""
    restarted = OwnProcess.new(9 * SECOND)
    heard.hear(COPY, None)
    clock.advance(8 * SECOND)
    assert heard.hear(restarted).rival is None
    assert heard.ends(COPY, None)
    clock.advance(8 * SECOND)
    assert not heard.ends(restarted)


OWN = ServingProcess(UUID(int=1), START, START + 60 * SECOND, DATA)
EARLIER = ServingProcess(UUID(int=2), START - SECOND, START + 30 * SECOND, DATA)


@pytest.mark.parametrize(
    ("own", "rival", "is_copy"),
    [
        (OWN, EARLIER, True),
        (OWN, replace(EARLIER, at=START - SECOND), False),  # of an earlier process of its own
        (OWN, replace(EARLIER, at=START + 4 * SECOND), False),  # of one that just ended
        (OWN, replace(EARLIER, id=OWN.id), False),
        (OWN, replace(EARLIER, started_at=START + 9 * SECOND), False),
        (OWN, replace(EARLIER, generation=NEWER), False),  # announcements tell which goes on
        (OWN, replace(EARLIER, generation=None), False),  # the one whose host is the stored one
        (replace(OWN, generation=None), EARLIER, True),
        (replace(OWN, generation=None), replace(EARLIER, started_at=START + SECOND), True),
        (replace(OWN, generation=None), replace(EARLIER, generation=None), True),
    ],
)
def test_a_statement_proves_a_copy(
    own: ServingProcess, rival: ServingProcess, *, is_copy: bool
) -> None:
    """A statement counts that was made while this process was there, by one that goes before it."""
    assert own.is_copy_beside(ServingProcess.of(rival.claims)) is is_copy


MARKS = HostMarks("machine", frozenset({"c1", "c2"}), frozenset({"path", "inode"}))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (MARKS, True),
        (HostMarks("machine", frozenset({"c2", "c3"}), frozenset({"path", "other"})), True),
        (HostMarks("machine", frozenset(), frozenset({"path", "inode"})), True),
        (HostMarks("other", frozenset({"c1"}), frozenset({"path", "inode"})), False),
        (HostMarks("machine", frozenset({"c9"}), frozenset({"path", "inode"})), False),
        (HostMarks("machine", frozenset({"c1"}), frozenset({"p2", "i2"})), False),
    ],
)
def test_a_copy_is_told_from_its_host(other: HostMarks, *, same: bool) -> None:
    """A clone has other network cards, a copy on the host another directory; a card may be new."""
    assert other.are_those_of(str(MARKS)) is same
    assert other.are_those_of(None)


def test_the_marks_of_this_host_are_its_own(tmp_path: Path) -> None:
    """The same directory has the same marks, and another one has not; no address can be read."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    marks = HostMarks.of(tmp_path / "one")
    assert HostMarks.of(tmp_path / "one") == marks
    assert not HostMarks.of(tmp_path / "two").are_those_of(str(marks))
    assert str(tmp_path) not in str(marks)


def test_a_random_address_is_no_mark(tmp_path: Path) -> None:
    """A card whose address is drawn anew at each start would make each start another host."""
    for name, kind in (("own", "0"), ("random", "1"), ("set", "3")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "addr_assign_type").write_text(f"{kind}\n")
        (tmp_path / name / "address").write_text(f"{name}\n")
    (tmp_path / "virtual").mkdir()
    assert _cards(tmp_path) == {_digest("card", "own")}
