"""Figures of benchmarks are compared with the last ones of such a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.bench import history
from tests.bench.figures import Figure
from tests.bench.history import Machine

HERE = Machine("Fast 9000", 2, "3.11.2", 0.1)
SPEED = Figure("speed", 500.0, "1/s", "as fast as it goes")


def test_a_figure_is_compared_with_the_last_one_of_such_a_machine(tmp_path: Path) -> None:
    """Another processor does not count, another load does, and the newest one is taken."""
    file = tmp_path / "history.jsonl"
    assert history.ratio(SPEED, HERE, history.read(file)) == "(first on such a machine)"
    for machine, value in (
        (HERE, 100.0),
        (replace(HERE, load=3.0), 400.0),
        (replace(HERE, processor="Slow"), 1.0),
    ):
        history.keep(machine, [replace(SPEED, value=value)], file)
    kept = history.read(file)
    assert [entry.figures for entry in kept] == [{"speed": 100}, {"speed": 400}, {"speed": 1}]
    assert history.ratio(SPEED, HERE, kept) == f"(1.25 of {history.this_commit()})"
    assert "first" in history.ratio(replace(SPEED, name="size"), HERE, kept)


def test_nothing_is_divided_by_nothing(tmp_path: Path) -> None:
    """A count that was zero is shown as such."""
    file = tmp_path / "history.jsonl"
    history.keep(HERE, [replace(SPEED, value=0)], file)
    assert history.ratio(SPEED, HERE, history.read(file)).startswith("(0 at ")
