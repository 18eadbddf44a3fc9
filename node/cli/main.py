"""The entry point ``parley``, which imports only the command that is called."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import sys
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

from node.cli.commands import COMMANDS, GROUPS, with_examples
from node.cli.completion import complete_names
from node.cli.invocation import global_options
from node.model.similar import similar_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

_EPILOG = """\b
Ids may be shortened to their first digits; @-1 is the newest of your own.
Exit codes: 0 done, 1 run without a result or with total loss, something needs attention
(status, doctor), 2 usage, 3 refused,
4 no time, 5 node unreachable, 6 not found, 7 timed out, 8 server fault, 130 Ctrl-C.
With -o json an error is a problem document on the last line of standard error.
"""


FOREIGN = {
    word: command
    for command, words in {
        "rtt": "ping",
        "trace": "traceroute mtr",
        "mtu": "tracepath",
        "dns": "dig",
        "http": "curl",
        "throughput": "iperf iperf3",
        "latency": "owping twping",
        "latencybg": "powstream",
        "run result": "result",
        "run list": "results",
        "doctor": "troubleshoot check diagnose",
        "top": "monitor",
        "events": "watch",
        "open": "page browse",
        "status": "health info",
        "capacity": "load usage",
        "run causes": "failures errors",
        "explain": "why",
        "node": "peer",
        "campaign": "project",
        "up": "serve start",
        "admin backup": "backup",
        "admin restore": "restore",
        "admin migrate": "migrate",
    }.items()
    for word in words.split()
}
"""Words of other programs and papers, and the command that does it here."""


FOREIGN_OPTIONS = {
    word: tuple(options.split())
    for options, words in {
        "--rate": "bandwidth bitrate speed",
        "--duration": "time length",
        "--count": "packets probes number",
        "--repeat --interval": "every period",
        "--interval --repeat": "gap",
        "--streams": "parallel",
        "--hops": "ttl max-hops max-ttl",
        "--size": "length bytes packet-size",
        "--since --from": "after begin start",
        "--from --since": "since",
        "--until --to": "before end stop",
        "--to --until": "until",
        "--limit": "max top head tail number",
        "--state": "status",
        "--source": "src sender",
        "--wait": "block",
        "--no-wait": "detach async",
        "--dry-run": "check preview simulate whatif",
        "--yes": "force assume-yes",
        "--output": "format json csv yaml",
        "--fields": "columns column field",
        "--outcome": "judgement result",
    }.items()
    for word in words.split()
}
"""Words for options of other programs, and the options that are meant if the command has them."""

_ASKS_NOTHING = {"--yes", "--force", "--assume-yes", "-y"}


def import_permanently(name: str) -> ModuleType:
    """Import a module while the garbage collector is off.

    What is imported lives as long as the process. Collections that look through it find nothing,
    and take a fifth of the time in which a node starts.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collecting:
            gc.enable()


def suggestion(word: str) -> str:
    """Return a question that names the commands probably meant by a word; empty if none is near."""
    if (meant := FOREIGN.get(word.lower())) is not None:
        return f" Did you mean {meant!r}?"
    near = similar_words(word, COMMANDS)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def option_suggestion(word: str, known: Iterable[str]) -> str:
    """Return which options of a command were probably meant by an unknown one; empty if none."""
    options = {name.lstrip("-"): name for name in known if name.startswith("--")}
    meant = [each for each in FOREIGN_OPTIONS.get(word.lstrip("-"), ()) if each[2:] in options]
    if not meant and word in _ASKS_NOTHING:
        return " It does not ask; leave the option out."
    near = meant[:1] or [options[each] for each in similar_words(word.lstrip("-"), options)]
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether the last ``-o`` of a command line asks for JSON, and so for problems in it.

    The arguments are not parsed, because it is their parsing that may fail.
    """
    form = None
    for number, word in enumerate(arguments):
        if word in {"-o", "--output"}:
            form = next(iter(arguments[number + 1 : number + 2]), None)
        elif word.startswith("--output="):
            form = word.partition("=")[2]
        elif word.startswith("-o") and not word.startswith("--"):
            form = word[2:].removeprefix("=")
        elif word == "--":
            break
    return form in {"json", "jsonl"}


class _ProblemError(click.ClickException):
    """A wrong command line, reported as a problem document on one line."""

    def __init__(self, error: click.ClickException) -> None:
        super().__init__(error.format_message())
        self.exit_code = error.exit_code  # type: ignore[misc]  # click's own differ, too

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the document on standard error."""
        from node.model.errors import RequestError
        from node.model.wire.problems import problem_of  # loads pydantic

        document = problem_of(RequestError(self.message)).model_dump(mode="json")
        line = json.dumps({**document, "exit_code": self.exit_code})
        click.echo(line, file=file, err=file is None)


_MACHINE = "parley.machine"
"""The key of a context for whether errors are to be problem documents."""


@contextlib.contextmanager
def _problem_reporting(*, machine: bool) -> Iterator[None]:
    """Report a wrong command line as a problem document, for a program that reads JSON."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.ClickException as raised:
        error = _suggesting(raised) if isinstance(raised, click.NoSuchOption) else raised
        if not machine or isinstance(error, _ProblemError):
            raise error from None
        raise _ProblemError(error) from None


def _suggesting(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the options of the command that were probably meant."""
    context = error.ctx
    known = [
        name
        for option in (context.command.get_params(context) if context is not None else ())
        for name in (*option.opts, *option.secondary_opts)
    ]
    message = f"{error.message}{option_suggestion(error.option_name, known)}"
    return click.NoSuchOption(error.option_name, message, ctx=context)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options before the command."""
        machine = wants_json(args)
        with _problem_reporting(machine=machine):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_MACHINE] = machine
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the rest, and run the command."""
        with _problem_reporting(machine=ctx.meta[_MACHINE]):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and return it."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        known = vars(import_permanently(place[0]))
        names = (f"{cmd_name}_group", f"{cmd_name}_command", cmd_name)
        command = next(known[name] for name in names if name in known)
        return complete_names(ctx, with_examples(cmd_name, command))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        :raises click.UsageError: there is none; the message names what was probably meant.
        """
        word = args[0] if args else ""
        if word in COMMANDS or word.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {word!r}.{suggestion(word)}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of the help page without importing any command."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names.split()])


_CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=LazyGroup, context_settings=dict(_CONTEXT), epilog=_EPILOG)
@global_options
@click.version_option(package_name="parley-scheduler", message="parley %(version)s")
def parley() -> None:
    """Agree with other nodes on a time to measure, measure, and show the result."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    parley(prog_name="parley")


def _replace_unencodable(stream: TextIO) -> None:
    """Print a question mark for a character that the stream cannot encode, instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
