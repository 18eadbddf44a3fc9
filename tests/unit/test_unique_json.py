"""JSON with a member twice is refused, because readers differ in which one they take."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.api.requests import VALUES_MAX, _check
from node.mesh.document import parse
from node.model.errors import InvalidDocument
from node.model.unique_json import RepeatedMember, parse_json

TEXTS = st.text(st.sampled_from('a:"\\{ü'), max_size=4)
VALUES = st.recursive(
    TEXTS | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"count":1,"count":9}', "count"),
        ('[{"a":{"b":1,"c":"x:y","b":"\\":"}}]', "b"),
        ('{"a":1,"\\u0061":2}', "a"),
    ],
)
def test_a_member_twice_is_named(text: str, name: str) -> None:
    """The first member that is there twice is named, also by the API."""
    with pytest.raises(RepeatedMember, match=f"has the member '{name}' twice"):
        parse_json(text)
    with pytest.raises(InvalidDocument) as refused:
        _check(orjson.loads(text), text.encode(), VALUES_MAX)
    assert f"has the member '{name}' twice" in refused.value.faults[0].detail


@given(VALUES)
def test_other_documents_are_read(value: Any) -> None:
    """Documents with each member once are read, with colons and quotes anywhere."""
    text = json.dumps(value)
    assert parse_json(text) == value
    _check(orjson.loads(text), text.encode(), VALUES_MAX)


def test_mesh_files_in_json_are_read_likewise() -> None:
    """A mesh file in JSON is refused as one in TOML is."""
    with pytest.raises(InvalidDocument):
        parse('{"name":"lab","name":"other"}', toml=False)
