"""Tests of ours in the words of a host that measures alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from node.plugins.registry import tests as all_tests
from node.pscheduler.dialects.registry import DIALECTS
from node.pscheduler.leading.delegation import delegated_test
from node.pscheduler.leading.results import is_readable
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES
from tests.architecture.sources import REPOSITORY
from tests.support.worlds import introduce


def delegated(test: str, **fields: Any) -> Document | None:
    """Return the spec that a host is asked for; None if it cannot be."""
    spec = all_tests()[test].spec_model.model_validate({"source": "ps", **fields})
    task = {
        "test": test,
        "spec": spec.model_dump(mode="json"),
        "addresses": {"ps": "192.0.2.1", "b": "192.0.2.2"},
    }
    found = delegated_test(introduce([]).model_copy(update=task))
    if found is None:
        return None
    name, document = found
    assert name == test
    LANGUAGES[name].check(document)
    return document


@pytest.mark.parametrize(
    ("fields", "query", "record"),
    [
        ({"name": "www.example", "type": "MX"}, "www.example.", "mx"),
        ({"name": "www.example."}, "www.example.", "a"),
        ({"name": "192.0.2.80", "type": "PTR"}, "80.2.0.192.in-addr.arpa.", "ptr"),
    ],
)
def test_questions_are_for_full_names(fields: dict[str, Any], query: str, record: str) -> None:
    """No search domain is added there, and an address is asked for by its name."""
    document = delegated("dns", server="b", **fields)
    assert document == {
        "schema": 1, "query": query, "record": record, "nameserver": "192.0.2.2", "timeout": "PT2S",
    }  # fmt: skip


def test_requests_are_told_as_they_are() -> None:
    """The URL, the text and the timeout are theirs, too."""
    asked = {"url": "https://b.example/", "text": "x", "timeout": "PT3S", "ip_version": 6}
    assert delegated("http", verify=False, **asked) == {
        "schema": 3, "url": "https://b.example/", "parse": "x", "timeout": "PT3S", "ip-version": 6,
    }  # fmt: skip


def test_the_guide_tells_what_is_measured() -> None:
    """The guide has a row for each test of ours, which says whether such a host measures it."""
    guide = (REPOSITORY / "docs/how-to/pscheduler.md").read_text(encoding="utf-8")
    table = guide.partition("### Which tests such a host measures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)
    told = {name: way for names, way in rows for name in re.findall(r"`(\w+)`", names)}
    together = {name for dialect in DIALECTS.values() for name in dialect.tests} - {"idleex"}
    ways = {
        name: ", ".join(
            word
            for word, known in (("alone", is_readable(name)), ("with others", name in together))
            if known
        )
        for name in all_tests()
    }
    assert told == {name: way or "no" for name, way in ways.items()}


@pytest.mark.parametrize(
    ("test", "fields"),
    [
        ("dns", {"name": "b", "protocol": "tcp"}),
        ("dns", {"name": "b", "server": "b", "port": 5353}),
        ("dns", {"name": "b", "rcode": "NXDOMAIN"}),
        ("dns", {"name": "b", "answers_min": 0}),
        ("dns", {"name": "b", "type": "SRV"}),
        ("http", {"url": "https://b/"}),
        ("http", {"url": "https://b/", "verify": False, "headers": {"A": "b"}}),
        ("http", {"url": "https://b/", "verify": False, "redirects": 0}),
        ("http", {"url": "https://b/", "verify": False, "bytes_max": 1}),
        ("mtu", {"dest": "b"}),
    ],
)
def test_what_they_have_no_word_for_is_not_asked(test: str, fields: dict[str, Any]) -> None:
    """A spec whose meaning would be lost is not delegated."""
    assert delegated(test, **fields) is None
