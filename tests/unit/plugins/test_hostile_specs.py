"""Hostile words in a spec are refused with their field, or end up as arguments and not as options.

This covers all registered tests and tools, including future ones.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from node.plugins import registry
from node.plugins.conformity import example_part
from node.plugins.contracts import PartContext, Test, Tool
from tests.support.hostile_input import WORDS, Path, placed, words_in

BENIGN = "benign0example"
"""A word that is valid as host, name and path; where it ends up in an argv, a hostile one would."""

HOSTS = frozenset({"source", "dest", "host", "server"})

FIELDS = [
    (name, path) for name, test in sorted(registry.tests().items()) for path in words_in(test)
]
TOOLS = [
    (test, tool.name)
    for test in sorted(registry.tests())
    for tool in sorted(registry.tools_for(test), key=lambda tool: tool.name)
]


def in_words(document: Any) -> Iterator[str]:
    """Yield all words in a JSON document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, list):
        for each in document:
            yield from in_words(each)
    elif isinstance(document, dict):
        for name, each in document.items():
            yield name
            yield from in_words(each)


def parts(test: Test, tool: Tool, spec: Any) -> Iterator[PartContext]:
    """Yield each participant's part, with the hosts' own words as addresses."""
    for at, name in enumerate(test.participants(spec)):
        part = example_part(test, tool, at, spec)
        parties = [
            dataclasses.replace(party, address=party.name) if name else party
            for party, name in zip(part.parties, test.participants(spec), strict=True)
        ]
        yield dataclasses.replace(part, parties=parties, addresses={})


def fault_inside(word: str, own: Sequence[str], hostile: str) -> str | None:
    """Return the fault in a JSON document for our own program, which may start another program."""
    document = json.loads(word)
    if hostile in in_words(document):
        return None
    plain: Any = next((json.loads(each) for each in own if each.startswith("{")), {})
    if "argv" not in document:
        return f"it is not a word of the document {word}"
    return fault(document["argv"], plain.get("argv", ()), hostile)


def before_options_end(word: str, before: str, hostile: str) -> str | None:
    """Return the fault of a word before ``--``; an option's value is harmless: ``-b [::]:5302``."""
    if before.startswith("-") and (word == hostile or not word.startswith("-")):
        return None
    if word == hostile:
        return f"it stands free before --, after {before}"
    return None if word.startswith("--") else f"it is a part of the word {word}"


def fault(argv: Sequence[str], own: Sequence[str], hostile: str) -> str | None:
    """Return the fault in how a spec's word got into an argv; ``own`` is an argv without it."""
    own_words = Counter(own)
    after_all_options = False
    before = ""
    for at, word in enumerate(argv):
        is_own = own_words[word] > 0
        own_words[word] -= 1
        if hostile in word and not is_own:
            if at == 0:
                return "it is the program"
            if word.startswith("{"):
                wrong = fault_inside(word, own, hostile)
            else:
                wrong = None if after_all_options else before_options_end(word, before, hostile)
            if wrong is not None:
                return wrong
        after_all_options = after_all_options or word == "--"
        before = word
    return None


def faults(test: Test, spec: Any, hostile: str) -> Iterator[tuple[str, str]]:
    """Yield all faults, each with its tool."""
    plain = test.spec_model.model_validate(dict(test.example))
    for tool in registry.tools_for(test.name):
        if tool.can(spec) is None:
            for part, own in zip(parts(test, tool, spec), parts(test, tool, plain), strict=False):
                argv = tool.command(part).argv
                wrong = fault(argv, tool.command(own).argv, hostile)
                if wrong is not None:
                    yield tool.name, f"participant {part.participant}: {wrong} ({argv})"


def check(name: str, path: Path, word: str) -> None:
    """A hostile word is refused with its field, or is harmless."""
    test = registry.tests()[name]
    try:
        spec = test.spec_model.model_validate(placed(test, path, word))
    except ValidationError as refused:
        first = refused.errors(include_url=False)[0]
        assert first["loc"][:1] == path[:1] or not first["loc"], first
        assert len(first["msg"]) > 10
        return
    assert not list(faults(test, spec, word))


@pytest.mark.parametrize(("name", "path"), FIELDS)
def test_words_that_are_hostile(name: str, path: Path) -> None:
    """Options, shell syntax, Unicode tricks and endless words are harmless in every field."""
    for word in WORDS:
        check(name, path, word)


@pytest.mark.parametrize(("name", "path"), [field for field in FIELDS if field[1][0] in HOSTS])
def test_no_host_begins_like_an_option(name: str, path: Path) -> None:
    """A host that begins with a dash is refused, whatever follows."""
    test = registry.tests()[name]
    for word in WORDS:
        if word.startswith(("-", "\N{FULLWIDTH HYPHEN-MINUS}")):
            with pytest.raises(ValidationError):
                test.spec_model.model_validate(placed(test, path, word))


letters = st.characters() | st.sampled_from(
    "-$(){}`;|&<>\\\"' \n\0%/.:=,@*?[]~!#\u202e\u200b\ud800"
)


@settings(max_examples=300)
@given(st.sampled_from(FIELDS), st.text(letters, max_size=20) | st.text("ab-._09:", max_size=12))
@example(("rtt", ("dest",)), "a.example\n")
def test_words_of_any_kind(field: tuple[str, Path], word: str) -> None:
    """Words that hypothesis generates are harmless, too."""
    check(*field, word or "-")


@pytest.mark.parametrize(("name", "tool"), TOOLS)
def test_a_host_stands_where_it_can_be_no_option(name: str, tool: str) -> None:
    """Even if every validation accepted a host, it follows ``--`` or is the value of an option."""
    test = registry.tests()[name]
    hosts = [path[0] for path in words_in(test) if path[0] in HOSTS]
    words = {host: f"{BENIGN}{at}" for at, host in enumerate(hosts)}
    spec = test.spec_model.model_validate(dict(test.example)).model_copy(update=words)
    for word in words.values():
        assert [wrong for named, wrong in faults(test, spec, word) if named == tool] == []
