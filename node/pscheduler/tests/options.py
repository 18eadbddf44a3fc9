"""An option parser made from a table, which raises its complaints. Pure.

The command line sends its words here unread, so that what is said here is what its user reads.
"""

from __future__ import annotations

import math
import optparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from node.model.times import SECOND
from node.pscheduler import times
from node.pscheduler.refusals import invalid

_WIDTH = 78
_DIGITS_MAX = 9


class Kind(StrEnum):
    """The value of an option."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    ON = "on"
    """Nothing; the member is true."""
    OFF = "off"
    """Nothing; the member is false."""
    LIST = "list"
    """A text; the option may be repeated."""


@dataclass(frozen=True)
class Option:
    """An option: its words, the member of the spec it sets, and its help.

    ``read`` converts the value; its ValueError is the complaint.
    """

    words: tuple[str, ...]
    member: str
    kind: Kind
    help: str
    read: Callable[[Any], Any] | None = None


def text(
    words: str, help_: str, member: str = "", read: Callable[[str], Any] | None = None
) -> Option:
    """Return an option with a text. ``words`` are separated by spaces, the long ones last."""
    return _option(words, Kind.TEXT, help_, member, read)


def integer(words: str, help_: str, member: str = "") -> Option:
    """Return an option with a whole number."""
    return _option(words, Kind.INTEGER, help_, member)


def number(words: str, help_: str, member: str = "") -> Option:
    """Return an option with a number."""
    return _option(words, Kind.NUMBER, help_, member)


def on(words: str, help_: str, member: str = "") -> Option:
    """Return an option that makes its member true."""
    return _option(words, Kind.ON, help_, member)


def off(words: str, help_: str, member: str) -> Option:
    """Return an option that makes its member false."""
    return _option(words, Kind.OFF, help_, member)


def list_option(words: str, help_: str, member: str) -> Option:
    """Return an option that may be repeated; its member is the list of its texts."""
    return _option(words, Kind.LIST, help_, member)


def _option(
    words: str, kind: Kind, help_: str, member: str, read: Callable[[str], Any] | None = None
) -> Option:
    named = tuple(words.split())
    return Option(named, member or named[-1].removeprefix("--"), kind, help_, read)


class _Parser(optparse.OptionParser):
    """A parser that raises instead of printing and ending the process."""

    def error(self, msg: str) -> NoReturn:
        raise invalid(msg)

    def exit(self, status: int = 0, msg: str | None = None) -> NoReturn:
        raise invalid(msg or "")

    def print_help(self, file: Any = None) -> NoReturn:
        """Raise the help of the options; the command line writes how to call it before."""
        raise invalid(self.format_option_help(optparse.IndentedHelpFormatter(width=_WIDTH)))


_ACTIONS: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"action": "store", "type": "string"},
    Kind.INTEGER: {"action": "store", "type": "int"},
    Kind.NUMBER: {"action": "store", "type": "float"},
    Kind.ON: {"action": "store_true", "default": None},
    Kind.OFF: {"action": "store_false", "default": None},
    Kind.LIST: {"action": "append", "type": "string"},
}


def _parser(test: str, options: Sequence[Option]) -> _Parser:
    parser = _Parser(prog=test)
    for option in options:
        parser.add_option(
            *option.words, dest=option.member, help=option.help, **_ACTIONS[option.kind]
        )
    return parser


def parse(test: str, options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """Return the members that the words set.

    :raises Refusal: 400, with the complaint, or with the help if the words ask for it.
    """
    values, rest = _parser(test, options).parse_args([str(word) for word in words])
    if rest:
        raise invalid(f"Unusable arguments: {' '.join(rest)}")
    readers = {option.member: option for option in options if option.read is not None}
    spec: dict[str, Any] = {}
    for member, value in vars(values).items():
        if value is not None:
            spec[member] = _read(readers.get(member), member, value)
    return spec


def _read(option: Option | None, member: str, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise invalid(f"option --{member}: {value} is not a number")
    if option is None or option.read is None:
        return value
    try:
        return option.read(value)
    except ValueError as fault:
        raise invalid(f"option {option.words[-1]}: {fault}") from None


def words_of(options: Sequence[Option], spec: dict[str, Any]) -> list[str]:
    """Return the words of the members that have options, in the order of the table.

    A member has the last word of its first option; a member with a form of its own is written by
    its test.
    """
    words: list[str] = []
    seen: set[str] = set()
    off_words = {option.member: option.words[-1] for option in options if option.kind is Kind.OFF}
    for option in options:
        if option.member in spec and option.member not in seen:
            seen.add(option.member)
            words += _words(option, spec[option.member], off_words.get(option.member))
    return words


def _words(option: Option, value: Any, off_word: str | None) -> list[str]:
    word = option.words[-1]
    if option.kind in (Kind.ON, Kind.OFF):
        chosen = word if value else off_word
        return [] if chosen is None else [chosen]
    if option.kind is Kind.LIST:
        return [part for each in value for part in (word, str(each))]
    return [word, str(value)]


def seconds_duration(told: str) -> str:
    """Return ``PT10S`` for ``10``; anything else stays as it is."""
    if not told.isdecimal():
        return told
    return times.format_duration(_whole(told) * SECOND)


def milliseconds_duration(told: str) -> str:
    """Return ``PT0.1S`` for ``100``, always with decimals; anything else stays as it is."""
    return f"PT{_whole(told) / 1000}S" if told.isdecimal() else told


def _whole(told: str) -> int:
    if len(told) > _DIGITS_MAX:
        raise ValueError(f"'{told[:20]}' is too long")
    return int(told)
