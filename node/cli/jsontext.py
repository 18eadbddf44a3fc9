"""Parse JSON that is given as text, in an option or a file."""

from __future__ import annotations

import json
from typing import Any

import click


def json_value(text: str, option: str) -> Any:
    """Parse any JSON value; ``option`` names the option in an error."""
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"not JSON: {error}"
        raise click.BadParameter(msg, param_hint=option) from error


def json_object(text: str | None, option: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for ``None``."""
    document = json_value(text, option) if text is not None else {}
    if not isinstance(document, dict):
        msg = "not a JSON object"
        raise click.BadParameter(msg, param_hint=option)
    return document
