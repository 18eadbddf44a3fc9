"""Words that are like a misspelt one."""

from __future__ import annotations

import pytest

from node.model.similar import first_names, similar_words, suggestion


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("tasc", ("run", "task"), "did you mean task?"),
        ("TASK", ("task", "run"), "did you mean task?"),
        ("europe/berlin", ("Europe/Berlin", "Europe/Bern"), "did you mean Europe/Berlin"),
        ("nope", ("id", "state"), "there are: id, state"),
        ("nope", (), "there is none"),
    ],
)
def test_suggestions(word: str, known: tuple[str, ...], said: str) -> None:
    """Similar words are suggested, in upper or lower case, or else those that there are."""
    assert suggestion(word, known).startswith(said)


def test_the_likest_word_is_first() -> None:
    """Words are in the order of their likeness, and one that is far too long is like none."""
    assert similar_words("rown", ["crow", "run", "row"])[0] == "row"
    assert similar_words("x" * 10_000, ["x" * 60]) == []


def test_many_names_are_counted() -> None:
    """A long list ends with how many there are besides."""
    assert first_names(map(str, range(25))).endswith(", 19 and 5 more")
