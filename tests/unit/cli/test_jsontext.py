"""Files of documents are JSON or YAML."""

from __future__ import annotations

import json

import pytest
import yaml

from node.cli.values import object_in, value_in

DOCUMENT = {
    "test": {"type": "rtt", "spec": {"dest": "192.0.2.7", "count": 5}},
    "schedule": {"start": "2026-12-01T00:00:00Z", "repeat": "PT5M"},
    "reference": {"ticket": "4711", "é": [True, None, 1.5]},
}


def test_a_file_is_read_as_json_or_yaml() -> None:
    """YAML means the same as the JSON that it was made of; its times stay texts, quoted or not."""
    for text in (json.dumps(DOCUMENT), yaml.safe_dump(DOCUMENT), yaml.safe_dump([DOCUMENT])):
        assert value_in(text) in (DOCUMENT, [DOCUMENT])
    assert object_in("start: 2026-12-01T00:00:00Z\n", "--file") == {"start": "2026-12-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1', "not JSON: "),
        ("", "not JSON: "),
        ("a: [1", "neither JSON nor YAML: "),
        ("a: !!python/name:os.system", "neither JSON nor YAML: could not determine a constructor"),
        ("a: !!binary aGk=", "neither JSON nor YAML: "),
    ],
)
def test_what_is_neither_is_refused(text: str, why: str) -> None:
    """The refusal says what was expected; YAML has no objects of Python."""
    with pytest.raises(ValueError, match=f"^{why}"):
        value_in(text)
