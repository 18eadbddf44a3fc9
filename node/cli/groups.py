"""Groups of commands, such as ``parley task``."""

from __future__ import annotations

import click

_WHOLE = 1000
"""More characters than any summary has."""


class CommandGroup(click.Group):
    """A group whose help page has the whole summary of each command, cut nowhere."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of the help page."""
        summaries = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(summaries)
