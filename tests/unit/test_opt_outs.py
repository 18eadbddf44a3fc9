"""Targets that object to being measured: which records say it, and for what."""

from __future__ import annotations

import ipaddress

import pytest

from node.model.opt_outs import (
    ABSENT_S,
    NAMES_MAX,
    PRESENT_S,
    cache_seconds,
    is_exempt,
    objection,
    record_names,
    stated_objection,
)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("example.org", ("_parley.example.org",)),
        ("WWW.Example.org.", ("_parley.www.example.org", "_parley.example.org")),
        ("192.0.2.7", ("_parley.7.2.0.192.in-addr.arpa",)),
        ("localhost", ()),
        ("a..b", ()),
    ],
)
def test_where_an_objection_would_be(host: str, names: tuple[str, ...]) -> None:
    """An objection is at the host's own name or one above it, or at the reverse name."""
    assert record_names(host) == names


def test_few_names_are_asked() -> None:
    """At most five names are asked for one host, however many labels it has."""
    assert len(record_names(".".join("a" * 40))) == NAMES_MAX
    assert record_names("2001:db8::1") == (f"_parley.{'1' + '.0' * 23}.8.b.d.0.1.0.0.2.ip6.arpa",)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], None),
        (["v=spf1 -all"], None),
        (["measure=no"], True),
        ([" Measure=NO "], True),
        (["measure=yes"], False),
        (["measure=yes", "measure=no"], True),
        (["measure=never"], None),
    ],
)
def test_what_records_say(texts: list[str], said: bool | None) -> None:  # noqa: FBT001
    """A record objects by one text alone, and of two that contradict each other the no counts."""
    assert stated_objection(texts) is said


def test_the_nearest_record_counts() -> None:
    """The nearest name with a word on it decides, so that a part of a network can be measured."""
    names = record_names("www.example.org")
    assert objection(names, {names[0]: None, names[1]: True}) == "_parley.example.org"
    assert objection(names, {names[0]: False, names[1]: True}) is None
    assert objection(names, {}) is None


def test_the_owners_network_is_exempt() -> None:
    """An address that is not public, or that the owner allows, is measured without asking."""
    allowed = [ipaddress.ip_network("198.41.0.0/24")]
    assert is_exempt("198.41.0.4", allowed)
    assert not is_exempt("198.41.1.4", allowed)
    assert is_exempt("10.1.2.3", ())
    assert not is_exempt("example.org", allowed)


def test_answers_are_remembered_within_bounds() -> None:
    """An answer is remembered as long as it says, a minute at least, and for a day or an hour."""
    assert cache_seconds(300, present=True) == 300
    assert cache_seconds(0, present=True) == PRESENT_S[0]
    assert cache_seconds(10**9, present=True) == PRESENT_S[1]
    assert cache_seconds(10**9, present=False) == ABSENT_S[1]
