"""Declare options as their help shows them: names, value, and what they are for.

A table has an option on each line, its help behind at least two blanks, and more of the help on
lines that are indented further::

    --slip DURATION          How much later a run may start.
    --max-runs 1..           Stop after this many runs.
    --tool TEXT... as tools  Tool to use; repeat, the best one first.
    --udp as protocol=udp    UDP instead of TCP.

A value is a type, a range of whole numbers, some words to choose from (``[sticky|rotating]``), or
any other word, which stands for a text. With ``...`` it may be given again. An option without a
value is a switch. Behind ``as`` is the parameter, if it has another name, and what a switch sets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any, TypeVar

import click

from node.cli.times import COMING_MOMENT, DURATION, MOMENT
from node.model.similar import suggestion

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


class Words(click.Choice[str]):
    """Some words to choose from; another one is refused with the one that was probably meant."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the refusal of a word that is none of them."""
        return f"{str(value)!r} is not known; {suggestion(str(value), self.choices)}"


_TYPES: Mapping[str, Any] = {
    "TEXT": None,
    "INTEGER": int,
    "DURATION": DURATION,
    "TIME": MOMENT,
    "COMING": COMING_MOMENT,
}
_DECLARATION = re.compile(
    r"(?P<names>-[^\s,]+(?:, -[^\s,]+)*)(?: (?P<value>(?!as ).+?)(?P<more>\.\.\.)?)?"
    r"(?: as (?P<parameter>\w+)(?:=(?P<flag>\S+))?)?"
)
_RANGE = re.compile(r"(?P<least>\d+)\.\.(?P<most>\d*)")


def rows(table: str) -> Iterator[tuple[str, str]]:
    """Yield the two columns of each row of a table; lines that are indented continue the second."""
    found: list[list[str]] = []
    for line in cleandoc(table).splitlines():
        if line.startswith(" "):
            found[-1].append(line.strip())
        else:
            found.append(re.split(" {2,}", line, maxsplit=1))
    for head, *text in found:
        yield head, " ".join(text)


def options(
    table: str, types: Mapping[str, click.ParamType[Any]] | None = None, **settings: Any
) -> Callable[[AnyCommand], AnyCommand]:
    """Return what adds the options of a table to a command.

    ``types`` are further types by name, ``settings`` those of click that all of them have.
    """
    known = {**_TYPES, **(types or {})}
    declared = [_option(head, text, known, settings) for head, text in rows(table)]

    def decorate(command: AnyCommand) -> AnyCommand:
        return apply_options(command, *declared)

    return decorate


def _option(
    declaration: str, text: str, types: Mapping[str, Any], shared: Mapping[str, Any]
) -> Callable[[Any], Any]:
    match = _DECLARATION.fullmatch(declaration)
    assert match is not None, f"{declaration} declares no option"  # noqa: S101 - tests see each
    names, value, parameter, flag = match.group("names", "value", "parameter", "flag")
    settings: dict[str, Any] = {"help": text}
    if flag is not None:
        settings |= {"flag_value": _constant(flag), "default": None}
    elif value is None:
        settings |= {"default": None} if "/" in names else {"is_flag": True}
    elif bounds := _RANGE.fullmatch(value):
        settings["type"] = click.IntRange(int(bounds["least"]), int(bounds["most"] or 0) or None)
    elif value.startswith("["):
        settings["type"] = Words(value.strip("[]").split("|"))
    else:
        settings |= {"type": types[value]} if value in types else {"metavar": value}
    if match["more"]:
        settings["multiple"] = True
    return click.option(
        *names.split(", "), *([parameter] if parameter else []), **{**settings, **shared}
    )


def _constant(written: str) -> Any:
    """Return what a switch sets: JSON, or a text."""
    try:
        return json.loads(written)
    except ValueError:
        return written


def apply_options(command: AnyCommand, *decorators: Callable[[Any], Any]) -> AnyCommand:
    """Decorate a command with options; its help lists them in this order."""
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def clear_option(
    fields: Sequence[str], text: str = "Reset a field to its default; repeat for more."
) -> Callable[[AnyCommand], AnyCommand]:
    """Return the option ``--clear``, which takes the names of these fields."""
    return click.option("--clear", multiple=True, type=Words(fields), help=text)


def given_values(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the values of options that were given, by name; of all, or of those that are named."""
    return {name: given[name] for name in names or given if given[name] is not None}


def require_change(patch: Mapping[str, Any], noun: str, example: str) -> None:
    """Refuse an edit without any change.

    :raises click.UsageError: the patch is empty.
    """
    if not patch:
        msg = f"nothing to change; give an option such as {example}, see: parley {noun} edit --help"
        raise click.UsageError(msg)
