"""The entry point ``parley``, which imports only the command that is called.

``parley --help`` must come at once, so the one-line help of each command is repeated here, and its
module is imported only when it is called. A test compares these lines with the docstrings.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import sys
from difflib import get_close_matches
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

from node.cli.examples import with_examples
from node.cli.invocation import global_options
from node.cli.names import complete_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

COMMANDS: dict[str, tuple[str, str]] = {
    "up": (
        "node.cli.services:up",
        "Run one node here: API, page, lead, and a private Postgres unless --dsn is given.",
    ),
    "lab": ("node.cli.lab:lab_group", "Run several nodes on this host, for trying and testing."),
    "rtt": ("node.cli.shortcuts:rtt", "Measure round-trip time and loss to HOST, any host."),
    "latency": (
        "node.cli.shortcuts:latency",
        "Measure delay, loss and jitter each way between nodes A (default: this one) and B.",
    ),
    "latencybg": (
        "node.cli.shortcuts:latencybg",
        "Measure delay, loss and jitter each way between nodes, continuously.",
    ),
    "interface": (
        "node.cli.shortcuts:interface",
        "Count the traffic of a network interface of a node, continuously.",
    ),
    "throughput": (
        "node.cli.shortcuts:throughput",
        "Measure how many bits per second get from node A (default: this one) to node B.",
    ),
    "dns": (
        "node.cli.shortcuts:dns",
        "Ask a DNS server for NAME, and measure how long the answer takes.",
    ),
    "http": (
        "node.cli.shortcuts:http",
        "Request URL, measure each phase until the answer is complete, and check the answer.",
    ),
    "tcp": (
        "node.cli.shortcuts:tcp",
        "Measure how long TCP connections to PORT of HOST take, any host.",
    ),
    "tls": (
        "node.cli.shortcuts:tls",
        "Measure the TLS handshake with HOST, and look at its certificates.",
    ),
    "clock": (
        "node.cli.shortcuts:clock",
        "Measure how far the clock of node B is ahead of the clock of node A (default: this one).",
    ),
    "trace": ("node.cli.shortcuts:trace", "Find the path to HOST, any host, hop by hop."),
    "mtu": (
        "node.cli.shortcuts:mtu",
        "Find the largest packet that gets to HOST, any host, in one piece.",
    ),
    "task": (
        "node.cli.tasks:task_group",
        "Create, list, show, pause, resume, release, edit, cancel, export, import tasks.",
    ),
    "plan": ("node.cli.plans:plan_group", "Preview tasks and meshes; nothing is booked or stored."),
    "run": (
        "node.cli.runs:run_group",
        "List, follow, repeat, cancel, export, verify runs; read results, and why there are none.",
    ),
    "schedule": (
        "node.cli.schedule:schedule",
        "Show past, current and future runs on the node, by their start.",
    ),
    "explain": (
        "node.cli.explain:explain",
        "Explain why a task or a run is in its state, or why a run has no time.",
    ),
    "simulate": (
        "node.cli.simulate:simulate",
        "Simulate SCENARIO, a name or a TOML or JSON file: what would be promised and delivered.",
    ),
    "reservation": (
        "node.cli.reservations:reservation_group",
        "Reserve time of the node: for maintenance, a demo, or quiet.",
    ),
    "campaign": (
        "node.cli.campaigns:campaign_group",
        "Add, list, show, edit and remove campaigns, and see what they use.",
    ),
    "pool": (
        "node.cli.pools:pool_group",
        "Add, list, show, edit and remove pools, and choose their policies.",
    ),
    "mesh": (
        "node.cli.meshes:mesh_group",
        "Plan, apply, import, follow, list and remove meshes, and see what they deliver.",
    ),
    "archive": (
        "node.cli.archives:archive_group",
        "Configure where results are delivered, show the backlog, and retry deliveries.",
    ),
    "node": (
        "node.cli.nodes:node_group",
        "List, add, introduce, remove, compare, pardon nodes; drain, rekey, describe this one.",
    ),
    "status": (
        "node.cli.status:status",
        "Show how the node is, and what needs attention.",
    ),
    "doctor": (
        "node.cli.doctor:doctor",
        "Find what is wrong with the node, or between two nodes, and what to type next.",
    ),
    "top": (
        "node.cli.top:top",
        "Show what the node does now and next, who takes its time, and its load.",
    ),
    "pair": (
        "node.cli.pair:pair",
        "Show how the way between A (default: this node) and B is: all tests, both directions.",
    ),
    "capacity": (
        "node.cli.capacity:capacity",
        "Show how full the node is: for each hour the occupied share by class, and what is booked.",
    ),
    "events": (
        "node.cli.events:events",
        "Print the changes on the node as they happen, until Ctrl-C.",
    ),
    "open": (
        "node.cli.open:open_page",
        "Open the page of the node in a browser, logged in, or print its link.",
    ),
    "limits": (
        "node.cli.limits:limits_group",
        "Check and show the limits of what other nodes may have of this host.",
    ),
    "token": (
        "node.cli.tokens:token_group",
        "Add, list and revoke the tokens of the node's users; each has a role.",
    ),
    "webhook": (
        "node.cli.webhooks:webhook_group",
        "Add, list, test and remove addresses that are told when something is wrong.",
    ),
    "secret": (
        "node.cli.secrets:secret_group",
        "Add, list and remove secrets that specs of tests name, such as tokens in headers.",
    ),
    "audit": (
        "node.cli.audit:audit",
        "Show who did what on the node, and who was refused.",
    ),
    "admin": (
        "node.cli.admin:admin_group",
        "Migrate, back up, restore, repair and move what a node has.",
    ),
    "test": ("node.cli.nodes:test_group", "List and show what can be measured."),
    "tool": ("node.cli.nodes:tool_group", "List the programs that measure."),
    "plugin": (
        "node.cli.plugins:plugin_group",
        "List, create and check tests, tools and archivers of other distributions.",
    ),
    "login": (
        "node.cli.login:login",
        "Keep a node with your token as a profile, and use it from now on.",
    ),
    "profile": (
        "node.cli.login:profile_group",
        "List the profiles of parley login, choose one, and remove one.",
    ),
    "completion": (
        "node.cli.completion:completion",
        "Print the script that completes words in a shell.",
    ),
}
"""Name → import path of the click command, and its one-line help; in the order of the help page."""

GROUPS = {
    "Measure": "rtt latency latencybg interface throughput dns http tcp tls clock trace mtu",
    "Look": "run schedule explain status doctor top pair capacity events open",
    "Plan": "task plan mesh campaign pool reservation simulate",
    "Fleet": "node limits test tool archive webhook",
    "Operate": "up login profile token secret audit admin completion",
    "Develop": "lab plugin",
}
"""The sections of the help page, each with its commands."""

_EPILOG = """\b
Ids may be shortened to their first digits; @-1 is the newest task or run.
Exit codes: 0 done, 1 run without a result or with total loss, something needs attention
(status, doctor), 2 usage, 3 refused,
4 no time, 5 node unreachable, 6 not found, 7 timed out, 8 server fault, 130 Ctrl-C.
With -o json an error is a problem document on the last line of standard error.
"""


FOREIGN = {
    "ping": "rtt",
    "traceroute": "trace",
    "tracepath": "mtu",
    "mtr": "trace",
    "dig": "dns",
    "curl": "http",
    "iperf": "throughput",
    "iperf3": "throughput",
    "owping": "latency",
    "twping": "latency",
    "powstream": "latencybg",
    "result": "run result",
    "results": "run list",
    "troubleshoot": "doctor",
    "check": "doctor",
    "diagnose": "doctor",
    "monitor": "top",
    "watch": "events",
    "page": "open",
    "browse": "open",
    "health": "status",
    "load": "capacity",
    "usage": "capacity",
    "failures": "run causes",
    "errors": "run causes",
    "info": "status",
    "why": "explain",
    "peer": "node",
    "project": "campaign",
    "serve": "up",
    "start": "up",
    "backup": "admin backup",
    "restore": "admin restore",
    "migrate": "admin migrate",
}
"""Words of other programs and papers, and the command that does it here."""


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
    near = get_close_matches(word.lower(), COMMANDS, n=3, cutoff=0.6)
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
    except click.ClickException as error:
        if not machine or isinstance(error, _ProblemError):
            raise
        raise _ProblemError(error) from None


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
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(import_permanently(module), name)
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
