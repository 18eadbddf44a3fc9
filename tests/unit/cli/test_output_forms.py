"""YAML, programs of jq, and tables: wide ones, and those on narrow terminals."""

from __future__ import annotations

import io

import click
import pytest
import yaml

from node.cli.archives import archive_group
from node.cli.output import Column, OutputWriter, RecordLayout, column_widths, leaves
from node.client.answers import object_of

LAYOUT = RecordLayout(
    "name,size,inner.of",
    Column("name", lambda record: record["name"]),
    empty="nothing",
)
RECORD = object_of({"name": "no", "size": 3, "inner": {"of": ["é", "2026-12-01T10:00:00Z"]}})


def printed(form: str | None, program: str | None = None, *, line: bool = False) -> str:
    """Return how a list of the record, or the record of a stream, is printed."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    output = OutputWriter(form, (), stream, program=program)
    if line:
        output.print_line(RECORD, LAYOUT)
    else:
        output.print_list([RECORD], LAYOUT)
    stream.seek(0)
    return stream.read()


def test_yaml_has_what_json_has() -> None:
    """Words that YAML would read as something else stay texts, and letters stay letters."""
    assert yaml.safe_load(printed("yaml")) == [RECORD]
    assert "é" in printed("yaml")
    assert list(yaml.safe_load_all(printed("yaml", line=True) * 2)) == [RECORD, RECORD]


def test_programs_of_jq() -> None:
    """Texts are bare, other results are JSON; with jsonl the program is applied to each line."""
    assert printed(None, ".[].name") == "no\n"
    assert printed("json", ".[0].inner.of | length") == "2\n"
    assert printed("jsonl", ".size, .name") == "3\nno\n"
    assert printed(None, ".name", line=True) == "no\n"
    assert printed(None, "empty") == ""


@pytest.mark.parametrize("form", ["table", "wide", "yaml", "csv", "ids"])
def test_programs_are_for_json(form: str) -> None:
    """A form that is not JSON is refused with a program, before anything is asked."""
    with pytest.raises(click.UsageError, match=f"-o {form} makes no sense"):
        OutputWriter(form, program=".")


def test_wide_tables_have_further_fields() -> None:
    """A wide table has the fields of CSV lines as well, each once."""
    heading, line = printed("wide").splitlines()
    assert heading.split() == ["name", "size", "inner.of"]
    assert line.split() == ["no", "3", "é", "2026-12-01T10:00:00Z"]
    assert leaves(RECORD) == {"name": "no", "size": 3, "inner.of": RECORD["inner"]["of"]}


def test_archives_keep_their_own_program() -> None:
    """--jq of archive add is the program of the archive, and of archive list that of the output."""
    found = {
        name: [each for each in archive_group.commands[name].params if "--jq" in each.opts]
        for name in ("add", "edit", "list")
    }
    assert {name: [each.expose_value for each in options] for name, options in found.items()} == {
        "add": [True],
        "edit": [True],
        "list": [False],
    }


@pytest.mark.parametrize(
    ("width", "widths"),
    [
        (80, {0: 4, 1: 17, 2: 9, 3: 39}),
        (50, {0: 4, 1: 17, 2: 9, 3: 14}),
        (40, {0: 4, 1: 17, 3: 15}),
        (20, {0: None, 1: None, 3: None}),
    ],
)
def test_tables_fit_a_terminal(width: int, widths: dict[int, int | None]) -> None:
    """The last cells are wrapped first, words stay whole, and optional columns give way."""
    columns = (
        Column("task", str, whole=True),
        Column("what", str),
        Column("requester", str, optional=True),
        Column("reason", str),
    )
    rows = [("7c1e", "throughput  a → b", "ada", "b has no time left " * 2 + "x")]
    assert column_widths(columns, rows, width) == widths
