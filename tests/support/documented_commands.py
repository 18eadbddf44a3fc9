"""The command lines of the documentation: found in its blocks, and parsed by the real parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from node.cli.main import parley

_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`parley ([^`\n]+)`")
_OPERATORS = frozenset({"|", "||", "&", "&&", ";", "(", ")", ">", ">>", "<", "<<", "$"})
_HERE = re.compile(r"<<'?(\w+)'?")
_DOCUMENT = re.compile(r"<<'?(\w+)'?\n.*?^\1$", re.DOTALL | re.MULTILINE)
_VERB = re.compile(r"[a-z|-]+")
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*", re.DOTALL)
_NO_FILE = "does not exist."
"""The end of a refusal of a file that the reader has, and this host has not."""
PROMPT = "$ "
"""The beginning of a line that a reader types, in a block that also shows what is printed."""


@dataclass(frozen=True)
class Block:
    """A block of shell: that a reader can run as it is (``console``), or with changes (``sh``)."""

    language: str
    text: str

    @property
    def commands(self) -> str:
        """Return what a reader types: all of it, or the lines with a prompt and what they take in.

        A line with a prompt goes on after a backslash, and up to the end of its here-document.
        """
        if self.language == "sh":
            return self.text
        typed: list[str] = []
        goes_on, end = False, None
        for line in self.text.splitlines():
            if not (line.startswith(PROMPT) or goes_on or end):
                continue
            typed.append(line if end else line.removeprefix(PROMPT))
            if end is None and (begun := _HERE.search(line)):
                end = begun[1]
            elif line == end:
                end = None
            goes_on = line.endswith("\\")
        assert end is None, f"a here-document does not end: {end}"
        return "".join(f"{line}\n" for line in typed)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of shell of a page, in their order."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(language, text) for language, text in found]


def command_lines(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of each ``parley …`` in a block."""
    for words in _lines(_DOCUMENT.sub("", block.commands).replace("\\\n", " ")):
        command: list[str] = []
        for word in [*words, ";"]:
            if word in _OPERATORS:
                if command[:1] == ["parley"]:
                    yield command[1:]
                command = []
            elif command or not _ASSIGNMENT.fullmatch(word):
                command.append(word)


def _lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each line; a line whose quotes are open goes on with the next one."""
    gathered = ""
    for line in text.splitlines():
        gathered += f"{line}\n"
        words = shlex.shlex(gathered, posix=True, punctuation_chars=True)
        words.commenters, words.whitespace_split = "#", True
        try:
            yield list(words)
        except ValueError:  # no closing quotation
            continue
        gathered = ""
    assert not gathered, f"a quotation is not closed: {gathered}"


def fault_of(arguments: list[str]) -> str | None:
    """Return why the parser refuses these arguments; None if it takes them."""
    command: click.Command = parley
    name, rest = "parley", arguments
    parent: click.Context | None = None
    try:
        while True:
            context = command.make_context(name, list(rest), parent=parent)
            if not isinstance(command, click.Group):
                return None
            rest = [*context._protected_args, *context.args]
            if not rest and command.invoke_without_command:
                return None
            found, inner, rest = command.resolve_command(context, rest)
            assert found is not None
            assert inner is not None
            command, name, parent = inner, found, context
    except click.exceptions.Exit:  # --help, --version
        return None
    except click.ClickException as error:
        fault = error.format_message()
        return None if fault.endswith(_NO_FILE) else fault


def mentioned(page: Path) -> Iterator[str]:
    """Yield what sentences of a page name as commands, such as ``task list`` or ``up --pull``."""
    yield from _INLINE.findall(page.read_text(encoding="utf-8"))


def fault_of_mention(words: str) -> str | None:
    """Return which word of a mentioned command does not exist: a verb or an option."""
    context = click.Context(parley, info_name="parley")
    rest = iter(words.split())
    for word in rest:
        if word.startswith("-"):
            options = [_option(context, name) for name in word.partition("=")[0].split("|")]
            if None in options:
                return f"{context.command_path} has no option {word}"
            if options[0] is not None and not options[0].is_flag and "=" not in word:
                next(rest, None)
        elif isinstance(command := context.command, click.Group) and _VERB.fullmatch(word):
            found = [command.get_command(context, name) for name in word.split("|")]
            if None in found or found[0] is None:
                return f"{context.command_path} has no command {word}"
            context = click.Context(found[0], info_name=word, parent=context)
    return None


def _option(context: click.Context, name: str) -> click.Option | None:
    for parameter in (*context.command.get_params(context), *parley.params):
        if name in {*parameter.opts, *parameter.secondary_opts}:
            assert isinstance(parameter, click.Option)
            return parameter
    return None
