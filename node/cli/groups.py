"""Groups of commands, such as ``parley task``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from node.cli.commands import COMMANDS, with_examples
from node.cli.completion import complete_names
from node.cli.listing import limit_option, print_documents, print_one, print_whole
from node.cli.session import ReadingSession, reads_node
from node.model.similar import similar_words

if TYPE_CHECKING:
    from node.cli.output import Record, RecordLayout

_WHOLE = 1000
"""More characters than any summary has."""


class CommandGroup(click.Group):
    """A group whose help page has the whole summary of each command, cut nowhere."""

    def __init__(self, *args: Any, late: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Take commands that are imported when they are called, as ``module:command``, as well."""
        super().__init__(*args, **settings)
        self._late = dict(late or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help page."""
        return sorted({*super().list_commands(ctx), *self._late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now if its module was not; None if there is none."""
        if place := self._late.pop(cmd_name, None):
            module, _, name = place.partition(":")
            self.add_command(getattr(importlib.import_module(module), name), cmd_name)
        command = with_examples(f"{self.name} {cmd_name}", super().get_command(ctx, cmd_name))
        return complete_names(ctx, command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        :raises click.UsageError: there is none; the message names what was probably meant.
        """
        known, word = self.list_commands(ctx), args[0] if args else ""
        if word in known or word.startswith("-"):
            return super().resolve_command(ctx, args)
        near = " or ".join(map(repr, similar_words(word, known)))
        raise click.UsageError(
            f"No such command {word!r}.{f' Did you mean {near}?' if near else ''}", ctx
        )

    def add_list(
        self,
        path: str,
        layout: RecordLayout,
        text: str,
        name: str = "list",
        *,
        warnings: bool = False,
    ) -> None:
        """Add the command that prints a list of the node, newest first; ``text`` is its help.

        ``warnings``: it also prints the warnings that the objects carry.
        """

        @self.command(name, help=text)
        @limit_option
        @reads_node
        async def command(session: ReadingSession, limit: int) -> None:
            await print_documents(session, layout, path, {}, limit, warnings=warnings)

    def add_table(self, path: str, layout: RecordLayout, text: str, name: str = "list") -> None:
        """Add the command that prints a list that the node answers in one piece."""

        @self.command(name, help=text)
        @reads_node
        async def command(session: ReadingSession) -> None:
            await print_whole(session, layout, path)

    def add_show(
        self, path: str, layout: RecordLayout, view: Callable[[Record], str], text: str
    ) -> None:
        """Add the command that prints the object of a list that has a name."""

        @self.command("show", help=text)
        @click.argument("name")
        @reads_node
        async def command(session: ReadingSession, name: str) -> None:
            await print_one(session, layout, f"{path}/{quote(name, safe='')}", view)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the help page."""
        named = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        summaries = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in named
            if command is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(summaries)


def command_group(name: str, late: Mapping[str, str] | None = None, more: str = "") -> CommandGroup:
    """Return a group of the table of commands, and ``late`` commands by name, as module:command.

    ``more`` is the help behind the sentence of the table.
    """
    return CommandGroup(name, late=late, help=f"{COMMANDS[name][1]}\n\n{more}".rstrip())
