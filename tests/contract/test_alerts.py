"""The alerts of deploy/, by Prometheus' own tool: each is raised by what it is for, and in time."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY

pytestmark = pytest.mark.needs("prometheus")

ALERTS = REPOSITORY / "deploy/alerts.yaml"
_PROMTOOL_S = 60


@dataclass(frozen=True)
class Case:
    """Series that raise an alert, by their names, with a value for each minute."""

    series: dict[str, str]
    raised: int
    """The minute in which it is raised."""
    quiet: dict[str, str] = field(default_factory=dict)
    """Values just not bad enough."""


_ENDED = 'parley_runs_ended_total{{instance="a",role="lead",outcome="{}"}}'
_ERRORS = 'parley_start_error_seconds_bucket{{instance="a",le="{}"}}'
CASES: dict[str, Case] = {
    "ParleyNodeDown": Case({'up{job="parley"}': "0x90"}, 5, {'up{job="other"}': "0x90"}),
    "ParleyDatabaseDown": Case({"parley_database_up": "0x90"}, 2, {"parley_database_up": "1x90"}),
    "ParleyDatabaseDamaged": Case(
        {"parley_database_damaged": "1x90"}, 0, {"parley_database_damaged": "0x90"}
    ),
    "ParleyDatabaseWorn": Case(
        {"parley_database_oldest_id_age": "1000000001x90"},
        60,
        {"parley_database_oldest_id_age": "1000000000x90"},
    ),
    "ParleyNotReady": Case({"parley_ready": "0x90"}, 5, {"parley_ready": "1x90"}),
    "ParleyLeadSilent": Case(
        {"parley_lead_heartbeat_age_seconds": "61x90"},
        2,
        {"parley_lead_heartbeat_age_seconds": "60x90"},
    ),
    "ParleyPlansLate": Case(
        {"parley_oldest_due_task_seconds": "121x90"},
        5,
        {"parley_oldest_due_task_seconds": "120x90"},
    ),
    "ParleyRunsWithoutResult": Case(
        {_ENDED.format("finished"): "0+9x90", _ENDED.format("missed"): "0+1x90"},
        16,  # there is no increase before the second value
        {_ENDED.format("finished"): "0+99x90", _ENDED.format("missed"): "0+1x90"},
    ),
    "ParleyStartsLate": Case(
        {
            _ERRORS.format("0.05"): "0+9x90",
            _ERRORS.format("0.1"): "0+10x90",
            _ERRORS.format("+Inf"): "0+10x90",
        },
        16,
        {_ERRORS.format("0.05"): "0+10x90", _ERRORS.format("+Inf"): "0+10x90"},
    ),
    "ParleyNodeAway": Case(
        {"parley_node_reachable": "0x90"}, 30, {"parley_node_reachable": "1x90"}
    ),
    "ParleyClockUnsynchronised": Case(
        {"parley_clock_synchronised": "0x90"},
        15,
        {"parley_clock_synchronised": "1x90", "parley_clock_error_seconds": "0.5x90"},
    ),
    "ParleyDiskNearlyFull": Case(
        {"parley_database_full": "1x90"},
        5,
        {"parley_database_full": "0x90", "parley_state_free_bytes": "1000000000x90"},
    ),
    "ParleyArchiveStuck": Case(
        {"parley_archive_oldest_seconds": "3601x90"},
        15,
        {"parley_archive_oldest_seconds": "3600x90"},
    ),
    "ParleyBackupMissing": Case(
        {"parley_backup_failed": "1x90"},
        60,
        {"parley_backup_failed": "0x90", "parley_backup_age_seconds": "172800x90"},
    ),
    "ParleyCertificateExpires": Case(
        {"parley_certificate_expires_seconds": "1209599x90"},
        60,
        {"parley_certificate_expires_seconds": "1209600x90"},
    ),
}


def _promtool(*words: str) -> str:
    """Run the tool; return what it says if it finds anything wrong."""
    done = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, timeout=_PROMTOOL_S, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _expected(alert: str, minute: int, *, raised: bool) -> dict[str, object]:
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if raised else []
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def _test(series: dict[str, str], *expected: dict[str, object]) -> dict[str, object]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": expected,
    }


def test_promtool_accepts_the_rules() -> None:
    """Each rule, its expression, and its templates are valid, and no two are the same."""
    assert _promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)) == ""


def test_each_alert_has_a_case() -> None:
    """No alert is without a case, nor a case without an alert."""
    lines = ALERTS.read_text().splitlines()
    assert list(CASES) == [
        line.partition("alert: ")[2] for line in lines if line.lstrip().startswith("- alert: ")
    ]


@pytest.mark.parametrize("alert", CASES)
@pytest.mark.mostly_nightly
def test_an_alert_is_raised_in_time(alert: str, tmp_path: Path) -> None:
    """An alert is raised once what it is for has lasted, no minute before, and by nothing else."""
    case = CASES[alert]
    early = [_expected(alert, case.raised - 1, raised=False)] if case.raised else []
    tests = [
        _test(case.series, *early, _expected(alert, case.raised, raised=True)),
        _test(case.quiet, _expected(alert, 90, raised=False)),
    ]
    file = tmp_path / "alert.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": tests}))
    assert _promtool("test", "rules", str(file)) == ""


def test_a_wrong_rule_is_found(tmp_path: Path) -> None:
    """A rule that promtool does not accept, and one that is raised too early, are found."""
    broken = tmp_path / "broken.yaml"
    broken.write_text(
        ALERTS.read_text().replace("expr: parley_ready == 0", "expr: parley_ready ==")
    )
    assert "parse error" in _promtool("check", "rules", str(broken))
    hasty = tmp_path / "hasty.yaml"
    hasty.write_text(ALERTS.read_text().replace("for: 1h", "for: 1m"))
    case = CASES["ParleyDatabaseWorn"]
    tests = [_test(case.series, _expected("ParleyDatabaseWorn", case.raised - 1, raised=False))]
    file = tmp_path / "alert.yaml"
    file.write_text(json.dumps({"rule_files": [str(hasty)], "tests": tests}))
    assert "FAILED" in _promtool("test", "rules", str(file))
