"""Targets that have said by DNS that they do not want to be measured. Pure.

Whoever has a name or an address publishes a text record beside it::

    _parley.example.org.                TXT "measure=no"
    _parley.7.2.0.192.in-addr.arpa.     TXT "measure=no"

A record for a name is one for all names below it, too; the nearest one counts, and there
``measure=yes`` takes it back. No record, no answer, and any other text are no objection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from node.model.naming import normalised_word
from node.model.targets import Network, literal

LABEL = "_parley"
NAMES_MAX = 5
"""Maximum number of names that are asked for one host: its own and those above it."""

PRESENT_S = (60.0, 86_400.0)
"""Bounds of the time for which a record is remembered, in seconds."""
ABSENT_S = (60.0, 3_600.0)
"""Bounds of the time for which it is remembered that there is none."""
UNANSWERED_S = 60.0
"""The time after which a question is put again that nobody answered."""

_WORDS: Mapping[str, bool] = {"measure=no": True, "measure=yes": False}
_NAME_LENGTH_MAX = 253
_LABELS_MIN = 2


def record_names(host: str) -> tuple[str, ...]:
    """Return the names at which an objection to measuring a host would be, the nearest first."""
    address = literal(host)
    if address is not None:
        return (f"{LABEL}.{ipaddress.ip_address(address).reverse_pointer}",)
    labels = normalised_word(host).removesuffix(".").split(".")
    if len(labels) < _LABELS_MIN or "" in labels:
        return ()
    names = (".".join(labels[at:]) for at in range(len(labels) - _LABELS_MIN + 1))
    records = [f"{LABEL}.{name}" for name in names]
    return tuple(name for name in records[:NAMES_MAX] if len(name) <= _NAME_LENGTH_MAX)


def stated_objection(texts: Iterable[str]) -> bool | None:
    """Return what the text records at one name say: True is no, None is nothing."""
    said = {_WORDS[text.strip().lower()] for text in texts if text.strip().lower() in _WORDS}
    return None if not said else True in said


def objection(names: Sequence[str], said: Mapping[str, bool | None]) -> str | None:
    """Return the name whose record objects, by what each of them says; None if none does."""
    for name in names:
        if (no := said.get(name)) is not None:
            return name if no else None
    return None


def is_exempt(host: str, allowed: Iterable[Network]) -> bool:
    """Return whether nobody is asked about a host: an address that is not public, or is allowed."""
    address = literal(host)
    if address is None:
        return False
    at = ipaddress.ip_address(address)
    return not at.is_global or any(at in network for network in allowed)


def cache_seconds(ttl: float, *, present: bool) -> float:
    """Return how long an answer is remembered, in seconds."""
    least, most = PRESENT_S if present else ABSENT_S
    return min(max(ttl, least), most)
