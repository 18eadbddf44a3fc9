"""Helpers for commands whose options are the fields of a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])
Option = Callable[[AnyCommand], AnyCommand]


def apply_options(command: AnyCommand, *options: Option[AnyCommand]) -> AnyCommand:
    """Decorate a command with options; its help lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def clear_option(
    fields: Sequence[str], text: str = "Reset a field to its default; repeat for more."
) -> Callable[[AnyCommand], AnyCommand]:
    """Return the option ``--clear``, which takes the names of these fields."""
    return click.option("--clear", multiple=True, type=click.Choice(fields), help=text)


def require_change(patch: Mapping[str, Any], noun: str, example: str) -> None:
    """Refuse an edit without any change.

    :raises click.UsageError: the patch is empty.
    """
    if not patch:
        msg = f"nothing to change; give an option such as {example}, see: parley {noun} edit --help"
        raise click.UsageError(msg)
