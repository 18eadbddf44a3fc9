"""A mesh file that costs more than it looks is refused at once, whoever has written it."""

from __future__ import annotations

import json
import time

import pytest

from node.mesh.document import parse
from node.mesh.findings import line_of
from node.mesh.lint import FINDINGS_MAX, lint
from node.model.errors import InvalidDocument
from node.model.toml import parse_toml
from tests.unit.mesh.kept import MESH, NOW, a_fleet, a_mesh

LONG_KEY = ".".join("a" * 100_000)
MEASURED = "[tests.x]\ntype = 'rtt'\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{LONG_KEY} = 1", "a key has more than 40 parts"),
        (f"[{LONG_KEY}]", "a key has more than 40 parts"),
        (f"[[{LONG_KEY}]]", "a key has more than 40 parts"),
        ('x = [""" \n """, {' + LONG_KEY + ' = "1"}]', "a key has more than 40 parts"),
        ("x = '''\"''' # \"\n" + LONG_KEY + ' = "1"', "a key has more than 40 parts"),
        ('x = """' * 50_000, "Expected newline"),
        ("x = " + "[" * 90_000, "lists and tables are nested too deep"),
    ],
)
def test_toml_that_costs_more_than_its_length(text: str, fault: str) -> None:
    """A key of many parts, however it is hidden, and lists without end are refused at once."""
    began = time.process_time()
    with pytest.raises(ValueError, match=fault):
        parse_toml(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{LONG_KEY}"',
        f"x = '{LONG_KEY}'",
        f'x = """\n{LONG_KEY}\n"""""',
        f"x = '''\n{LONG_KEY}\n'''",
        f"# {LONG_KEY}\nx = 1",
        "x = [" + ", ".join(["1.5"] * 1_000) + "]",
        'x = "a \\" b"  # ' + LONG_KEY,
    ],
)
def test_dots_that_are_no_key(text: str) -> None:
    """Texts, comments and numbers may have as many dots as they like."""
    assert "x" in parse_toml(text)


@pytest.mark.nightly
def test_a_file_of_a_few_names_with_billions_of_tasks() -> None:
    """A full mesh of thousands, and one group named again and again, are refused uncounted."""
    names = ", ".join(f'"n{number}"' for number in range(20_000))
    began = time.process_time()
    for entry in (
        'shape = "full-mesh"\nmembers = "g"',
        'shape = "each"\nmembers = [' + '"g", ' * 5_000 + "]",
        'shape = "pairs"\npairs = [' + '["g", "e"], ' * 5_000 + "]",
    ):
        text = f'name = "m"\n[groups]\ng = [{names}]\ne = []\n{MEASURED}'
        expansion, findings = lint(
            a_mesh(f"{text}[[measure]]\ntest = 'x'\n{entry}"), a_fleet(), NOW
        )
        assert ([it.pointer for it in findings], len(expansion.pairs)) == (["/measure"], 0)
    assert time.process_time() - began < 10
    _, [finding] = lint(a_mesh(), a_fleet(), NOW, most=5)
    assert (finding.stops, "more than 5 tasks" in finding.detail) == (True, True)


@pytest.mark.nightly
def test_findings_are_bounded_and_what_stops_is_among_them() -> None:
    """The first of many findings are told, and none that stops the file is hidden by others."""
    idle = "".join(f"g{number} = []\n" for number in range(9_000))
    unknown = ", ".join(f'"u{number}"' for number in range(300))
    text = MESH.replace("[groups]", f"[groups]\n{idle}").replace('"c"', unknown)
    began = time.process_time()
    _, findings = lint(a_mesh(text), a_fleet(), NOW)
    assert [it.stops for it in findings].count(True) == FINDINGS_MAX
    assert len(findings) <= 2 * FINDINGS_MAX
    assert time.process_time() - began < 10


def test_a_line_of_blanks_is_looked_through_once() -> None:
    """The place of a finding is found in a line that could be a header of any length."""
    assert line_of(f"[{' ' * 400_000}\nx = 1", "/x") == 2


@pytest.mark.parametrize(
    "fields", [{f"f{number}": 1 for number in range(5_000)}, {"measure": 30 * [{}]}]
)
def test_a_file_with_more_faults_than_are_named(fields: dict[str, object]) -> None:
    """A file with many faults has them as its findings, and is not a fault of the program."""
    assert parse(json.dumps({"name": "m", **fields}), toml=False).faults


def test_json_that_nests_deeper_than_anything_is_written() -> None:
    """A document that can be read, and could not be written again, is refused."""
    for depth in (60, 900, 90_000):
        with pytest.raises(InvalidDocument):
            parse(f'{{"name": "m", "x": {"[" * depth}{"]" * depth}}}', toml=False)
