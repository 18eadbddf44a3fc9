"""Writes a man page for each command, with the text of its ``--help``.

``python -m deploy.manual DIRECTORY``: the build of the Debian package runs it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click_man.core import generate_man_page

from node.cli.main import parley
from node.runtime.version import program_version


def write_pages(directory: Path) -> int:
    """Write ``parley.1``, ``parley-task.1``, and so on; return how many."""
    directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for context in _contexts(click.Context(parley, info_name="parley")):
        name = context.command_path.replace(" ", "-")
        page = generate_man_page(context, version=program_version())
        (directory / f"{name}.1").write_text(_text_as_text(page) + _help_ending(context.command))
        written += 1
    return written


def _text_as_text(page: str) -> str:
    """Keep lines of a help that begin with a quote or a dot from being requests of roff."""
    return re.sub(r"^(?='|\.(?![A-Z]{2}\b|[BI]R?\b|nf\b|fi\b))", r"\\&", page, flags=re.MULTILINE)


def _help_ending(command: click.Command) -> str:
    """Return what the help of a command ends with: its examples, line by line."""
    lines = inspect.cleandoc((command.epilog or "").replace("\b", "")).splitlines()
    if not lines:
        return ""
    title = "EXAMPLES" if lines[0] == "Examples:" else "NOTES"
    text = "\n".join(lines[title == "EXAMPLES" :]).replace("\\", "\\e").replace("-", "\\-")
    return f"\n.SH {title}\n.nf\n{text}\n.fi\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command, and those of all commands in it."""
    command = context.command
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _contexts(click.Context(inner, info_name=name, parent=context))


if __name__ == "__main__":
    print(f"{write_pages(Path(sys.argv[1]))} man pages")
