"""Parse JSON that is given as text, in an option or a file; files may have YAML as well."""

from __future__ import annotations

import json
from typing import Any

import click

_TIME = "tag:yaml.org,2002:timestamp"


def json_value(text: str, option: str) -> Any:
    """Parse any JSON value; ``option`` names the option in an error."""
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"not JSON: {error}"
        raise click.BadParameter(msg, param_hint=option) from error


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
        return json.loads(text)
    except ValueError as error:
        if text.lstrip()[:1] in {"", "{", "["}:
            msg = f"not JSON: {error}"
            raise ValueError(msg) from None
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
        msg = f"neither JSON nor YAML: {' '.join(str(error).split())}"
        raise ValueError(msg) from None


def _object(document: Any, option: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        msg = "not a JSON object"
        raise click.BadParameter(msg, param_hint=option)
    return document
