"""Files of named queries, and the notices that the database sends."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.store.database import Notice, parse_notice
from node.store.queries import Queries, parse_queries

ROOT = Path(__file__).parents[2]
FILES = [
    (package, file.stem)
    for package in ("node.store", "lead.store")
    for file in sorted(ROOT.joinpath(*package.split("."), "sql").glob("*.sql"))
]
NAMES = st.from_regex(r"[a-z][a-z_]{0,9}", fullmatch=True)
BODIES = st.sampled_from(["SELECT 1;", "-- Why.\nSELECT\n    $1;", "SELECT '-- no name --';"])


@settings(deadline=None)
@given(st.dictionaries(NAMES, BODIES, max_size=5))
def test_queries_are_found_by_name(queries: dict[str, str]) -> None:
    """The text under a name is read under that name, without surrounding blank lines."""
    text = "-- About this file.\n\n" + "".join(
        f"-- {name} --\n{body}\n\n" for name, body in queries.items()
    )
    assert parse_queries(text) == queries


def test_text_before_the_first_name_belongs_to_no_query() -> None:
    """A file may begin with comments about itself."""
    assert parse_queries("-- Words.\n\nSELECT 0;\n") == {}


def test_a_duplicate_name_is_refused() -> None:
    """Two queries of one name are refused, because the first would be lost silently."""
    with pytest.raises(ValueError, match="same name"):
        parse_queries("-- one --\nSELECT 1;\n-- one --\nSELECT 2;\n")


@pytest.mark.parametrize(("package", "name"), FILES)
def test_every_query_of_the_stores_is_one_statement(package: str, name: str) -> None:
    """A file has queries, and each ends in its only semicolon."""
    queries = Queries(package, name).items()
    assert queries
    for query, text in queries:
        bare = re.sub(r"'[^']*'|--.*", "", text).strip()
        assert bare.endswith(";"), query
        assert bare.count(";") == 1, query


def test_a_query_is_found_by_name() -> None:
    """A store gets the text that its file has under the name."""
    queries = Queries("node.store", "runs")
    assert {name: queries[name] for name, _ in queries.items()} == dict(queries.items())


def test_an_unknown_query_is_a_fault() -> None:
    """A misspelt name raises an error."""
    with pytest.raises(KeyError):
        Queries("node.store", "runs")["no_such_query"]


def test_a_notice_is_read() -> None:
    """``run <id> <task> <state>`` is read as kind, id, and words."""
    run, task = str(uuid4()), str(uuid4())
    assert parse_notice(f"run {run} {task} booked") == Notice("run", run, (task, "booked"))
    assert parse_notice(f"task {task}") == Notice("task", task, ())
