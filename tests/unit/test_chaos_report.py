"""The report of ``make chaos``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.chaos import report
from tests.chaos.battle import Outcome
from tests.chaos.checks import CHECKS, Violation
from tests.chaos.plan import Plan
from tests.chaos.users import Ledger


def _outcome() -> Outcome:
    ledger = Ledger(operations=Counter({"post": 2}))
    outcome = Outcome(Plan(seed=7), ledger, Counter({"node killed": 3}), seconds=4.0)
    outcome.figures = {"runs that began": 5}
    outcome.failures = {"missed: because": 6}
    outcome.left_out = {"disk full": "2 times: no root"}
    outcome.violations = [Violation("once", "a", "some id", "twice")]
    return outcome


def test_the_text_has_the_counts_and_what_is_broken() -> None:
    """Faults, figures, reasons, and each check with its violations are told."""
    text = "\n".join(report.lines_of(_outcome()))
    assert "3  node killed" in text
    assert "left out: disk full, 2 times: no root" in text
    assert "5  runs that began" in text
    assert "6  missed: because" in text
    assert "BROKEN  once" in text
    assert "once on a: some id twice" in text
    own = {"at_rest", "faults", "twice"}
    assert text.count("\n  holds ") == len(CHECKS) + len(own) - 1  # all but the broken one


def test_the_document_has_the_same(tmp_path: Path) -> None:
    """The JSON file has the counts, each check, and the commit."""
    file = tmp_path / "report.json"
    report.write(_outcome(), file)
    document = json.loads(file.read_text())
    assert document["operations"]["answered"] == 2
    assert document["faults"] == {"node killed": 3}
    assert document["faults_left_out"] == {"disk full": "2 times: no root"}
    assert document["figures"] == {"runs that began": 5}
    assert document["checks"]["once"] == 1
    assert document["checks"]["at_rest"] == 0
    assert document["plan"]["seed"] == 7
    assert document["commit"] != ""
