"""The pages of the commands, from the parser of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.generator.markdown import block, code, page, plain, table
from node.cli.main import parley

_VERBATIM = "\b\n"
"""The mark of a paragraph whose lines are kept."""


def command_pages() -> dict[str, str]:
    """Return a page for each command at the top level, by its name."""
    root = click.Context(parley, info_name="parley")
    return {
        context.info_name or "": page(*_sections(context, level=1))
        for context in _commands_of(root)
    }


def common_options() -> str:
    """Return the table of the options that every command has, which asks a node."""
    return _options(click.Context(parley, info_name="parley"), leave_out=frozenset())


def command_table() -> str:
    """Return the table of all commands at the top level, each with a link to its page."""
    root = click.Context(parley, info_name="parley")
    return table(
        ("command", ""),
        (
            (f"[`{context.command_path}`](../generated/commands/{context.info_name}.md)",
             plain(context.command.get_short_help_str(1000)))
            for context in _commands_of(root)
        ),
    )  # fmt: skip


def _commands_of(context: click.Context) -> Iterator[click.Context]:
    command = context.command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield click.Context(inner, info_name=name, parent=context)


def _sections(context: click.Context, level: int) -> Iterator[str]:
    """Yield the parts of the section of a command, and those of the commands in it."""
    command = context.command
    yield f"{'#' * level} {context.command_path}"
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield block(f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}")
    yield from _text(command.help or "")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield _options(context, _common())
        yield from _text(command.epilog or "")
    for inner in _commands_of(context):
        yield from _sections(inner, level + 1)


def _common() -> frozenset[str]:
    return frozenset(parameter.name or "" for parameter in parley.params)


def _options(context: click.Context, leave_out: frozenset[str]) -> str:
    records = [
        record
        for parameter in context.command.get_params(context)
        if parameter.name not in leave_out
        and not {"--help", "--version"} & set(parameter.opts)
        and (record := parameter.get_help_record(context)) is not None
        and record[1]
    ]
    rows = ((code(words), plain(help_text)) for words, help_text in records)
    return table(("option", ""), rows)


def _text(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those whose lines are kept become blocks of code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith(_VERBATIM):
            yield _kept(paragraph.removeprefix(_VERBATIM))
        elif paragraph.strip():
            yield plain(" ".join(paragraph.split()))


def _kept(text: str) -> str:
    heading, _, rest = text.partition("\n")
    if heading.endswith(":") and rest:
        return f"{plain(heading)}\n\n{block(inspect.cleandoc(rest), 'sh')}"
    return block(inspect.cleandoc(text), "sh")
