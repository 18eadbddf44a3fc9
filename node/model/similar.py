"""Words that are like a misspelt one. This is the one place that suggests what was meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_AMONG, _LENGTH = 1_000, 63
"""Maximum number and length of words that are compared, as that takes long."""
_SHOWN = 20


def similar_words(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known words that are most like this one, at most ``most``, the likest first.

    Capitals do not count. None is like a word that is far longer than all of them.
    """
    if len(word) > 2 * _LENGTH:
        return []
    folded: dict[str, str] = {}
    for name in known:
        if len(folded) == _AMONG:
            break
        if len(name) <= _LENGTH:
            folded.setdefault(name.casefold(), name)
    return [folded[name] for name in get_close_matches(word.casefold(), folded, most, 0.6)]


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return what may be meant instead of an unknown word: similar words, or those that there are.

    >>> suggestion("tasc", ["run", "task"])
    'did you mean task?'
    >>> suggestion("colour", ["id", "task"])
    'there are: id, task'
    """
    names = list(dict.fromkeys(known))
    if near := similar_words(word, names):
        return f"did you mean {' or '.join(near)}?"
    return f"there are: {first_names(names)}" if names else "there is none"


def first_names(names: Iterable[str]) -> str:
    """Join the first names, and count the rest."""
    every = list(names)
    more = len(every) - _SHOWN
    return ", ".join(every[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
