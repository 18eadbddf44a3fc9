"""Attributes of nodes and predicates over them, as people type them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from node.cli.jsontext import json_object

_CONDITION = re.compile(
    r"(?P<name>[^=<>!\s]+)\s*(?P<word>>=|<=|!=|=|>|<)\s*(?P<value>.*)", re.DOTALL
)

MATCH_HELP = "Which nodes: KEY=VALUE, KEY=A,B, KEY>=1000, KEY!=VALUE, or JSON; repeat for more."


def json_of(text: str) -> Any:
    """What is JSON, as it is; anything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def value_of(text: str) -> Any:
    """``true``, ``1000`` or ``"7"`` as JSON has them, anything else as text."""
    value = json_of(text)
    return value if isinstance(value, str | int | float) else text


def assignment(text: str) -> tuple[str, Any]:
    """``country=DE`` as a name and a value."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        msg = f"{text!r} is not KEY=VALUE; to take one back: parley node unset KEY"
        raise click.UsageError(msg)
    return name, value_of(value)


def predicate(written: Sequence[str]) -> dict[str, Any]:
    """Conditions, all of which are to be met, as a predicate's document."""
    document: dict[str, Any] = {}
    for text in written:
        if text.lstrip().startswith("{"):
            _merge(document, json_object(text, "--match"), text)
        else:
            _merge(document, _condition(text), text)
    return document


def _condition(text: str) -> dict[str, Any]:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        msg = f"{text!r} is no condition; write country=DE, site=a,b or 'cpu_mbps>=1000'"
        raise click.BadParameter(msg, param_hint="--match")
    name, word, value = found["name"], found["word"], found["value"]
    if word != "=":
        return {name: {word: value_of(value)}}
    several = [value_of(each) for each in value.split(",")]
    return {name: several if len(several) > 1 else several[0]}


def _merge(document: dict[str, Any], more: dict[str, Any], text: str) -> None:
    """Comparisons of one attribute go together; two values for it cannot both be meant."""
    for name, wanted in more.items():
        there = document.setdefault(name, wanted)
        if there is wanted:
            continue
        if not isinstance(there, dict) or not isinstance(wanted, dict):
            msg = f"{text!r}: {name} is compared twice; write {name}=A,B for one of several"
            raise click.BadParameter(msg, param_hint="--match")
        there.update(wanted)
