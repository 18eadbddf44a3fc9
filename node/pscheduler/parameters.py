"""Parameters of a query, in the forms of all clients. Pure.

The command line sends ``detail=True`` and ``lead-bind=10.0.0.1``; the psConfig agent writes every
value as JSON: ``detail=true``, ``lead-bind="10.0.0.1"``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from node.pscheduler import times
from node.pscheduler.refusals import Refusal

_TRUE = frozenset({"", "true", "yes", "1"})
DEPTH_MAX = 64
"""The deepest nesting of documents; no document of a client comes near."""
_DIGITS_MAX = 15


class Parameters:
    """The parameters of one request, by name."""

    def __init__(self, query: Mapping[str, str]) -> None:
        """``query`` has each parameter as it was sent, decoded from its URL form."""
        self._query = query

    def has(self, name: str) -> bool:
        """Return whether a parameter was sent."""
        return name in self._query

    def flag(self, name: str) -> bool:
        """Return whether a parameter is there and empty, or one of ``true``, ``yes``, ``1``."""
        value = self._query.get(name)
        return value is not None and value.strip().strip('"').lower() in _TRUE

    def text(self, name: str) -> str | None:
        """Return a text, plain or as JSON; None if it was not sent.

        :raises Refusal: it has what cannot be written.
        """
        value = self._query.get(name)
        if value is None:
            return None
        if len(value) > 1 and value[0] == value[-1] == '"':
            with contextlib.suppress(ValueError):
                value = str(json.loads(value))
        _check_value(value, f"Argument '{name}'")
        return value

    def json(self, name: str) -> Any:
        """Return a parameter that is JSON.

        :raises Refusal: it was not sent, or is not JSON.
        """
        value = self._query.get(name)
        if value is None:
            raise Refusal(400, f"Missing argument '{name}'")
        return parse_json(value, f"Argument '{name}'")

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number.

        :raises Refusal: it is not one.
        """
        value = self.text(name)
        if value is None:
            return default
        digits = value.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX):
            raise Refusal(400, f"Argument '{name}' is not an integer: {excerpt(value)}")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        """Return a time to wait, in seconds.

        :raises Refusal: it is not a number, or below zero.
        """
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise Refusal(400, f"Argument '{name}' is not a number of seconds: {excerpt(value)}")
        return number

    def instant(self, name: str) -> int | None:
        """Return an instant, cut to the second (µs).

        :raises Refusal: it is not one.
        """
        value = self.text(name)
        if value is None:
            return None
        try:  # a plus sign that was not encoded has become a blank
            return times.parse_instant(value.strip().replace(" ", "+"))
        except ValueError as error:
            raise Refusal(400, f"Argument '{name}': {error}") from None


def parse_json(text: str | bytes, what: str) -> Any:
    """Parse JSON, numbers as exactly as they can be kept.

    :raises Refusal: it is not JSON, nests too deep, or has what no database can keep (NUL).
    """
    try:
        parsed = json.loads(text, parse_constant=_refuse_number)
    except RecursionError:
        raise Refusal(400, f"{what} nests too deep.") from None
    except ValueError as error:
        raise Refusal(400, f"{what} is not valid JSON: {error}") from None
    _check(parsed, what)
    return parsed


def _refuse_number(word: str) -> Any:
    msg = f"{word} is not a number of JSON"
    raise ValueError(msg)


def _check(parsed: Any, what: str) -> None:
    level = [parsed]
    for _ in range(DEPTH_MAX):
        following: list[Any] = []
        for value in level:
            _check_value(value, what)
            if isinstance(value, dict):
                following += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                following += value
        if not following:
            return
        level = following
    raise Refusal(400, f"{what} nests deeper than {DEPTH_MAX}.")


def _check_value(value: Any, what: str) -> None:
    if isinstance(value, str) and ("\x00" in value or not _is_text(value)):
        raise Refusal(400, f"{what} has a character that cannot be stored.")
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise Refusal(400, f"{what} has a number that is too large.")


def _is_text(value: str) -> bool:
    """Return whether a text can be written: half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def uuid_of(word: str, what: str) -> UUID:
    """Return the id that a word of a path is.

    :raises Refusal: it is none, so nothing has it.
    """
    try:
        return UUID(word)
    except ValueError:
        raise Refusal(404, f"{what} not found") from None


def excerpt(value: str) -> str:
    """Return a value for a line of text: cut to a short length, without control characters."""
    clean = "".join(each if each.isprintable() else "?" for each in value)
    return clean if len(clean) <= 100 else f"{clean[:100]}…"  # noqa: PLR2004 - a line of a terminal
