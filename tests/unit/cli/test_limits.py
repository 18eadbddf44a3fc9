"""``parley limits check``: the faults of a file, each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from node.cli.main import parley

FILE = """\
version = 1

[who.all]
others = true

[[rule]]
name = "small"
who = ["all"]
tests = ["throughput"]
spec = { duration = { "<=" = "PT60S" } }
priority_max = 5
most.tasks = 2

[[cap]]
name = "targets"
runs = "60/PT1H"
"""


def _check(folder: Path, text: str, *options: str) -> Result:
    file = folder / "limits.toml"
    file.write_text(text)
    return CliRunner().invoke(parley, ["limits", "check", str(file), *options])


def test_the_rules_of_a_sound_file_are_listed(tmp_path: Path) -> None:
    """Each rule comes in its order, with what it fits and how much it allows."""
    checked = _check(tmp_path, FILE, "-o", "json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout) == [
        {
            "rule": "small",
            "who": "all",
            "what": 'throughput; duration <= "PT60S"',
            "most": "priority 5; 2 open tasks",
        },
        {
            "rule": "targets",
            "who": "all nodes together",
            "what": "targets",
            "most": "60 runs per hour to each /32 or /64",
        },
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"<="', '"=<"', ":10: /rule/0/spec/duration/=<: is not a comparison"),
        ('who = ["all"]', 'who = ["al"]', ":8: /rule/0/who/0: there is no [who.al]"),
        ("duration =", "length =", ":10: /rule/0/spec/length: no spec of its tests"),
        ("most.tasks = 2", "most.tasks = 0", "/rule/0/most/tasks: is 0; give 1 or more"),
        ('runs = "60/PT1H"', 'runs = "60"', ":16: /cap/0/runs: write an amount per period"),
        ('runs = "60/PT1H"', "", ":14: /cap/0: caps nothing"),
        ('name = "targets"', 'name = "small"', ":15: /cap/0/name: is also the name of /rule/0"),
        ("version = 1", "version = ", ": is not TOML: Invalid value (at line 1, column 11)"),
        ("others = true", "other = true", ":4: /who/all/other: no such field"),
    ],
)
def test_a_fault_has_its_line_and_field(tmp_path: Path, old: str, new: str, says: str) -> None:
    """Each fault comes with its line and its field, and with what would be right."""
    checked = _check(tmp_path, FILE.replace(old, new))
    assert checked.exit_code == 2
    assert says in checked.stderr


def test_a_machine_gets_a_problem_document(tmp_path: Path) -> None:
    """With -o json the faults are a problem document, with pointers."""
    checked = _check(tmp_path, "version = 2", "-o", "json")
    problem = json.loads(checked.stderr)
    assert problem["errors"][0]["pointer"] == "/version"
