"""Every command has examples, which its own parser takes, in its help and its man page."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from deploy.manual import write_pages
from node.cli.commands import COMMANDS, EXAMPLES, GROUPS
from node.cli.main import parley
from tests.support.documented_commands import fault_of


def _leaves(context: click.Context, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that do something, each with its words."""
    command = context.command
    if not isinstance(command, click.Group):
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None:
            yield from _leaves(click.Context(inner, info_name=name), f"{path} {name}".strip())


LEAVES = dict(_leaves(click.Context(parley), ""))


def _examples(path: str) -> list[list[str]]:
    """Return the arguments of the examples in the help of a command."""
    command = LEAVES[path]
    text = inspect.cleandoc(f"{command.help or ''}\n{command.epilog or ''}")
    lines = [
        shlex.split(line, comments=True)
        for line in text.splitlines()
        if "parley " in line and line.startswith(" ")
    ]
    return [words[words.index("parley") + 1 :] for words in lines if "parley" in words]


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_examples(path: str) -> None:
    """The help of a command has an example of it, and the parser takes each of its examples."""
    words = path.split()
    own = [each for each in _examples(path) if each[: len(words)] == words]
    assert own, f"add one to node/cli/commands.py: {path}"
    if path in EXAMPLES:
        assert {" ".join(each): fault for each in own if (fault := fault_of(each))} == {}


def test_examples_are_of_commands() -> None:
    """No example is of a command that does not exist, or that has its own."""
    assert set(EXAMPLES) - set(LEAVES) == set()


def test_every_command_is_in_one_section_of_the_help() -> None:
    """The sections of the help page have each command once."""
    listed = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(listed) == sorted(COMMANDS)
    page = parley.get_help(click.Context(parley, info_name="parley"))
    assert [title for title in GROUPS if f"\n{title}:\n" in page] == list(GROUPS)


@pytest.mark.filterwarnings("ignore:.*make_default_short_help:DeprecationWarning")
def test_man_pages_have_the_examples(tmp_path: Path) -> None:
    """The man page of a command ends with the examples of its help."""
    write_pages(tmp_path)
    assert ".SH EXAMPLES" in (tmp_path / "parley-rtt.1").read_text()
    page = (tmp_path / "parley-run-list.1").read_text()
    assert "  parley run list \\-\\-upcoming" in page
