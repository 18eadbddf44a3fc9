"""The worked cases of run scheduling, answered by the product's functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden.answer import answers

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "tests" / "golden" / "policies" / "pscheduler.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text())}
BOUNDS = "PS-16"

DERIVED = {
    # 0-100 is taken by n1 alone; that n2 ends at 20 gives nothing back. 150 - 100 holds 20 s.
    "PS-04": {"exclusive": [[100, 150]]},
    # 15-20 and 20-25 are one range, which with 10-30 leaves 15-25, long enough for 8 s. Half-open
    # ranges that only touch, 0-10 and 10-20, share no instant.
    "PS-06": {"items": [{"common": [[15, 25]], "start": 15}, {"common": [], "start": None}]},
    # The window must end by now + 86,400 s: a may start up to 85,900; b up to 86,500, beyond it,
    # and waits; c, without slip, at 85,600.
    "PS-11": {"selected": ["a", "c"]},
    # The first multiple of 60 that is strictly later than each.
    "PS-13": {"next": [60, 60, 60, 120, 240]},
    # 1: 30-90 is free without displacing. 2: all is taken, and -3 is not lower than -5. 3: all is
    # taken, and -3 is lower than 0. What does not start says so, as in PS-09.
    "PS-14": {
        "items": [
            {"start": 30, "attempt": 1, "displaced": []},
            {"start": None, "attempt": None, "displaced": [], "outcome": "nonstart"},
            {"start": 0, "attempt": 2, "displaced": ["r1"]},
        ]
    },
    # n2 has only 25-30 left, too short; with r9 out of the way both are free from 0.
    "PS-15": {"start": 0, "attempt": 2, "displaced": ["r9"]},
}


def answered(case: dict[str, Any]) -> Any:
    """Return the answer to one case."""
    [result], faults = answers([case])
    assert faults == []
    return result["answer"]


@pytest.mark.parametrize("name", sorted(CASES.keys() - DERIVED.keys() - {BOUNDS}))
def test_the_product_answers_as_expected(name: str) -> None:
    """Each case with an expectation gets exactly that answer."""
    assert answered(CASES[name]) == CASES[name]["expect"]


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_product_answers_as_derived(name: str) -> None:
    """Each case that gives only the shape of its answer gets the answer derived by hand."""
    assert answered(CASES[name]) == DERIVED[name]


def test_random_starts_are_whole_seconds_in_the_range() -> None:
    """A thousand draws stay in the range, on whole seconds, and reach most of them."""
    result, expected = answered(CASES[BOUNDS]), CASES[BOUNDS]["expect"]
    assert result["start_min"] >= expected["start_min"]
    assert result["start_max_inclusive"] <= expected["start_max_inclusive"]
    assert result["whole_seconds"] is expected["whole_seconds"]
    assert result["distinct_at_least"] >= expected["distinct_at_least"]


def test_the_expectation_is_never_read() -> None:
    """A case with a wrong expectation gets the same answer."""
    for case in CASES.values():
        assert answered({**case, "expect": {"start": -1}}) == answered(case)


@pytest.mark.nightly
def test_unknown_systems_are_reported_and_the_rest_is_answered(tmp_path: Path) -> None:
    """The command answers what it can and reports on stderr which system it cannot answer for."""
    file = tmp_path / "cases.json"
    stranger = {"id": "XX-01", "system": "tombola", "given": {}}
    unreadable = {"id": "XX-02", "system": "pscheduler", "given": {"colour": "blue"}}
    file.write_text(json.dumps([stranger, unreadable, CASES["PS-13"]]))
    argv = [sys.executable, "-m", "tests.golden.answer", str(file)]
    ran = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [{"id": "PS-13", "answer": DERIVED["PS-13"]}]
    assert "the system tombola" in ran.stderr
    assert "XX-01" in ran.stderr
    assert "XX-02 cannot be read" in ran.stderr
