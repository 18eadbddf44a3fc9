"""Parse values as people type them: JSON, ``NAME=VALUE``, conditions on nodes; YAML in files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from node.model.unique_json import parse_json

_CONDITION = re.compile(
    r"(?P<name>[^=<>!\s]+)\s*(?P<word>>=|<=|!=|=|>|<)\s*(?P<value>.*)", re.DOTALL
)

MATCH_HELP = (
    "Condition on nodes: KEY=VALUE, KEY=A,B, KEY>=1000, KEY!=VALUE, or JSON; repeat for more."
)


def json_of(text: str) -> Any:
    """Return a text parsed as JSON, or the text itself if it is none."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def value_of(text: str) -> Any:
    """Parse ``true``, ``1000`` or ``"7"`` as JSON; return anything else as text."""
    value = json_of(text)
    return value if isinstance(value, str | int | float) else text


def assignment(text: str) -> tuple[str, Any]:
    """Return name and value of ``NAME=VALUE``, such as ``country=DE``."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        msg = f"{text!r} is not KEY=VALUE; to remove an attribute: parley node unset KEY"
        raise click.UsageError(msg)
    return name, value_of(value)


def predicate(written: Sequence[str]) -> dict[str, Any]:
    """Return the predicate document of conditions that must all hold."""
    document: dict[str, Any] = {}
    for text in written:
        if text.lstrip().startswith("{"):
            _merge(document, json_object(text, "--match"), text)
        else:
            _merge(document, _condition(text), text)
    return document


def _condition(text: str) -> dict[str, Any]:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is not a condition; write country=DE, site=a,b or 'cpu_mbps>=1000'"
        raise click.BadParameter(msg, param_hint="--match")
    name, word, value = match["name"], match["word"], match["value"]
    if word != "=":
        return {name: {word: value_of(value)}}
    values = [value_of(each) for each in value.split(",")]
    return {name: values if len(values) > 1 else values[0]}


def _merge(document: dict[str, Any], more: dict[str, Any], text: str) -> None:
    """Add conditions to a document; refuse two values for one attribute, which cannot both hold."""
    for name, condition in more.items():
        before = document.setdefault(name, condition)
        if before is condition:
            continue
        if not isinstance(before, dict) or not isinstance(condition, dict):
            msg = f"{text!r}: {name} is compared twice; write {name}=A,B for one of several"
            raise click.BadParameter(msg, param_hint="--match")
        before.update(condition)


_TIME = "tag:yaml.org,2002:timestamp"


def json_value(text: str, option: str) -> Any:
    """Parse any JSON value; ``option`` names the option in an error."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=option) from error


def json_object(text: str | None, option: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for ``None``."""
    return _object(json_value(text, option) if text is not None else {}, option)


def object_in(text: str, option: str) -> dict[str, Any]:
    """Parse the text of a file as an object, in JSON or YAML; ``option`` names it in an error."""
    try:
        return _object(value_in(text), option)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def value_in(text: str) -> Any:
    """Parse a text as JSON or else as YAML; of YAML only the types that JSON has.

    :raises ValueError: it is neither.
    """
    try:
        return parse_json(text)
    except ValueError as error:
        if text.lstrip()[:1] in {"", "{", "["}:
            raise ValueError(f"not JSON: {error}") from None
    return _yaml(text)


def _yaml(text: str) -> Any:
    import yaml  # slow to load

    # Times stay texts, as they are in JSON.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIME]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
    try:
        return json.loads(json.dumps(yaml.load(text, Loader=loader)))  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(f"neither JSON nor YAML: {' '.join(str(error).split())}") from None


def _object(document: Any, option: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise click.BadParameter("not a JSON object", param_hint=option)
    return document
