"""Predicates over node attributes: their meaning, their wording, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import predicates
from node.model.errors import InvalidDocument
from node.model.predicates import Value, conditions, explain_no_match, parse

NAMES = ("country", "site", "cpu_mbps", "tool:iperf3")
VALUES = st.one_of(
    st.sampled_from(["DE", "FR", "1", "true"]),
    st.sampled_from([0, 1, 2, 1.0, 0.5]),
    st.booleans(),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES)
COMPARISONS = st.one_of(
    VALUES,
    st.lists(VALUES, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["=", "!="]), VALUES, min_size=1),
    st.dictionaries(
        st.sampled_from(["<", "<=", ">", ">="]), st.sampled_from([0, 1, 1.5]), min_size=1
    ),
    st.fixed_dictionaries({"in": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
)
DOCUMENTS = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), COMPARISONS, max_size=3),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)}),
        st.builds(lambda one, other: {**one, "not": other}, inner, inner),
    ),
    max_leaves=6,
)
NODES: dict[str, dict[str, Value]] = {
    "a": {"country": "DE", "site": "x", "cpu_mbps": 1000, "name": "a"},
    "b": {"country": "FR", "site": "y", "cpu_mbps": 100, "name": "b"},
    "c": {"country": "DE", "site": "y", "name": "c"},
}


def slow(document: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    """Evaluate a predicate as the documentation defines it, without regard to speed."""
    for name, wanted in document.items():
        if name == "not":
            met = not slow(wanted, attributes)
        elif name == "any":
            met = any(slow(each, attributes) for each in wanted)
        elif name == "all":
            met = all(slow(each, attributes) for each in wanted)
        else:
            met = _slow_comparison(name, wanted, attributes)
        if not met:
            return False
    return True


def _slow_comparison(name: str, wanted: Any, attributes: Mapping[str, Any]) -> bool:
    if isinstance(wanted, list):
        wanted = {"in": wanted}
    if not isinstance(wanted, dict):
        wanted = {"=": wanted}
    return all(_slow_one(name, word, operand, attributes) for word, operand in wanted.items())


def _slow_one(name: str, word: str, operand: Any, attributes: Mapping[str, Any]) -> bool:
    if word == "exists":
        return bool(operand) == (name in attributes)
    if name not in attributes:
        return False
    value = attributes[name]
    if word == "in":
        return any(_same(value, each) for each in operand)
    if word in {"=", "!="}:
        return _same(value, operand) == (word == "=")
    if type(value) not in {int, float}:
        return False
    orders = {"<": value < operand, "<=": value <= operand, ">": value > operand}
    return bool(orders.get(word, value >= operand))


def _same(one: Any, other: Any) -> bool:
    numbers = {int, float}
    if type(one) in numbers and type(other) in numbers:
        return bool(one == other)
    return type(one) is type(other) and one == other


@given(DOCUMENTS, ATTRIBUTES)
@pytest.mark.nightly
def test_the_meaning(document: dict[str, Any], attributes: dict[str, Any]) -> None:
    """A node meets a predicate exactly if the slow evaluation says so."""
    assert parse(document).met_by(attributes) == slow(document, attributes)


@given(DOCUMENTS, ATTRIBUTES)
def test_every_no_has_a_reason(document: dict[str, Any], attributes: dict[str, Any]) -> None:
    """There are failures exactly if a predicate is not met, each with a pointer."""
    predicate = parse(document, "/match")
    failures = predicate.faults(attributes)
    assert bool(failures) != predicate.met_by(attributes)
    for failure in failures:
        at: Any = document
        for step in failure.pointer.removeprefix("/match").split("/")[1:]:
            word = step.replace("~1", "/").replace("~0", "~")
            at = at[int(word)] if isinstance(at, list) else at[word]
        assert failure.condition
        assert failure.reason


@given(DOCUMENTS, ATTRIBUTES)
def test_not_is_the_opposite(document: dict[str, Any], attributes: dict[str, Any]) -> None:
    """A double negation is the predicate itself, and negated "any" means each negated."""
    predicate, opposite = parse(document), parse({"not": document})
    assert predicate.met_by(attributes) != opposite.met_by(attributes)
    neither = parse({"not": {"any": [document, {"country": "DE"}]}})
    both = parse({"all": [{"not": document}, {"not": {"country": "DE"}}]})
    assert neither.met_by(attributes) == both.met_by(attributes)


@given(DOCUMENTS)
def test_words(document: dict[str, Any]) -> None:
    """The description names every attribute that is compared."""
    predicate = parse(document)
    said = predicate.in_words()
    assert all(condition.attribute in said for condition in conditions(predicate))


def test_kinds_are_told_apart() -> None:
    """1 is 1.0, but neither true nor the text "1"; texts have no order."""
    assert parse({"n": 1}).met_by({"n": 1.0})
    assert not parse({"n": 1}).met_by({"n": True})
    assert not parse({"n": True}).met_by({"n": 1})
    assert not parse({"n": "1"}).met_by({"n": 1})
    assert not parse({"n": {">": 1}}).met_by({"n": "2"})


def test_durations_have_an_order() -> None:
    """Durations are compared by their length, however they are written, and never with numbers."""
    at_most_a_minute = parse({"duration": {"<=": "PT60S"}})
    assert at_most_a_minute.met_by({"duration": "PT1M"})
    assert not at_most_a_minute.met_by({"duration": "PT1M0.1S"})
    assert not at_most_a_minute.met_by({"duration": 30})
    assert not at_most_a_minute.met_by({"duration": "short"})


def test_addresses_lie_in_networks() -> None:
    """An address meets a network in which it lies, or one of several; a name never does."""
    inside = parse({"address": {"in-network": ["192.0.2.0/24", "2001:db8::/32"]}})
    assert inside.met_by({"address": "192.0.2.7"})
    assert inside.met_by({"address": "2001:db8::7"})
    assert not inside.met_by({"address": "198.51.100.7"})
    assert not inside.met_by({"address": "a.example"})
    assert not inside.met_by({"address": 3221225991})
    assert inside.in_words() == 'address in-network "192.0.2.0/24", "2001:db8::/32"'


@pytest.mark.parametrize(
    ("document", "pointer", "says"),
    [
        ([], "", "must be an object"),
        ({"a": {"in-network": "192.0.2.7/24"}}, "/a/in-network", "must be a network"),
        ({"a": {"in-network": []}}, "/a/in-network", "must be a network"),
        ({"Country": "DE"}, "/Country", "not a valid attribute name"),
        ({"a": None}, "/a", "must be a text, a number, true or false"),
        ({"a": []}, "/a", "at least one"),
        ({"a": [[1]]}, "/a", "must be a list of at least one"),
        ({"a": {}}, "/a", "must compare with one of"),
        ({"a": {"~=": 1}}, "/a/~0=", "is not a comparison; use one of: = !="),
        ({"a": {">": "x"}}, "/a/>", "only these have an order"),
        ({"a": {"exists": 1}}, "/a/exists", "true or false"),
        ({"any": []}, "/any", "a list of at least one predicate"),
        ({"any": [{"a": 1}, {"b": {"<": True}}]}, "/any/1/b/<", "must be a number"),
        ({"not": 3}, "/not", "must be an object"),
    ],
)
def test_faults_have_pointers(document: Any, pointer: str, says: str) -> None:
    """An invalid predicate is refused with a pointer to the fault."""
    with pytest.raises(InvalidDocument) as refused:
        parse(document, "/match")
    [fault] = refused.value.faults
    assert fault.pointer == f"/match{pointer}"
    assert says in fault.detail


def test_size_and_depth_are_bounded() -> None:
    """A predicate's size is bounded, so that it cannot keep a node busy."""
    deep: dict[str, Any] = {"a": 1}
    for _ in range(predicates.DEPTH_MAX + 1):
        deep = {"not": deep}
    wide = {"all": [{"a": number} for number in range(predicates.SIZE_MAX + 1)]}
    for document in (deep, wide):
        with pytest.raises(InvalidDocument):
            parse(document)


def test_nobody_there_is_explained() -> None:
    """The explanation has the condition that most nodes fail, and the values that exist."""
    predicate = parse({"country": "NL", "cpu_mbps": {">=": 500}}, "/match")
    fault = explain_no_match(predicate, NODES, "/match")
    assert fault.pointer == "/match/country"
    assert fault.detail == (
        'matches none of the 3 nodes known here: country = "NL" fails a, b, c; '
        'country is "DE", "FR"; cpu_mbps is 100, 1000'
    )


def test_an_attribute_that_nobody_has_is_named() -> None:
    """For an unknown attribute the explanation lists the attributes that exist."""
    fault = explain_no_match(parse({"nation": "DE"}), NODES)
    assert "no node has nation, they have country, cpu_mbps, name, site" in fault.detail


def test_failures_say_what_is_there() -> None:
    """A reason has the node's value, or says that it has none."""
    predicate = parse({"cpu_mbps": {">=": 500}, "site": ["x", "z"]})
    assert [failure.reason for failure in predicate.faults(NODES["b"])] == [
        "its cpu_mbps is 100",
        'its site is "y"',
    ]
    assert predicate.faults(NODES["c"])[0].reason == "it has no cpu_mbps"
