"""The starts of a mesh's tasks are spread over their interval, always in the same way."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from node.mesh.comparison import compare
from node.mesh.spreading import is_spread, longest_wait, phase_of, start_in_words, start_of
from node.model import times
from node.model.recurrence import nominal_starts
from node.model.scheduling import recurrence_of
from node.model.wire.tasks import ScheduleTerms
from tests.unit.mesh.kept import MESH, NOW, a_mesh, all_terms, everything, pairs_of

FIVE = 5 * times.MINUTE


def test_phases_are_stable_and_spread() -> None:
    """A phase depends on the key alone, and a hundred of them fill the whole interval."""
    keys = [f"rtt/n{number}/n{number + 1}" for number in range(100)]
    phases = [phase_of("lab", key, FIVE) for key in keys]
    assert phases == [phase_of("lab", key, FIVE) for key in keys]
    assert phases[:3] == [0, 92 * times.SECOND, 175 * times.SECOND]
    assert all(0 <= phase < FIVE and phase % times.SECOND == 0 for phase in phases)
    tenths = Counter(phase * 10 // FIVE for phase in phases)
    assert len(tenths) == 10
    assert max(tenths.values()) < 25
    assert phase_of("other", keys[0], FIVE) != phases[0]


@given(key=st.text(max_size=20), interval=st.integers(1, 366 * times.DAY))
def test_a_start_long_ago_is_an_anchor(key: str, interval: int) -> None:
    """Whenever it is applied, a task runs at whole intervals after 2000 plus its phase."""
    phase = phase_of("lab", key, interval)
    start = times.parse_instant(start_of(phase))
    document = ScheduleTerms(start=start, repeat=interval)
    [first] = nominal_starts(recurrence_of(document.at(NOW), NOW), NOW, times.LATEST, 1)
    assert (first - times.EARLIEST - phase) % interval == 0
    assert first - NOW <= interval


def test_only_intervals_without_a_start_are_spread() -> None:
    """A schedule that says when it starts, or has a cron expression, is taken at its word."""
    more = (
        '[schedules.full]\nrepeat = "PT1H"\nstart = "@PT1H"\n'
        '[schedules.cron]\ncron = "0 * * * *"\n[schedules.once]\n'
    )
    schedules = a_mesh(MESH + more).schedules
    assert [name for name, each in schedules.items() if is_spread(each)] == ["hourly"]


def test_tasks_of_an_earlier_version_stay_together_until_told_otherwise() -> None:
    """Tasks that were created without phases match the file; --spread edits their starts only."""
    document = a_mesh()
    pairs, terms = pairs_of(document), all_terms(document)
    fresh = everything(document)
    assert compare(pairs, terms, fresh).nothing
    assert compare(pairs, terms, fresh, spread=True).nothing
    old = [
        task.model_copy(update={"schedule": task.schedule.model_copy(update={"start": None})})
        for task in everything(document)
    ]
    kept = compare(pairs, terms, old)
    assert (kept.nothing, kept.unchanged, kept.together) == (True, len(old), len(old))
    told = compare(pairs, terms, old, spread=True)
    assert (len(told.edit), told.together) == (len(old), 0)
    for edit in told.edit:
        wanted = start_of(phase_of("lab", edit.task.key, times.HOUR))
        assert edit.patch["schedule"] == {"start": wanted}
        assert start_in_words(wanted) in " ".join(edit.differences)


@given(
    runs=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=10),
    interval=st.just(100),
)
def test_the_longest_wait(runs: list[tuple[int, int]], interval: int) -> None:
    """The longest wait is that of a queue, run after run, however many intervals pass."""
    free_at = waited = 0
    for lap in range(5):
        for phase, duration in sorted(runs):
            waited = max(waited, free_at - phase - lap * interval)
            free_at = max(free_at, phase + lap * interval) + duration
    assert longest_wait(runs, interval) == waited


def test_starts_in_words() -> None:
    """The start of a spread task is shown as a distance into its interval, another one as it is."""
    start = start_of(37_500_000)
    assert start_in_words(start) == "37.5 s into each interval"
    assert start_in_words("2026-12-01T00:00:00Z") == "2026-12-01T00:00:00Z"
    assert start_in_words(None) is None
