"""The entry point ``parley``: names every command and loads the one that is called, and only that.

``parley --help`` must come at once, so the commands' one-line helps stand here and their modules,
with all they import, are loaded when they are used. A test holds these lines and theirs together.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from node.cli.invocation import global_options

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS: dict[str, tuple[str, str]] = {
    "up": (
        "node.cli.services:up",
        "Run one node here: API, page, lead, and a private Postgres unless --dsn is given.",
    ),
    "lab": ("node.cli.lab:lab_group", "Run several nodes on this host, for trying and testing."),
    "rtt": ("node.cli.shortcuts:rtt", "Measure round-trip time and loss to HOST, any host."),
    "latency": (
        "node.cli.shortcuts:latency",
        "Measure delay, loss and jitter each way between nodes A (this one unless said) and B.",
    ),
    "latencybg": (
        "node.cli.shortcuts:latencybg",
        "Measure delay, loss and jitter each way between nodes, all along.",
    ),
    "interface": (
        "node.cli.shortcuts:interface",
        "Count what passes a network interface of a node, all along.",
    ),
    "throughput": (
        "node.cli.shortcuts:throughput",
        "Measure how many bits per second get from node A (this one unless said) to node B.",
    ),
    "dns": (
        "node.cli.shortcuts:dns",
        "Ask a DNS server for NAME, and measure how long the answer takes.",
    ),
    "http": (
        "node.cli.shortcuts:http",
        "Ask for URL, measure each phase until the answer is there, and check it.",
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
        "Measure how far the clock of node B is ahead of node A's (this one unless said).",
    ),
    "trace": ("node.cli.shortcuts:trace", "Find the path to HOST, any host, hop by hop."),
    "mtu": (
        "node.cli.shortcuts:mtu",
        "Find the largest packet that gets to HOST, any host, in one piece.",
    ),
    "task": (
        "node.cli.tasks:task_group",
        "Create, list, show, pause, resume, edit and cancel tasks.",
    ),
    "plan": ("node.cli.plans:plan_group", "Ask what would happen; nothing is booked or kept."),
    "run": ("node.cli.runs:run_group", "List, follow and cancel runs, and read their results."),
    "schedule": (
        "node.cli.schedule:schedule",
        "Show what ran, runs and will run on the node, in the order of starts.",
    ),
    "explain": (
        "node.cli.explain:explain",
        "Say why a task or a run is where it is, or is not at all.",
    ),
    "simulate": (
        "node.cli.simulate:simulate",
        "Simulate SCENARIO, a name or a TOML or JSON file: what would be promised and delivered.",
    ),
    "reservation": (
        "node.cli.reservations:reservation_group",
        "Set time of the node apart: for maintenance, a demo, or quiet.",
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
        "Apply, list and remove meshes, and see what they deliver.",
    ),
    "archive": (
        "node.cli.archives:archive_group",
        "Say where results go, see what waits, and have it tried again.",
    ),
    "node": (
        "node.cli.nodes:node_group",
        "List, show, add and remove the nodes that this node knows, and say what this one is.",
    ),
    "test": ("node.cli.nodes:test_group", "List and show what can be measured."),
    "tool": ("node.cli.nodes:tool_group", "List the programs that measure."),
    "plugin": (
        "node.cli.plugins:plugin_group",
        "List, make and check tests, tools and archivers that come from elsewhere.",
    ),
    "completion": (
        "node.cli.completion:completion",
        "Print the script that completes words in a shell.",
    ),
}
"""Name → where the click command is, and its help in one line; in the order of the help page."""

_EPILOG = """\b
Ids may be shortened to their first digits; @-1 is the newest task or run.
Exit codes: 0 done, 1 measured but failed, 2 usage, 3 refused, 4 no time,
5 node unreachable, 6 not found, 7 timed out, 8 server fault, 130 Ctrl-C.
With -o json an error is a problem document on the last line of standard error.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command itself."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The help page's list, without loading anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


_CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=LazyGroup, context_settings=dict(_CONTEXT), epilog=_EPILOG)
@global_options
@click.version_option(package_name="parley-scheduler", message="parley %(version)s")
def parley() -> None:
    """Agree with other nodes on a time to measure, measure, and show the result."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_letter(stream)
    parley(prog_name="parley")


def _never_fail_on_a_letter(stream: TextIO) -> None:
    """On a terminal without UTF-8 an arrow becomes a question mark, not a traceback."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
