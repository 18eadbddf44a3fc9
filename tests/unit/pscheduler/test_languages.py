"""All languages of pScheduler's tests: they answer anything with a value or a refusal."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.secrets import secret_fields
from node.model.times import parse_instant
from node.plugins import registry as plugins
from node.plugins.sample_results import results_of
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.options import Kind, Option
from node.pscheduler.tests.registry import LANGUAGES
from tests.architecture.sources import REPOSITORY

TEXTS = st.sampled_from(
    ["a.example", "192.0.2.7", "[2001:db8::1]:8443", "PT10S", "10", "10M", "0.5", "icmp", "x", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


NOW = parse_instant("2026-11-22T08:10:05Z")
SPEC = {
    "schema": 1, "dest": "b.example", "source": "a.example", "duration": "PT60S", "record": "mx",
    "query": "example", "url": "http://b.example/",
}  # fmt: skip
"""A spec for each language, with members that only some of them know."""
RESULT_MEMBERS = [
    "roundtrips", "paths", "intervals", "summary", "record", "histogram-latency", "local", "remote",
    "time", "loss", "min", "mtu", "packets-sent",
]  # fmt: skip


def outcome_of(call: Callable[[], Any]) -> tuple[Any, Refusal | None]:
    """Return what a call returns, or how it refuses."""
    try:
        return call(), None
    except Refusal as refusal:
        return None, refusal


@st.composite
def option_words(draw: st.DrawFn, language: Language) -> list[str]:
    """Draw words that consist of the language's options and plausible values."""
    chosen: list[Option] = draw(st.lists(st.sampled_from(language.options), max_size=6))
    words: list[str] = []
    for option in chosen:
        words.append(draw(st.sampled_from(option.words)))
        if option.kind is Kind.INTEGER:
            words.append(str(draw(st.integers(0, 70_000))))
        elif option.kind not in (Kind.ON, Kind.OFF):
            words.append(draw(TEXTS))
    return words


@st.composite
def members(draw: st.DrawFn, language: Language) -> Any:
    """Draw a spec of the language's members with any values."""
    names = st.sampled_from(["schema", *language.members]) | st.text(max_size=3)
    return draw(st.dictionaries(names, JSON, max_size=5))


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@given(data=st.data())
@pytest.mark.mostly_nightly
def test_words_of_a_spec_are_stable(language: Language, data: st.DataObject) -> None:
    """A spec from words gives words that give the same spec."""
    with contextlib.suppress(Refusal):
        spec = language.parse(data.draw(option_words(language)))
        assert language.parse(language.words(spec)) == spec


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@given(words=st.lists(st.text() | TEXTS | st.sampled_from(["--dest", "-d", "--no-", "--", "-"])))
@pytest.mark.mostly_nightly
def test_any_words_give_a_spec_or_a_refusal(language: Language, words: list[str]) -> None:
    """Words that are no options are refused with a text and status 400."""
    spec, refusal = outcome_of(lambda: language.parse(words))
    if refusal is None:
        assert json.loads(json.dumps(spec)) == spec
    else:
        assert (refusal.status, bool(refusal.text)) == (400, True)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@given(data=st.data())
@pytest.mark.mostly_nightly
def test_any_spec_is_valid_or_refused(language: Language, data: st.DataObject) -> None:
    """Any JSON is a valid spec, of which everything can be told, or is refused in one line."""
    spec: Any = data.draw(members(language) | JSON)
    _, refusal = outcome_of(lambda: language.check(spec))
    if refusal is not None:
        assert refusal.status == 400
        assert len(refusal.text.splitlines()) == 1
        return
    assert language.duration(spec) > 0
    names = language.participants(spec).names
    assert names
    with contextlib.suppress(Refusal):
        test = language.to_parley(spec, [name or "a.example" for name in names])
        assert test.type in plugins.tests()
    assert all(isinstance(word, str) for word in [*language.words(spec), *language.notes(spec)])


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
@given(data=st.data())
@pytest.mark.mostly_nightly
def test_any_result_has_a_text(language: Language, data: st.DataObject) -> None:
    """Any JSON as a result, as other nodes may tell it, has a text and an HTML form or none."""
    names = st.sampled_from(RESULT_MEMBERS) | st.text(max_size=3)
    told = data.draw(st.dictionaries(names, JSON, max_size=5))
    result = {**told, "succeeded": True}
    assert isinstance(language.text(SPEC, result), str)
    assert isinstance(language.html(SPEC, result), str | None)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_every_result_of_ours_is_told(language: Language) -> None:
    """Any result that our test allows, with all fields or few, is told in all forms."""
    spec = {**SPEC, "host": "a.example"}
    ours = language.to_parley(
        spec, ["a.example", "b.example"][: len(language.participants(spec).names)]
    )
    test = plugins.tests()[ours.type]
    models = [test.result_model, getattr(test, "interval_model", test.result_model)]
    results = [result for model in models for result in results_of(model)]
    assert results
    for result in results:
        told = language.result(spec, Outcome("iperf3", result, at=NOW))
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        assert told["succeeded"] in (True, False)
        assert language.text(spec, told)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_words_and_checks_agree(language: Language) -> None:
    """Each option sets a known member."""
    assert {option.member for option in language.options} - language.members.keys() == set()


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_help_is_told_as_a_refusal(language: Language) -> None:
    """``--help`` is answered with the help of every option."""
    with pytest.raises(Refusal) as told:
        language.parse(["--help"])
    assert told.value.status == 400
    assert told.value.text.startswith("Options:\n")
    for option in language.options:
        assert option.words[-1] in told.value.text


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_left_over_words_are_named(language: Language) -> None:
    """Words that belong to no option are told back."""
    with pytest.raises(Refusal, match=r"^Unusable arguments: a\.example b$"):
        language.parse(["a.example", "b"])


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_schemas_beyond_the_highest_are_refused(language: Language) -> None:
    """A schema number that is not known yet is refused with the highest that is."""
    highest = language.highest
    sentence = rf"^Schema version {highest + 1} is not supported \(highest is {highest}\)$"
    with pytest.raises(Refusal, match=sentence):
        language.check({"schema": highest + 1})


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_enumerations_tell_what_the_command_line_prints(language: Language) -> None:
    """An enumeration has a version, a maintainer and a class."""
    told = language.enumeration()
    assert told["name"] == language.name
    assert told["scheduling-class"] in ("background-multi", "background", "normal", "exclusive")
    assert set(told["maintainer"]) == {"name", "email", "href"}
    assert told["version"]


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_the_guide_tells_what_is_refused(language: Language) -> None:
    """The guide has a row per test with the members that are refused or make no difference."""
    columns = [
        ", ".join(f"`{member}`" for member in members) or "none"
        for members in (language.without_counterpart, language.without_difference)
    ]
    guide = (REPOSITORY / "docs/how-to/pscheduler.md").read_text(encoding="utf-8")
    assert f"| `{language.name}` | {columns[0]} | {columns[1]} |" in guide.splitlines()


def test_secret_members_are_those_of_our_test_of_that_name() -> None:
    """A field that is secret in our specs is so in theirs, under the same name."""
    marked = {
        name: secret_fields(test.spec_model)
        for name, test in plugins.tests().items()
        if name in LANGUAGES
    }
    assert {name: each.secrets for name, each in LANGUAGES.items() if each.secrets} == {
        name: fields for name, fields in marked.items() if fields
    }
