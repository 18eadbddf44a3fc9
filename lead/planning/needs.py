"""The counted resources that runs need, and the bytes that they move. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lead.policy.view import Needs
from node.model.errors import ParleyError

NeedsOf = Callable[[str, dict[str, Any]], Mapping[str, int | None]]
"""``needs(test, spec)`` returns the counted resources of a run; None is all that a node has."""
BytesOf = Callable[[str, dict[str, Any], int | None], int | None]
"""``expected_bytes(test, spec, mbps)`` returns what a run moves on each participant, or None."""

_TESTS_MAX = 10_000

_Value = TypeVar("_Value")


class NeedsByTest:
    """The needs of runs, and the bytes that they move, computed once for equal tests."""

    def __init__(self, needs_of: NeedsOf, bytes_of: BytesOf) -> None:
        """``needs_of(test, spec)`` and ``bytes_of(test, spec, mbps)`` compute it."""
        self._needs_of = needs_of
        self._bytes_of = bytes_of
        self._needs: dict[str, Needs] = {}
        self._bytes: dict[str, int | None] = {}

    def of(self, test: str, spec: dict[str, Any]) -> Needs:
        """Return what runs of a test need; nothing if the test is not installed here any more."""
        key = json.dumps([test, spec])
        return _kept(self._needs, key, lambda: self._needs_of(test, spec), {})

    def expected_bytes(
        self, test: str, spec: dict[str, Any], mbps: Callable[[], int | None]
    ) -> int | None:
        """Return what a run moves on each participant; None if that is unknown.

        ``mbps()`` returns the rate that the slowest participant states, or None; it is only called
        if the spec leaves the rate open.
        """
        key = json.dumps([test, spec])
        moved = _kept(self._bytes, key, lambda: self._bytes_of(test, spec, None), None)
        if moved is None and (rate := mbps()) is not None:
            key = json.dumps([test, spec, rate])
            moved = _kept(self._bytes, key, lambda: self._bytes_of(test, spec, rate), None)
        return moved


def _kept(
    known: dict[str, _Value], key: str, compute: Callable[[], _Value], otherwise: _Value
) -> _Value:
    """Return a value by its key, computed once; ``otherwise`` if the test is not installed."""
    if key in known:
        return known[key]
    try:
        value = compute()
    except ParleyError:
        return otherwise
    if len(known) >= _TESTS_MAX:
        known.clear()
    known[key] = value
    return value
